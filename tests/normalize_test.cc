// Unit length, per-head normalisation and the gates at the places where they may go wrong.
#include "nn/normalize.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "nn/gates.h"
#include "tests/error_message.h"
#include "tests/kernel_testing.h"

namespace storytape {
namespace {

constexpr L2Mode kModes[] = {L2Mode::kSqrtEps, L2Mode::kClamp};

template <class T>
struct Pair {
  Tensor<T> y, dx;
};

// f(x) and the gradient to x under `dy`.
template <class T, class F>
Pair<T> value_and_gradient(const Tensor<T>& x, const Tensor<T>& dy, F f) {
  Tape<T> tape;
  const Var<T> in = tape.input(x);
  const Var<T> y = f(in);
  const Tensor<T> value = y.value();
  tape.backward(std::span<const Var<T>>(&y, 1), std::span<const Tensor<T>>(&dy, 1));
  return {value, in.grad()};
}

// Rows of 3: zeros, 1e-20, 1e-4, and one of length 3.
template <class T>
Tensor<T> keys() {
  return Tensor<T>({4, 3}, {0, 0, 0, T{1e-20f}, 0, T{-1e-20f}, T{1e-4f}, T{1e-4f}, T{1e-4f}, 1, 2, -2});
}

template <class T>
void check_zero_keys() {
  constexpr double kEps = 1e-6;
  const Tensor<T> x = keys<T>(), dy({4, 3}, {1, -2, 3, 1, -2, 3, 1, -2, 3, 1, -2, 3});
  for (const L2Mode mode : kModes) {
    INFO((mode == L2Mode::kClamp ? "clamp" : "under the root") << ", " << sizeof(T) << " bytes");
    const Pair<T> r = value_and_gradient(x, dy, [&](Var<T> in) { return l2_normalize(in, mode, kEps); });
    for (size_t row = 0; row < 4; ++row) {
      double squares = 0, along = 0;
      for (size_t i = 0; i < 3; ++i) squares += static_cast<double>(x[row * 3 + i] * x[row * 3 + i]);
      const bool clamped = mode == L2Mode::kClamp && std::sqrt(squares) < kEps;
      const double length = clamped                  ? kEps
                            : mode == L2Mode::kClamp ? std::sqrt(squares)
                                                     : std::sqrt(squares + kEps);
      for (size_t i = 0; i < 3; ++i) {
        const double want = static_cast<double>(x[row * 3 + i]) / length;
        CHECK(test::close(r.y[row * 3 + i], want, 1e-6));
        along += want * static_cast<double>(dy[i]);
      }
      for (size_t i = 0; i < 3; ++i) {
        const double y = static_cast<double>(x[row * 3 + i]) / length;
        const double want = (static_cast<double>(dy[i]) - (clamped ? 0 : y * along)) / length;
        // Of the length of the row's gradient.
        CHECK(std::abs(static_cast<double>(r.dx[row * 3 + i]) - want) <= 2e-6 / length);
      }
    }
    // The row of zeros: exactly zeros, and I/√ε or I/ε.
    for (size_t i = 0; i < 3; ++i) {
      CHECK(r.y[i] == 0);
      const double slope = mode == L2Mode::kClamp ? 1e6 : 1e3;
      CHECK(static_cast<double>(r.dx[i]) == Approx(slope * static_cast<double>(dy[i])).epsilon(1e-6));
    }
  }
}

template <class T>
void check_extremes(T large, T small) {
  for (const L2Mode mode : kModes) {
    const Tensor<T> x({2, 4}, {large, -large, large, large, 3, 0, 4, 0});
    const Tensor<T> dy({2, 4}, {1, 1, 1, 1, 0, 0, 1, 0});
    const Pair<T> r = value_and_gradient(x, dy, [&](Var<T> in) { return l2_normalize(in, mode, 1e-30); });
    for (size_t i = 0; i < 4; ++i) {
      CHECK(test::close(r.y[i], i == 1 ? -0.5L : 0.5L, 1e-6));
      CHECK(std::isfinite(r.dx[i]));
    }
    CHECK(test::close(r.y[4], 0.6L, 1e-6));
    // Squares that vanish: as long as ε is small beside them, or is no square.
    const double eps = mode == L2Mode::kClamp ? static_cast<double>(small) / 4 : 1e-37;
    const Pair<T> tiny =
        value_and_gradient(Tensor<T>({1, 4}, {small, small, -small, small}), Tensor<T>({1, 4}, {1, 1, 1, 1}),
                           [&](Var<T> in) { return l2_normalize(in, mode, eps); });
    if (mode == L2Mode::kClamp) CHECK(test::close(tiny.y[0], 0.5L, 1e-6));
    for (const T d : tiny.dx.to_vector()) CHECK(std::isfinite(d));
  }
}

}  // namespace

TEST_CASE("B023 a zero key gives zero and a finite gradient, in both modes, on every target") {
  test::on_every_target([] {
    check_zero_keys<float>();
    check_zero_keys<double>();
  });
}

TEST_CASE("rows whose squares overflow or vanish are brought to unit length") {
  test::on_every_target([] {
    check_extremes<float>(1e30f, 1e-25f);
    check_extremes<double>(1e200, 1e-25);
  });
}

TEST_CASE("unit length at every row length, on every target, and NaN stays") {
  test::on_every_target([] {
    for (const size_t n : test::kLengths) {
      if (n == 0) continue;
      const test::Guarded<float> values = test::random_values<float>(2 * n, n);
      const Tensor<float> x({2, n}, std::span<const float>(values.data(), 2 * n));
      for (const L2Mode mode : kModes) {
        const Tensor<float> y = l2_normalize(x, mode, 1e-12);
        double squares = 0;
        for (size_t i = 0; i < n; ++i)
          squares += static_cast<double>(y[n + i]) * static_cast<double>(y[n + i]);
        CHECK(squares == Approx(1).epsilon(1e-5));
      }
    }
    Tensor<float> x({2, 3}, 1.0f);
    x[4] = std::numeric_limits<float>::quiet_NaN();
    for (const L2Mode mode : kModes) {
      const Tensor<float> y = l2_normalize(std::as_const(x), mode);
      CHECK(std::isnan(y[3]));
      CHECK_FALSE(std::isnan(y[0]));
    }
  });
}

TEST_CASE("B029 group norm with a large offset keeps its digits") {
  test::on_every_target([] {
    const Tensor<float> x({1, 8}, {40000, 40001, 40002, 40003, 10000, 10000, 10000, 10000});
    const Tensor<float> dy({1, 8}, {1, 2, 3, 5, 1, 2, 3, 5});
    const Pair<float> r = value_and_gradient(x, dy, [](Var<float> in) { return group_norm(in, 2); });
    const double want[] = {-1.3416354, -0.4472118, 0.4472118, 1.3416354, 0, 0, 0, 0};
    for (size_t i = 0; i < 8; ++i) CHECK(test::close(r.y[i], static_cast<long double>(want[i]), 1e-6));
    for (const float d : r.dx.to_vector()) CHECK(std::isfinite(d));
  });
}

TEST_CASE("B030 group norm of heads of width 1 is 0, with gradient 0, exactly") {
  test::on_every_target([] {
    const Tensor<float> x({2, 3}, {1e6f, -3, 0, 123, 1e-6f, 7});
    const Tensor<float> dy({2, 3}, {1, -2, 3, 0.5f, 100, 1e6f});
    const Pair<float> r = value_and_gradient(x, dy, [](Var<float> in) { return group_norm(in, 3); });
    for (const float y : r.y.to_vector()) CHECK(y == 0);
    for (const float d : r.dx.to_vector()) CHECK(d == 0);
  });
}

TEST_CASE("the swish gate is silu(g) x at every length, on every target, and bounded far out") {
  test::on_every_target([] {
    for (const size_t n : test::kLengths) {
      const test::Guarded<float> x = test::random_values<float>(n, n),
                                 g = test::random_values<float>(n, n + 1, -9, 9);
      const Tensor<float> y = swish_gate(Tensor<float>({n}, std::span<const float>(x.data(), n)),
                                         Tensor<float>({n}, std::span<const float>(g.data(), n)));
      std::vector<long double> want;
      for (size_t i = 0; i < n; ++i) {
        const long double gate = g[i];
        want.push_back(x[i] * gate / (1 + std::exp(-gate)));
      }
      CHECK(test::all_close(y.data(), want, 1e-6));
    }
    const Tensor<float> far =
        swish_gate(Tensor<float>({4}, {2, 2, 2, 2}), Tensor<float>({4}, {1e4f, -1e4f, -1e30f, 0}));
    CHECK(far[0] == 2e4f);
    CHECK(far[1] == 0);
    CHECK(far[2] == 0);
    CHECK(far[3] == 0);
  });
}

TEST_CASE("gated linear attention's gate is finite and in [0, 1] for every input, its gradient too") {
  // z = x: rank 1, weights 1.
  const Tensor<float> x({7, 1}, {-1e4f, -300, -1, 0, 1, 300, 1e4f});
  for (const double tau : {1.0, 16.0}) {
    Tape<float> tape;
    const Var<float> in = tape.input(x), one = tape.constant(Tensor<float>({1, 1}, 1.0f));
    const Var<float> alpha = gla_gate(in, one, one, tau);
    const Tensor<float> value = alpha.value(), ones({7, 1}, 1.0f);
    const Tensor<float> log_alpha = gla_log_gate(in, one, one, tau).value();
    tape.backward(std::span<const Var<float>>(&alpha, 1), std::span<const Tensor<float>>(&ones, 1));
    for (size_t i = 0; i < 7; ++i) {
      const long double z = x[i];
      const long double log_sigmoid = z < 0 ? z - std::log1p(std::exp(z)) : -std::log1p(std::exp(-z));
      CHECK(test::close(log_alpha[i], log_sigmoid / static_cast<long double>(tau), 1e-6));
      CHECK(test::close(value[i], std::exp(log_sigmoid / static_cast<long double>(tau)), 1e-6));
      CHECK(std::isfinite(in.grad()[i]));
      CHECK(in.grad()[i] >= 0);
    }
    CHECK(value[6] == 1);
    CHECK(value[0] == 0);
  }
}

TEST_CASE("multiscale decays are 1 - 2^(-5-h)") {
  const Tensor<float> gamma = multiscale_decays<float>(4);
  CHECK(gamma.to_vector() == std::vector<float>{0.96875f, 0.984375f, 0.9921875f, 0.99609375f});
  // Horizons 1/(1 - γ) of 32, 64, 128, 256 tokens.
  for (size_t h = 0; h < 4; ++h) CHECK(1 / (1 - gamma[h]) == static_cast<float>(size_t{32} << h));
}

TEST_CASE("norms and gates that don't fit are refused by name") {
  const auto refuse = [](auto call, const std::string& words) {
    const std::string message = test::message_of(call);
    INFO(message);
    CHECK(message.find(words) != std::string::npos);
  };
  Tape<float> tape;
  const Var<float> x = tape.input(Tensor<float>({2, 10}, 1.0f));
  refuse([&] { group_norm(x, 3); }, "the last axis of [2, 10] can't be cut into 3 equal groups");
  refuse([&] { group_norm(x, 0); }, "can't be cut into 0 equal groups");
  refuse([&] { l2_normalize(x, L2Mode::kClamp, 0); }, "epsilon is 0, wanted a positive number");
  refuse([&] { l2_normalize(x, L2Mode::kSqrtEps, 1e-60); }, "epsilon is 1e-60");  // 0 as a float
  refuse([&] { l2_normalize(tape.input(Tensor<float>(Shape{}, 1.0f))); }, "wants an axis");
  refuse(
      [&] {
        swish_gate(x, tape.input(Tensor<float>({10, 2}, 1.0f)));
      },
      "the gate is [10, 2], wanted x's shape [2, 10]");
  const Var<float> w = tape.input(Tensor<float>({10, 1}, 1.0f)), v = tape.input(Tensor<float>({1, 4}, 1.0f));
  refuse([&] { gla_gate(x, w, v, 0); }, "the temperature is 0, wanted a positive number");
}

}  // namespace storytape
