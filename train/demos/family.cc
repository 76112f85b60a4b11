// One recurrence behind the mixers: its gate makes one of them the other.
#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/ops_arithmetic.h"
#include "nn/gates.h"
#include "nn/mixers/delta_rule.h"
#include "nn/mixers/gated_delta_rule.h"
#include "nn/mixers/gla.h"
#include "nn/mixers/kda.h"
#include "nn/mixers/linear_attention.h"
#include "nn/mixers/unified.h"
#include "train/demos/demo.h"
#include "train/demos/inputs.h"

namespace storytape {
namespace {

using namespace demo;
using nlohmann::json;

constexpr size_t kDim = 8;
constexpr float kGamma = 0.9f;

GatedOptions with(Face face) {
  GatedOptions options;
  options.face = face;
  options.chunk = 16;
  return options;
}

Tensor<float> retention(const Tensor<float>& q, const Tensor<float>& k, const Tensor<float>& v, float gamma,
                        Face face = Face::kRecurrent, size_t chunk = 16) {
  LinearAttentionOptions options;
  options.face = face;
  options.chunk = chunk;
  options.phi = FeatureMap::kIdentity;
  options.normalise = false;
  Values x;
  return linear_attention(x(q), x(k), x(v), x(Tensor<float>({1}, gamma)), {}, {}, options).o.value();
}

// |S| after each token of a stream of one unit key and one unit value.
json state_norms(const std::vector<float>& gates) {
  const Tensor<float> unit = one_hot(1, kDim);
  State<float> state = gated_state<float>(1, 1, kDim, kDim);
  json norms = json::array();
  for (const float gate : gates) {
    gated_extend<float>("unified", state, unit, unit, unit, Tensor<float>({1, 1, 1}, gate), {}, {});
    norms.push_back(norm(state["S"].values()));
  }
  return norms;
}

}  // namespace

DemoResult demo_duality(const DemoOptions&) {
  constexpr size_t kTokens = 24;
  const Shape shape = {1, kTokens, 1, kDim};
  const Tensor<float> q = normal(shape, 0), k = normal(shape, 1), v = normal(shape, 2);
  // You are the gate: tokens 4, 11 and 17 are important.
  std::vector<float> selective(kTokens, 0.2f);
  for (const size_t t : {4, 11, 17}) selective[t] = 0.95f;

  DemoResult result;
  const auto compare = [&](const char* name, ForgetMode mode, const Tensor<float>& gate) {
    Values x;
    const auto run = [&](Face face) {
      return unified_recurrence(mode, x(q), x(k), x(v), x(gate), {}, with(face)).o.value();
    };
    const Tensor<float> recurrent = run(Face::kRecurrent);
    result.rounding(
        name, {difference(run(Face::kParallel), recurrent), difference(run(Face::kChunkwise), recurrent)},
        5e-5, "parallel and chunkwise against the recurrence");
  };
  compare("linear_max_abs_diff", ForgetMode::kLinear, {});
  compare("retention_max_abs_diff", ForgetMode::kRetention, Tensor<float>({1}, kGamma));
  compare("gated_max_abs_diff", ForgetMode::kGated,
          Tensor<float>({1, kTokens, 1}, std::span<const float>(selective)));

  // n_t = a_t n_{t-1} + 1
  const auto formula = [](const std::vector<float>& gates) {
    json norms = json::array();
    double norm = 0;
    for (const float gate : gates) norms.push_back(norm = gate * norm + 1);
    return norms;
  };
  const std::vector<float> open(kTokens, 1.0f), constant(kTokens, kGamma);
  result.near("linear_state_norm", state_norms(open), formula(open), 1e-5, "grows with every token");
  result.near("retention_state_norm", state_norms(constant), formula(constant), 1e-5,
              "towards 1/(1 - 0.9) = 10");
  result.near("gated_state_norm", state_norms(selective), formula(selective), 1e-5,
              "rises where a gate is open, 0.95, and falls after");
  return result;
}

DemoResult demo_reductions(const DemoOptions&) {
  constexpr size_t kTokens = 40;
  const Shape shape = {1, kTokens, 1, kDim}, scalars = {1, kTokens, 1};
  const Tensor<float> q = normal(shape, 0), k = unit_rows(normal(shape, 1)), v = normal(shape, 2);
  const Tensor<float> beta = uniform(scalars, 3, 0, 1), alpha = uniform(scalars, 4, 0.7, 1);
  const Tensor<float> ones(scalars, 1.0f), channel_ones(shape, 1.0f), channel_gamma(shape, kGamma);
  Values x;
  const auto q_ = x(q), k_ = x(k), v_ = x(v), beta_ = x(beta);
  // (Q Kᵀ ⊙ tril) V, and its diagonal alone.
  Tensor<float> masked(shape, 0.0f), diagonal(shape, 0.0f);
  for (size_t t = 0; t < kTokens; ++t) {
    for (size_t s = 0; s <= t; ++s) {
      float score = 0;
      for (size_t i = 0; i < kDim; ++i) score += row(q, t)[i] * row(k, s)[i];
      for (size_t i = 0; i < kDim; ++i) masked[t * kDim + i] += score * row(v, s)[i];
      for (size_t i = 0; s == t && i < kDim; ++i) diagonal[t * kDim + i] = score * row(v, s)[i];
    }
  }
  DemoResult result;
  const auto holds = [&](const char* name, const Tensor<float>& a, const Tensor<float>& b, const char* what) {
    result.rounding(name, relative_difference(a, b), 1e-5, what);
  };
  holds("retention_gamma_1", retention(q, k, v, 1), masked, "(Q K^T * tril) V");
  holds("retention_gamma_0", retention(q, k, v, 0), diagonal, "each token sees itself, 0^0 = 1");
  for (const Face face : {Face::kParallel, Face::kChunkwise}) {
    const std::string name = "retention_" + std::string(to_string(face));
    holds(name.c_str(), retention(q, k, v, kGamma, face), retention(q, k, v, kGamma),
          "against the recurrence");
  }
  result.near("multiscale_decays", list(multiscale_decays<float>(4).values()),
              {0.9688, 0.9844, 0.9922, 0.9961}, 5e-5, "one per head, 1 - 2^(-5-h)");
  const Tensor<float> gate =
      gla_gate(x(normal({kTokens, kDim}, 5)), x(normal({kDim, 2}, 6)), x(normal({2, kDim}, 7)), 1).value();
  const auto [least, most] = std::minmax_element(gate.values().begin(), gate.values().end());
  result.exact("gla_gate_in_0_1", *least > 0 && *most <= 1, true, "low rank, then a sigmoid");
  holds("gla_alpha_gamma", gla(q_, k_, v_, x(channel_gamma)).o.value(), retention(q, k, v, kGamma),
        "retention");
  holds("gla_alpha_1", gla(q_, k_, v_, x(channel_ones)).o.value(), masked, "linear attention");
  const Tensor<float> delta = delta_rule(q_, k_, v_, beta_).o.value();
  holds("gated_delta_alpha_1", gated_delta_rule(q_, k_, v_, x(ones), beta_).o.value(), delta, "DeltaNet");
  const Tensor<float> gated = gated_delta_rule(q_, k_, v_, x(alpha), beta_).o.value();
  holds("kda_equal_channels",
        kda(q_, k_, v_, mul(x(channel_ones), x(alpha.reshape({1, kTokens, 1, 1}))), beta_).o.value(), gated,
        "Gated DeltaNet");
  // b ⊙ delta(Q, K, V / b), b the running product of the gates.
  Tensor<float> b({1, kTokens, 1, 1});
  float product = 1;
  for (size_t t = 0; t < kTokens; ++t) b[t] = product *= alpha[t];
  const auto rescaled = mul(delta_rule(q_, k_, div(v_, x(b)), beta_, {}, with(Face::kParallel)).o, x(b));
  holds("gated_is_rescaled_delta", rescaled.value(), gated,
        "b * delta(Q, K, V/b), b the gates' running product");
  return result;
}

}  // namespace storytape
