// A write of the delta rule with β = 2 and a unit key reflects the state; several per token rotate and permute it.
#include <algorithm>
#include <cmath>
#include <vector>

#include "nn/mixers/delta_product.h"
#include "nn/mixers/delta_rule.h"
#include "tensor/index.h"
#include "train/demos/demo.h"
#include "train/demos/inputs.h"

namespace storytape {
namespace {

using namespace demo;
using nlohmann::json;

constexpr Face kFaces[] = {Face::kRecurrent, Face::kParallel, Face::kChunkwise};

Tensor<float> identity(size_t n) {
  Tensor<float> x({n, n}, 0.0f);
  for (size_t i = 0; i < n; ++i) x[i * n + i] = 1;
  return x;
}

// What `tokens` times the same writes make of the identity as state: keys [n_h, d], beta [n_h] → [d, d].
Tensor<float> transition(const Tensor<float>& keys, const Tensor<float>& beta, Face face, size_t tokens = 1) {
  const size_t steps = keys.size(0), dim = keys.size(1);
  GatedOptions options;
  options.face = face;
  options.steps = steps;
  const std::vector<Tensor<float>> key_copies(tokens, keys), beta_copies(tokens, beta);
  const Tensor<float> k = concat(std::span<const Tensor<float>>(key_copies), 0),
                      b = concat(std::span<const Tensor<float>>(beta_copies), 0);
  Values x;
  return delta_product(x(Tensor<float>({1, tokens, 1, dim}, 0.0f)), x(k.reshape({1, tokens * steps, 1, dim})),
                       x(Tensor<float>({1, tokens * steps, 1, dim}, 0.0f)), {},
                       x(b.reshape({1, tokens * steps, 1})), x(identity(dim).reshape({1, 1, dim, dim})),
                       options)
      .S.value()
      .reshape({dim, dim});
}

// By elimination with row exchanges, in double.
double determinant(const Tensor<float>& matrix) {
  const size_t n = matrix.size(0);
  std::vector<double> a(matrix.values().begin(), matrix.values().end());
  double product = 1;
  for (size_t c = 0; c < n; ++c) {
    size_t pivot = c;
    for (size_t r = c + 1; r < n; ++r) {
      if (std::abs(a[r * n + c]) > std::abs(a[pivot * n + c])) pivot = r;
    }
    if (a[pivot * n + c] == 0) return 0;
    if (pivot != c) {
      product = -product;
      for (size_t i = 0; i < n; ++i) std::swap(a[c * n + i], a[pivot * n + i]);
    }
    product *= a[c * n + c];
    for (size_t r = c + 1; r < n; ++r) {
      const double factor = a[r * n + c] / a[c * n + c];
      for (size_t i = c; i < n; ++i) a[r * n + i] -= factor * a[c * n + i];
    }
  }
  return product;
}

// e_i - e_j for each pair: with β = 1 the write is I - (e_i - e_j)ᵀ(e_i - e_j), which swaps i and j exactly.
Tensor<float> swaps(size_t dim, const std::vector<std::pair<size_t, size_t>>& pairs) {
  Tensor<float> keys({pairs.size(), dim}, 0.0f);
  for (size_t r = 0; r < pairs.size(); ++r) {
    keys[r * dim + pairs[r].first] = 1;
    keys[r * dim + pairs[r].second] = -1;
  }
  return keys;
}

json matrix(const Tensor<float>& x) {
  json rows = json::array();
  for (size_t r = 0; r < x.size(0); ++r) rows.push_back(list(x.rows(r, r + 1).values()));
  return rows;
}

}  // namespace

DemoResult demo_rotation(const DemoOptions&) {
  constexpr double kDegree = 3.14159265358979323846 / 180, kTheta = 100 * kDegree;
  const auto c = [](double angle) { return static_cast<float>(std::cos(angle)); };
  const auto s = [](double angle) { return static_cast<float>(std::sin(angle)); };
  // Keys half the angle apart.
  const Tensor<float> keys({2, 2}, {1, 0, c(kTheta / 2), s(kTheta / 2)}), beta({2}, 2.0f);
  const Tensor<float> target({2, 2}, {c(kTheta), -s(kTheta), s(kTheta), c(kTheta)});
  DemoResult result;
  double worst = 0;
  for (const Face face : kFaces) worst = std::max(worst, difference(transition(keys, beta, face), target));
  const Tensor<float> one = transition(keys.rows(0, 1), beta.rows(0, 1), Face::kChunkwise);
  result.show("theta", 100, "degrees; mirrors 50 degrees apart");
  result.near("det_one", determinant(one), -1, 1e-6, "a reflection");
  result.near("det_two", determinant(transition(keys, beta, Face::kChunkwise)), 1, 1e-6, "a rotation");
  result.exact("matches", worst <= 1e-6, true, "R(theta), in every face");
  result.rounding("max_error", worst, 1e-6, "the chapter prints 6.0e-06: keys divided by their norm + 1e-6");
  result.exact("one_matches", difference(one, target) <= 1e-2, false, "no single reflection is a rotation");
  return result;
}

DemoResult demo_permutation(const DemoOptions&) {
  DemoResult result;
  const auto half = static_cast<float>(std::sqrt(0.5));
  const Tensor<float> unit({1, 3}, {half, -half, 0});
  const Tensor<float> swap = transition(swaps(3, {{0, 1}}), Tensor<float>({1}, 1.0f), Face::kChunkwise);
  result.exact("transposition", matrix(swap), {{0, 1, 0}, {1, 0, 0}, {0, 0, 1}},
               "I - (e_0 - e_1)(e_0 - e_1)^T");
  result.exact("transposition_det", determinant(swap), -1, "odd");
  result.rounding("unit_key_error",
                  difference(transition(unit, Tensor<float>({1}, 2.0f), Face::kChunkwise), swap), 1e-6,
                  "the same by a unit key and beta = 2");
  // 0 → 1 → 2 → 0: first 0 and 1 change places, then 0 and 2.
  const Tensor<float> keys = swaps(3, {{0, 1}, {0, 2}}), beta({2}, 1.0f);
  const Tensor<float> cycle({3, 3}, {0, 0, 1, 1, 0, 0, 0, 1, 0});
  bool same = true, third = true, second = false;
  for (const Face face : kFaces) {
    same = same && difference(transition(keys, beta, face), cycle) == 0;
    second = second || difference(transition(keys, beta, face, 2), identity(3)) == 0;
    third = third && difference(transition(keys, beta, face, 3), identity(3)) == 0;
  }
  result.exact("three_cycle", matrix(transition(keys, beta, Face::kChunkwise)), matrix(cycle),
               "two transpositions: 0 to 1, 1 to 2, 2 to 0");
  result.exact("three_cycle_det", determinant(cycle), 1, "even");
  result.exact("matches", same, true, "in every face");
  result.exact("order", second ? 2 : third ? 3 : 0, 3, "tokens until every element is back");
  return result;
}

DemoResult demo_determinants(const DemoOptions&) {
  constexpr size_t kDim = 6, kTokens = 7;
  DemoResult result;
  json dets = json::array(), clamped = json::array();
  double helper = 0;
  for (size_t steps = 1; steps <= 4; ++steps) {
    const Tensor<float> keys = unit_rows(normal({steps, kDim}, steps)), two({steps}, 2.0f);
    const Tensor<float> A = transition(keys, two, Face::kChunkwise);
    dets.push_back(determinant(A));
    helper = std::max(helper, difference(A, delta_product_transition(keys, two)));
    double least = 1;
    for (uint64_t seed = 0; seed < 50; ++seed) {
      const Tensor<float> some = unit_rows(normal({steps, kDim}, 100 + seed));
      const Tensor<float> beta = uniform({steps}, 200 + seed, 0, 1);
      least = std::min(least, determinant(transition(some, beta, Face::kChunkwise)));
    }
    clamped.push_back(least >= 0);
  }
  result.near("determinants", dets, {-1, 1, -1, 1}, 1e-5, "n_h = 1..4, beta = 2: (-1)^n_h");
  result.exact("clamped_beta_never_negative", clamped, {true, true, true, true},
               "50 random transitions each, beta in [0, 1]");
  result.rounding("delta_product_transition_error", helper, 1e-5, "the product of the factors");

  // The delta rule on the sequence of writes, read at each n_h-th.
  json errors = json::array();
  for (const size_t steps : {size_t{1}, size_t{3}}) {
    const size_t writes = kTokens * steps;
    const Tensor<float> k = unit_rows(normal({1, kTokens, steps, 1, kDim}, 1)),
                        v = normal({1, kTokens, steps, 1, kDim}, 2), q = normal({1, kTokens, 1, kDim}, 3);
    const Tensor<float> beta = uniform({1, writes, 1}, 4, 0, 2);
    Tensor<float> q_stretched({1, writes, 1, kDim}, 0.0f);
    for (size_t t = 0; t < kTokens; ++t) {
      std::copy_n(row(q, t).data(), kDim, q_stretched.data() + ((t + 1) * steps - 1) * kDim);
    }
    GatedOptions options;
    options.face = Face::kRecurrent;
    options.steps = steps;
    Values x;
    const Var<float> keys = x(flatten_micro_sequence(k)), values = x(flatten_micro_sequence(v));
    const Tensor<float> product = delta_product(x(q), keys, values, {}, x(beta), {}, options).o.value();
    options.steps = 1;
    const Tensor<float> delta = delta_rule(x(q_stretched), keys, values, x(beta), {}, options).o.value();
    double worst = 0;
    for (size_t t = 0; t < kTokens; ++t) {
      worst = std::max(worst, difference(row(product, t), row(delta, (t + 1) * steps - 1)));
    }
    errors.push_back(worst);
  }
  result.exact("n_h_1_error", errors[0], 0, "n_h = 1 is DeltaNet");
  result.exact("flattened_error", errors[1], 0, "n_h = 3 is DeltaNet on the sequence of 3 T writes");
  return result;
}

}  // namespace storytape
