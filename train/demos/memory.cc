// What a memory that is a matrix keeps, overwrites and forgets.
#include <vector>

#include "nn/mixers/delta_rule.h"
#include "nn/mixers/gated_delta_rule.h"
#include "nn/mixers/unified.h"
#include "tensor/index.h"
#include "train/demos/demo.h"
#include "train/demos/inputs.h"

namespace storytape {
namespace {

using namespace demo;
using nlohmann::json;

// n orthonormal rows of 16 numbers ±1/4, whose products are exact: of Hadamard's matrix.
Tensor<float> orthonormal(size_t n) {
  Tensor<float> x({1, n, 1, 16});
  for (size_t i = 0; i < x.size(); ++i) {
    const bool odd = __builtin_popcountll((i / 16) & (i % 16)) % 2 == 1;
    x[i] = odd ? -0.25f : 0.25f;
  }
  return x;
}

Tensor<float> joined(const std::vector<Tensor<float>>& parts) {
  return concat(std::span<const Tensor<float>>(parts), 1);
}

// Over the first n tokens, the mean distance of what was read to what was asked for.
double mean_error(const Tensor<float>& read, size_t first, const Tensor<float>& wanted) {
  const size_t n = wanted.shape()[1], dim = wanted.shape()[3];
  double sum = 0;
  for (size_t t = 0; t < n; ++t) {
    std::vector<float> apart(dim);
    for (size_t i = 0; i < dim; ++i) apart[i] = row(read, first + t)[i] - row(wanted, t)[i];
    sum += norm(apart);
  }
  return sum / static_cast<double>(n);
}

}  // namespace

DemoResult demo_overwrite(const DemoOptions& options) {
  const auto beta = static_cast<float>(options.beta.value_or(1));
  // Under A, under B, under A again; every token reads A.
  const Tensor<float> keys({1, 3, 1, 3}, {1, 0, 0, 0, 1, 0, 1, 0, 0});
  const Tensor<float> values({1, 3, 1, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1});
  const Tensor<float> reads({1, 3, 1, 3}, {1, 0, 0, 1, 0, 0, 1, 0, 0});
  Values x;
  const Var<float> q = x(reads), k = x(keys), v = x(values);
  const auto additive = unified_recurrence(ForgetMode::kLinear, q, k, v).o;
  const auto delta = delta_rule(q, k, v, x(Tensor<float>({1, 3, 1}, {1, 1, beta}))).o;
  const std::span<const float> target = row(values, 2);

  DemoResult result;
  result.exact("additive", list(row(additive.value(), 2)), {1, 0, 1}, "both values of A, blurred");
  result.near("delta", list(row(delta.value(), 2)), {1 - beta, 0, beta}, 1e-6,
              "(1 - beta) of the first value, beta of the second");
  result.exact("target", list(target), {0, 0, 1}, "what A was given last");
  result.exact("delta_exact", difference(row(delta.value(), 2), target) == 0, beta == 1);
  if (options.beta) return result;

  // Exercise 5: a third token writes nothing and reads.
  const Tensor<float> key({1, 3, 1, 2}, {1, 0, 1, 0, 1, 0}), value({1, 3, 1, 2}, {1, 0, 0, 1, 0, 0});
  const auto sum = unified_recurrence(ForgetMode::kLinear, x(key), x(key), x(value)).o;
  const auto last = delta_rule(x(key), x(key), x(value), x(Tensor<float>({1, 3, 1}, {1, 1, 0}))).o;
  result.exact("exercise_5_additive", list(row(sum.value(), 2)), {1, 1});
  result.exact("exercise_5_delta", list(row(last.value(), 2)), {0, 1});
  return result;
}

DemoResult demo_recall(const DemoOptions&) {
  const std::vector<size_t> counts = {1, 2, 4, 8, 12, 16};
  json additive_errors = json::array(), delta_errors = json::array(), old_norms = json::array();
  for (const size_t n : counts) {
    const Tensor<float> keys = orthonormal(n), nothing({1, n, 1, 16}, 0.0f);
    const Tensor<float> before = normal({1, n, 1, 16}, 1), after = normal({1, n, 1, 16}, 2);
    // Store, update, ask: the last n tokens write nothing.
    Tensor<float> beta({1, 3 * n, 1}, 1.0f);
    for (size_t t = 2 * n; t < 3 * n; ++t) beta[t] = 0;
    Values x;
    const Var<float> q = x(joined({keys, keys, keys})), k = x(joined({keys, keys, nothing})),
                     v = x(joined({before, after, nothing}));
    const auto additive = unified_recurrence(ForgetMode::kLinear, q, k, v).o;
    const auto delta = delta_rule(q, k, v, x(beta)).o;
    additive_errors.push_back(mean_error(additive.value(), 2 * n, after));
    delta_errors.push_back(mean_error(delta.value(), 2 * n, after));
    old_norms.push_back(mean_error(nothing, 0, before));
  }
  DemoResult result;
  result.show("n", counts, "facts, of a state that holds 16");
  result.near("additive_error", additive_errors, old_norms, 1e-5, "always the norm of the old values");
  result.rounding("delta_error", delta_errors, 1e-5, "the update is recalled, however many facts");
  return result;
}

DemoResult demo_reset(const DemoOptions&) {
  constexpr size_t kFacts = 5, kDim = 16;
  const Tensor<float> keys = one_hot(kFacts, kDim), values = normal({1, kFacts, 1, kDim}, 0);
  const Tensor<float> nothing({1, kFacts, 1, kDim}, 0.0f), reset({1, 1, 1, kDim}, 0.0f);
  constexpr size_t kTokens = 2 * kFacts + 1;
  Tensor<float> beta({1, kTokens, 1}, 0.0f), alpha({1, kTokens, 1}, 1.0f);
  for (size_t t = 0; t < kFacts; ++t) beta[t] = 1;
  alpha[kFacts] = 0;
  Values x;
  const Var<float> q = x(joined({keys, reset, keys})), k = x(joined({keys, reset, nothing})),
                   v = x(joined({values, reset, nothing}));
  const auto gated = gated_delta_rule(q, k, v, x(alpha), x(beta)).o;
  const auto delta = delta_rule(q, k, v, x(beta)).o;

  DemoResult result;
  double largest = 0;
  for (size_t t = kFacts + 1; t < kTokens; ++t) {
    for (const float read : row(gated.value(), t))
      largest = std::max(largest, std::abs(static_cast<double>(read)));
  }
  result.exact("gated_readout", largest, 0, "the largest number read after the gate of 0");
  const double norms = mean_error(nothing, 0, values);
  result.near("gated_error", mean_error(gated.value(), kFacts + 1, values), norms, 1e-12,
              "the values' own norm; the chapter's 3.62252 is that of its random values");
  result.exact("delta_error", mean_error(delta.value(), kFacts + 1, values), 0, "no gate: all is remembered");
  return result;
}

DemoResult demo_horizon(const DemoOptions&) {
  constexpr size_t kTokens = 600, kDim = 16;
  // One fact under key 0, then others under keys 1 to 15; every token asks for the first.
  Tensor<float> keys({1, kTokens, 1, kDim}, 0.0f), values({1, kTokens, 1, 1}, 1.0f);
  keys[0] = 1;
  for (size_t t = 1; t < kTokens; ++t) keys[t * kDim + 1 + t % (kDim - 1)] = 1;
  Tensor<float> reads({1, kTokens, 1, kDim}, 0.0f);
  for (size_t t = 0; t < kTokens; ++t) reads[t * kDim] = 1;
  const Tensor<float> beta({1, kTokens, 1}, 1.0f);

  const std::vector<double> gates = {0.5, 0.8, 0.9, 0.95, 1};
  const std::vector<size_t> ages = {0, 1, 2, 5, 10, 20, 50};
  json recall = json::array(), powers = json::array(), horizons = json::array(), wanted = json::array();
  for (const double gate : gates) {
    Values x;
    const Tensor<float> alpha({1, kTokens, 1}, static_cast<float>(gate));
    const Tensor<float> o = gated_delta_rule(x(reads), x(keys), x(values), x(alpha), x(beta)).o.value();
    json ours = json::array(), power = json::array();
    for (const size_t age : ages) {
      ours.push_back(o[age]);
      power.push_back(std::pow(gate, static_cast<double>(age)));
    }
    recall.push_back(ours);
    powers.push_back(power);
    if (gate == 1) continue;
    double lifetime = 0;
    for (size_t t = 0; t < kTokens; ++t) lifetime += o[t];
    horizons.push_back(lifetime);
    wanted.push_back(1 / (1 - gate));
  }
  DemoResult result;
  result.show("alpha", gates, "the gates");
  result.show("age", ages, "tokens since the fact was stored");
  result.near("recall", recall, powers, 1e-6, "alpha^age, flat at 1");
  result.near("horizon", horizons, wanted, 1e-4, "1/(1 - alpha): the sum of recall over all ages");
  return result;
}

}  // namespace storytape
