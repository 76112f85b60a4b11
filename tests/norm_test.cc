// Layer norm and RMS norm on every SIMD target.
#include "tensor/norm.h"

#include <vector>

#include "tensor/reduce.h"
#include "tests/kernel_testing.h"

namespace storytape::test {
namespace {

using Real = long double;

struct Plain {
  std::vector<Real> y, dx, dgamma, dbeta, mean, rstd;
};

// Both norms from their formulas; RMS norm is the one without centring.
template <class T>
Plain plain_norm(const Guarded<T>& x, const T* gamma, const T* beta, const Guarded<T>& dy, Real eps,
                 bool centre, size_t rows, size_t n) {
  Plain p;
  p.dgamma.assign(n, 0);
  p.dbeta.assign(n, 0);
  for (size_t r = 0; r < rows; ++r) {
    Real mean = 0, variance = 0;
    for (size_t i = 0; centre && i < n; ++i) mean += Real{x[r * n + i]} / static_cast<Real>(n);
    for (size_t i = 0; i < n; ++i)
      variance += (x[r * n + i] - mean) * (x[r * n + i] - mean) / static_cast<Real>(n);
    const Real rstd = 1 / std::sqrt(variance + eps);
    Real mean_g = 0, mean_gh = 0;
    for (size_t i = 0; i < n; ++i) {
      const Real h = (x[r * n + i] - mean) * rstd;
      const Real g = dy[r * n + i] * (gamma ? Real{gamma[i]} : 1);
      p.y.push_back(h * (gamma ? Real{gamma[i]} : 1) + (beta ? Real{beta[i]} : 0));
      if (centre) mean_g += g / static_cast<Real>(n);
      mean_gh += g * h / static_cast<Real>(n);
      p.dgamma[i] += dy[r * n + i] * h;
      p.dbeta[i] += dy[r * n + i];
    }
    for (size_t i = 0; i < n; ++i) {
      const Real h = (x[r * n + i] - mean) * rstd;
      const Real g = dy[r * n + i] * (gamma ? Real{gamma[i]} : 1);
      p.dx.push_back(rstd * (g - mean_g - h * mean_gh));
    }
    p.mean.push_back(mean);
    p.rstd.push_back(rstd);
  }
  return p;
}

template <class T>
void check_layer_norm(size_t rows, size_t n, bool affine, double offset) {
  const T eps = static_cast<T>(1e-5);
  const Guarded<T> x = random_values<T>(rows * n, 1 + n, offset - 2, offset + 2);
  const Guarded<T> dy = random_values<T>(rows * n, 2 + n);
  const Guarded<T> gamma = random_values<T>(n, 3 + n), beta = random_values<T>(n, 4 + n);
  const T* g = affine ? gamma.data() : nullptr;
  const T* b = affine ? beta.data() : nullptr;
  const Plain want = plain_norm(x, g, b, dy, Real{eps}, true, rows, n);
  Guarded<T> y(rows * n), mean(rows), rstd(rows), dx(rows * n), dgamma(n, T{1}), dbeta(n, T{-1});
  Guarded<T> sum = random_values<T>(rows * n, 5);
  std::vector<Real> want_sum, want_dgamma, want_dbeta;
  for (size_t i = 0; i < rows * n; ++i) want_sum.push_back(sum[i] + want.dx[i]);
  for (size_t i = 0; i < n; ++i) want_dgamma.push_back(1 + want.dgamma[i]);
  for (size_t i = 0; i < n; ++i) want_dbeta.push_back(-1 + want.dbeta[i]);

  layer_norm(x.data(), g, b, eps, y.data(), mean.data(), rstd.data(), rows, n);
  layer_norm_backward(x.data(), g, mean.data(), rstd.data(), dy.data(), dx.data(), false, dgamma.data(),
                      dbeta.data(), rows, n);
  layer_norm_backward(x.data(), g, mean.data(), rstd.data(), dy.data(), sum.data(), true, nullptr, nullptr,
                      rows, n);
  INFO(rows << " rows of " << n << (affine ? ", affine" : "") << ", offset " << offset);
  // Two values of nearly equal size make rstd large and the row ill conditioned.
  const double tolerance = (n == 2 ? 400 : 40) * kEpsilon<T>;
  CHECK(all_close(y.data(), want.y, tolerance));
  CHECK(all_close(rstd.data(), want.rstd, tolerance));
  CHECK(all_close(mean.data(), want.mean, tolerance));
  CHECK(all_close(dx.data(), want.dx, tolerance));
  CHECK(all_close(sum.data(), want_sum, tolerance));
  CHECK(all_close(dgamma.data(), want_dgamma, tolerance));
  CHECK(all_close(dbeta.data(), want_dbeta, tolerance));
  CHECK((y.intact() && mean.intact() && rstd.intact() && dx.intact() && sum.intact()));
  CHECK((dgamma.intact() && dbeta.intact()));

  Guarded<T> in_place = x, gradient = dy, dgamma2(n, T{1}), dbeta2(n, T{-1});
  layer_norm(in_place.data(), g, b, eps, in_place.data(), nullptr, nullptr, rows, n);
  layer_norm_backward(x.data(), g, mean.data(), rstd.data(), gradient.data(), gradient.data(), false,
                      dgamma2.data(), dbeta2.data(), rows, n);
  CHECK(same_bits(in_place.data(), y.data(), rows * n));
  CHECK(same_bits(gradient.data(), dx.data(), rows * n));
  CHECK(same_bits(dgamma2.data(), dgamma.data(), n));
  Guarded<T> dgamma3(n, T{1}), dbeta3(n, T{-1});
  layer_norm_backward(x.data(), g, mean.data(), rstd.data(), dy.data(), static_cast<T*>(nullptr), false,
                      dgamma3.data(), dbeta3.data(), rows, n);
  CHECK(same_bits(dgamma3.data(), dgamma.data(), n));
  CHECK(same_bits(dbeta3.data(), dbeta.data(), n));
}

TEST_CASE("layer norm and its gradients match plain code at every width on every target") {
  on_every_target([] {
    for (const size_t n : kLengths) {
      if (n == 0) continue;
      for (const size_t rows : {0, 1, 5}) {
        check_layer_norm<float>(rows, n, true, 0);
        check_layer_norm<double>(rows, n, true, 0);
      }
      check_layer_norm<float>(70, n, false, 0.5);
      check_layer_norm<double>(33, n, false, 0.5);
    }
  });
}

template <class T>
void check_rms_norm(size_t rows, size_t n, bool affine) {
  const T eps = static_cast<T>(1e-6);
  const Guarded<T> x = random_values<T>(rows * n, 11 + n);
  const Guarded<T> dy = random_values<T>(rows * n, 12 + n);
  const Guarded<T> gamma = random_values<T>(n, 13 + n);
  const T* g = affine ? gamma.data() : nullptr;
  const T* none = nullptr;
  const Plain want = plain_norm(x, g, none, dy, Real{eps}, false, rows, n);
  Guarded<T> y(rows * n), rstd(rows), dx(rows * n), dgamma(n, T{1});
  Guarded<T> sum = random_values<T>(rows * n, 15);
  std::vector<Real> want_sum, want_dgamma;
  for (size_t i = 0; i < rows * n; ++i) want_sum.push_back(sum[i] + want.dx[i]);
  for (size_t i = 0; i < n; ++i) want_dgamma.push_back(1 + want.dgamma[i]);

  rms_norm(x.data(), g, eps, y.data(), rstd.data(), rows, n);
  rms_norm_backward(x.data(), g, rstd.data(), dy.data(), dx.data(), false, dgamma.data(), rows, n);
  rms_norm_backward(x.data(), g, rstd.data(), dy.data(), sum.data(), true, nullptr, rows, n);
  INFO(rows << " rows of " << n << (affine ? ", affine" : ""));
  const double tolerance = (n <= 2 ? 400 : 40) * kEpsilon<T>;
  CHECK(all_close(y.data(), want.y, tolerance));
  CHECK(all_close(rstd.data(), want.rstd, tolerance));
  CHECK(all_close(dx.data(), want.dx, tolerance));
  CHECK(all_close(sum.data(), want_sum, tolerance));
  CHECK(all_close(dgamma.data(), want_dgamma, tolerance));
  CHECK((y.intact() && rstd.intact() && dx.intact() && sum.intact() && dgamma.intact()));

  Guarded<T> in_place = x, gradient = dy;
  rms_norm(in_place.data(), g, eps, in_place.data(), nullptr, rows, n);
  rms_norm_backward(x.data(), g, rstd.data(), gradient.data(), gradient.data(), false, nullptr, rows, n);
  CHECK(same_bits(in_place.data(), y.data(), rows * n));
  CHECK(same_bits(gradient.data(), dx.data(), rows * n));
}

TEST_CASE("RMS norm and its gradients match plain code at every width on every target") {
  on_every_target([] {
    for (const size_t n : kLengths) {
      if (n == 0) continue;
      for (const size_t rows : {0, 1, 5}) {
        check_rms_norm<float>(rows, n, true);
        check_rms_norm<double>(rows, n, true);
      }
      check_rms_norm<float>(70, n, false);
      check_rms_norm<double>(33, n, false);
    }
  });
}

TEST_CASE("B029 layer norm of a large offset keeps its digits, forward and backward") {
  on_every_target([] {
    const std::vector<float> x = {40000, 40001, 40002, 40003};
    std::vector<float> y(4);
    layer_norm(x.data(), nullptr, nullptr, 1e-5f, y.data(), nullptr, nullptr, 1, 4);
    const std::vector<double> want = {-1.3416354, -0.4472118, 0.4472118, 1.3416354};
    CHECK(all_close(y.data(), want, 2e-7));

    // Around 2000 the mean itself can't be represented to the digits wanted.
    for (const size_t n : {127, 128, 1000}) check_layer_norm<float>(3, n, true, 2000);
    check_layer_norm<double>(3, 128, true, 2000);
  });
}

template <class T>
void check_constant_row(T value, size_t n) {
  const std::vector<T> x(n, value), gamma(n, T{3}), dy(n, T{2});
  const Guarded<T> beta = random_values<T>(n, 21);
  std::vector<T> y(n), dx(n), dgamma(n), dbeta(n);
  T mean = 0, rstd = 0;
  layer_norm(x.data(), gamma.data(), beta.data(), T(1e-5), y.data(), &mean, &rstd, 1, n);
  layer_norm_backward(x.data(), gamma.data(), &mean, &rstd, dy.data(), dx.data(), false, dgamma.data(),
                      dbeta.data(), 1, n);
  const std::vector<T> want(beta.data(), beta.data() + n);
  INFO(n << " times " << value);
  CHECK(all_close(y.data(), want, 4 * kEpsilon<T>));
  CHECK(all_finite(dx.data(), n));
  CHECK(all_close(dx.data(), std::vector<T>(n, T{0}), 1e-2));
}

TEST_CASE("B029 a constant row gives the bias and a finite gradient") {
  on_every_target([] {
    for (const size_t n : {2, 3, 100, 128}) {
      check_constant_row<float>(1e4f, n);
      check_constant_row<float>(12345.678f, n);
      check_constant_row<float>(0.1f, n);
      check_constant_row<double>(12345.678, n);
    }
  });
}

template <class T>
void check_scaled(T size, T eps) {
  constexpr size_t kSize = 40;
  const Guarded<T> pattern = random_values<T>(kSize, 31);
  Guarded<T> x(kSize);
  for (size_t i = 0; i < kSize; ++i) x[i] = pattern[i] * size;
  const Guarded<T> dy = random_values<T>(kSize, 32);
  for (const bool centre : {true, false}) {
    const T* none = nullptr;
    const Plain want = plain_norm(x, none, none, dy, Real{eps}, centre, 1, kSize);
    Guarded<T> y(kSize), dx(kSize), dgamma(kSize);
    T mean = 0, rstd = 0;
    if (centre) {
      layer_norm(x.data(), none, none, eps, y.data(), &mean, &rstd, 1, kSize);
      layer_norm_backward(x.data(), none, &mean, &rstd, dy.data(), dx.data(), false, dgamma.data(), nullptr,
                          1, kSize);
    } else {
      rms_norm(x.data(), none, eps, y.data(), &rstd, 1, kSize);
      rms_norm_backward(x.data(), none, &rstd, dy.data(), dx.data(), false, dgamma.data(), 1, kSize);
    }
    INFO((centre ? "layer" : "RMS") << " norm of rows of " << size << ", eps " << eps);
    CHECK(ulp_error(rstd, want.rstd[0]) <= 20);
    CHECK(all_close(y.data(), want.y, 40 * kEpsilon<T>));
    CHECK(all_close(dgamma.data(), want.dgamma, 40 * kEpsilon<T>));
    bool right = true;
    for (size_t i = 0; i < kSize; ++i) {
      right = right && std::fabs(dx[i] - want.dx[i]) <= 100 * kEpsilon<T> * std::fabs(want.rstd[0]);
    }
    CHECK(right);
  }
}

TEST_CASE("B029 norms of rows whose squares overflow or vanish") {
  on_every_target([] {
    check_scaled<float>(1e20f, 1e-5f);
    check_scaled<float>(1e36f, 1e-5f);
    check_scaled<float>(1e-25f, 1e-5f);
    check_scaled<float>(1e-25f, 0);
    check_scaled<float>(1e-25f, 1e-33f);
    check_scaled<double>(1e200, 1e-5);
    check_scaled<double>(1e-200, 0);
  });
}

template <class T>
void check_width_one() {
  for (const T gain : {T{0}, T{2}, T{123}}) {
    const std::vector<T> x = {T(1e6), T(-0.1), T(3)};
    const std::vector<T> dy = {T(0.7), T(-0.3), T(1.1)};
    const T beta = T(0.25);
    std::vector<T> y(3), mean(3), rstd(3), dx(3, T{9});
    T dgamma = 0, dbeta = 0;
    layer_norm(x.data(), &gain, &beta, T(1e-5), y.data(), mean.data(), rstd.data(), 3, 1);
    layer_norm_backward(x.data(), &gain, mean.data(), rstd.data(), dy.data(), dx.data(), false, &dgamma,
                        &dbeta, 3, 1);
    CHECK(y == std::vector<T>(3, beta));
    CHECK(dx == std::vector<T>(3, T{0}));
    CHECK(dgamma == T{0});
    CHECK(dbeta == Approx(1.5).epsilon(1e-6));
    std::vector<T> more = {1, 2, 3};
    layer_norm_backward(x.data(), &gain, mean.data(), rstd.data(), dy.data(), more.data(), true, nullptr,
                        nullptr, 3, 1);
    CHECK(more == std::vector<T>{1, 2, 3});
  }
}

TEST_CASE("B030 layer norm of width 1 gives the bias and exactly zero gradients") {
  on_every_target([] {
    check_width_one<float>();
    check_width_one<double>();
  });
}

TEST_CASE("NaN in a row makes the row NaN and leaves the others alone") {
  on_every_target([] {
    Guarded<float> x = random_values<float>(3 * 20, 41), y(3 * 20), z(3 * 20);
    x[25] = std::numeric_limits<float>::quiet_NaN();
    layer_norm(x.data(), nullptr, nullptr, 1e-5f, y.data(), nullptr, nullptr, 3, 20);
    rms_norm(x.data(), nullptr, 1e-5f, z.data(), nullptr, 3, 20);
    bool right = true;
    for (size_t i = 0; i < 60; ++i) {
      const bool bad = i / 20 == 1;
      right = right && std::isnan(y[i]) == bad && std::isnan(z[i]) == bad;
    }
    CHECK(right);
  });
}

}  // namespace
}  // namespace storytape::test
