// Reported numerical faults that touch the mixers' surroundings, each with its right value.
#include <cmath>

#include "autograd/ops.h"
#include "nn/decay_gate.h"
#include "nn/mixers/delta_rule.h"
#include "nn/mixers/linear_attention.h"
#include "nn/mixers/reference.h"
#include "nn/normalize.h"
#include "tensor/random.h"
#include "tests/catch.h"

using namespace storytape;

namespace {

template <class T>
Tensor<T> normal(const Shape& shape, uint64_t seed) {
  Random random(seed);
  Tensor<T> x(shape);
  for (T& value : x.values()) value = static_cast<T>(random.normal());
  return x;
}

template <class T>
bool all_finite(const Tensor<T>& x) {
  for (size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(x[i])) return false;
  }
  return x.size() > 0;
}

double norm(const Tensor<double>& x) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * x[i];
  return std::sqrt(sum);
}

}  // namespace

TEMPLATE_TEST_CASE("B006 a decay of an overflowing rate and a vanishing step is exact", "", float, double) {
  struct Point {
    double rate, step;
  };
  for (const Point& p :
       {Point{100, -200}, Point{-200, 200}, Point{88.8, -90}, Point{400, 400}, Point{-400, -400}}) {
    Tape<TestType> tape;
    const auto one = [&](double value) {
      return tape.input(Tensor<TestType>({1}, static_cast<TestType>(value)));
    };
    const auto x = one(p.step - 1), A_log = one(p.rate), bias = one(1);
    const auto alpha = decay_gate(x, A_log, bias);
    const double exponent = p.rate + (p.step < -15 ? p.step : std::log(p.step));
    INFO("A_log " << p.rate << ", x + bias " << p.step);
    CHECK(alpha.value()[0] == Approx(std::exp(-std::exp(exponent))).epsilon(1e-4).margin(1e-30));
    if (p.rate == 100 || p.rate == -400) CHECK(alpha.value()[0] == 1);
    if (p.rate == 400) CHECK(alpha.value()[0] == 0);
    tape.backward(alpha);
    CHECK(all_finite(x.grad()));
    CHECK(all_finite(A_log.grad()));
    CHECK(bias.grad()[0] == x.grad()[0]);
  }
}

TEST_CASE("B021 keys that are too long make the delta rule diverge; normalised they can't") {
  constexpr size_t kDim = 4;
  for (const size_t tokens : {64u, 256u}) {
    Tensor<double> k = normal<double>({1, tokens, 1, kDim}, 3);
    for (size_t t = 0; t < tokens; ++t) {
      double sum = 0;
      for (size_t c = 0; c < kDim; ++c) sum += k[t * kDim + c] * k[t * kDim + c];
      for (size_t c = 0; c < kDim; ++c)
        k[t * kDim + c] *= std::sqrt(3 / sum);  // an eigenvalue of -2 at β = 1
    }
    const auto final_state = [&](bool normalised, double beta) {
      Tape<double> tape;
      const NoGrad no_grad(tape);
      const auto keys = tape.constant(k);
      const auto v = tape.constant(normal<double>({1, tokens, 1, kDim}, 4));
      const auto b = tape.constant(Tensor<double>({1, tokens, 1}, beta));
      return delta_rule(v, normalised ? l2_normalize(keys) : keys, v, b).S.value();
    };
    CHECK(norm(final_state(false, 1)) > 1e6);
    for (const double beta : {0.5, 1.0, 1.9}) {
      double bound = 0;
      const Tensor<double> v = normal<double>({1, tokens, 1, kDim}, 4);
      for (size_t t = 0; t < tokens; ++t) {
        double sum = 0;
        for (size_t c = 0; c < kDim; ++c) sum += v[t * kDim + c] * v[t * kDim + c];
        bound += beta * std::sqrt(sum);
      }
      const double size = norm(final_state(true, beta));
      CHECK(size > 0);
      CHECK(size <= bound);
    }
  }
}

// γ^(-t) leaves float at t = 2795.
TEST_CASE("B026 retention's parallel form holds where the inverse power of its decay has overflowed",
          "[slow]") {
  const float gamma = 1 - 0x1p-5f;
  CHECK(std::pow(static_cast<double>(gamma), -2796.0) > 3.4028236e38);
  for (const size_t tokens : {1024u, 2794u, 2796u}) {
    LinearAttentionOptions options;
    options.phi = FeatureMap::kIdentity;
    options.normalise = false;
    std::vector<Tensor<float>> outputs, gradients;
    for (const Face face : {Face::kParallel, Face::kRecurrent}) {
      options.face = face;
      Tape<float> tape;
      const auto q = tape.input(normal<float>({1, tokens, 1, 3}, 1)),
                 k = tape.input(normal<float>({1, tokens, 1, 3}, 2)),
                 v = tape.input(normal<float>({1, tokens, 1, 2}, 3)),
                 g = tape.input(Tensor<float>({1}, gamma));
      const auto result = linear_attention(q, k, v, g, {}, {}, options);
      outputs.push_back(result.o.value());
      const Var<float> ends[] = {result.o};
      const Tensor<float> d_o[] = {normal<float>(result.o.shape(), 4)};
      tape.backward(std::span<const Var<float>>(ends), std::span<const Tensor<float>>(d_o));
      gradients.push_back(k.grad());
      REQUIRE(all_finite(g.grad()));
    }
    REQUIRE(all_finite(outputs[0]));
    for (size_t i = 0; i < outputs[0].size(); ++i) {
      REQUIRE(outputs[0][i] == Approx(outputs[1][i]).epsilon(1e-3).margin(1e-3));
    }
    for (size_t i = 0; i < gradients[0].size(); ++i) {
      REQUIRE(gradients[0][i] == Approx(gradients[1][i]).epsilon(1e-3).margin(1e-3));
    }
  }
}
