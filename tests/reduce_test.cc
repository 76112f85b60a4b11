// Sums, maxima, softmax and log-sum-exp on every SIMD target.
#include "tensor/reduce.h"

#include <numeric>
#include <vector>

#include "tests/kernel_testing.h"

namespace storytape::test {
namespace {

using Real = long double;

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <class T>
constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();

template <class T>
void check_sums(size_t n) {
  const Guarded<T> a = random_values<T>(n, 1 + n);
  const Guarded<T> b = random_values<T>(n, 2 + n);
  Real want_sum = 0, want_dot = 0, want_squares = 0, magnitude = 0;
  for (size_t i = 0; i < n; ++i) {
    want_sum += a[i];
    want_dot += Real{a[i]} * b[i];
    want_squares += Real{a[i]} * a[i];
    magnitude += std::fabs(Real{a[i]}) * 2;
  }
  // Blocks and 64 running sums: the error grows with the depth of the tree, not with n.
  const double allowed = 40 * kEpsilon<T> * static_cast<double>(magnitude) / 2;
  INFO(n << " values");
  CHECK(std::fabs(sum(a.data(), n) - want_sum) <= allowed);
  CHECK(std::fabs(dot(a.data(), b.data(), n) - want_dot) <= 2 * allowed);
  CHECK(std::fabs(sum_of_squares(a.data(), n) - want_squares) <= 1e-13L * want_squares);
}

TEST_CASE("sum, dot and sum_of_squares match plain code at every length on every target") {
  on_every_target([] {
    for (const size_t n : kLengths) {
      check_sums<float>(n);
      check_sums<double>(n);
    }
    for (const size_t n : {4095, 4096, 4097, 12288, 100003}) {
      check_sums<float>(n);
      check_sums<double>(n);
    }
  });
}

TEST_CASE("a sum has the same bits on every target and for every alignment") {
  constexpr size_t kSize = 20001;
  const Guarded<float> x = random_values<float>(kSize, 5, -1, 1);
  std::vector<float> copy(kSize + 1);
  std::copy_n(x.data(), kSize, copy.data() + 1);
  const float expected = sum(x.data(), kSize);
  std::vector<float> columns(7), expected_columns(7);
  sum_middle(x.data(), expected_columns.data(), 1, kSize / 7, 7);
  on_every_target([&] {
    CHECK(sum(x.data(), kSize) == expected);
    CHECK(sum(copy.data() + 1, kSize) == expected);
    sum_middle(x.data(), columns.data(), 1, kSize / 7, 7);
    CHECK(columns == expected_columns);
  });
}

TEST_CASE("long sums of floats keep their digits") {
  on_every_target([] {
    const std::vector<float> x(10'000'000, 0.1f);
    CHECK(sum(x.data(), x.size()) == Approx(0.1f * 1e7).epsilon(1e-6));
    std::vector<float> y(2);
    sum_middle(x.data(), y.data(), 1, x.size() / 2, 2);
    CHECK(y[0] == Approx(0.1f * 5e6).epsilon(1e-5));
    CHECK(y[1] == y[0]);
  });
}

TEST_CASE("sum_of_squares of large floats does not overflow") {
  on_every_target([] {
    const std::vector<float> x(100, 1e20f);
    CHECK(std::sqrt(sum_of_squares(x.data(), x.size())) == Approx(1e21).epsilon(1e-6));
  });
}

template <class T>
void check_finite() {
  for (const size_t n : kLengths) {
    Guarded<T> x = random_values<T>(n, 9, -1, 1);
    if (n > 2) x[1] = std::numeric_limits<T>::max();
    CHECK(all_finite(x.data(), n));
    for (size_t i = 0; i < n; i += 1 + n / 20) {
      for (const T bad : {kInfinity<T>, -kInfinity<T>, kNaN<T>}) {
        const T good = std::exchange(x[i], bad);
        CHECK_FALSE(all_finite(x.data(), n));
        x[i] = good;
      }
    }
  }
}

TEST_CASE("all_finite finds one bad value wherever it stands") {
  on_every_target([] {
    check_finite<float>();
    check_finite<double>();
  });
}

template <class T>
void check_middle(size_t outer, size_t m, size_t inner) {
  const Guarded<T> x = random_values<T>(outer * m * inner, 3 + outer * m + inner);
  Guarded<T> sums(outer * inner), maxima(outer * inner);
  Guarded<T> more = random_values<T>(outer * inner, 4);
  std::vector<Real> want_sums, want_more;
  std::vector<T> want_maxima;
  for (size_t o = 0; o < outer; ++o) {
    for (size_t j = 0; j < inner; ++j) {
      Real total = 0;
      T max = -kInfinity<T>;
      for (size_t k = 0; k < m; ++k) {
        total += x[(o * m + k) * inner + j];
        max = std::max(max, x[(o * m + k) * inner + j]);
      }
      want_sums.push_back(total);
      want_more.push_back(more[o * inner + j] + total);
      want_maxima.push_back(max);
    }
  }
  sum_middle(x.data(), sums.data(), outer, m, inner);
  sum_middle(x.data(), more.data(), outer, m, inner, true);
  max_middle(x.data(), maxima.data(), outer, m, inner);
  INFO("[" << outer << ", " << m << ", " << inner << "]");
  CHECK(all_close(sums.data(), want_sums, 100 * kEpsilon<T>));
  CHECK(all_close(more.data(), want_more, 100 * kEpsilon<T>));
  CHECK(same_bits(maxima.data(), want_maxima.data(), outer * inner));
  CHECK((sums.intact() && more.intact() && maxima.intact()));
}

TEST_CASE("sums and maxima over an axis match plain code on every target") {
  on_every_target([] {
    for (const size_t n : kLengths) {
      for (const auto& [outer, inner] :
           {std::pair<size_t, size_t>{1, 1}, {3, 1}, {2, 5}, {1, 33}, {0, 4}, {2, 0}}) {
        check_middle<float>(outer, n, inner);
        check_middle<double>(outer, n, inner);
      }
      check_middle<float>(2, 3, n);
      check_middle<double>(2, 3, n);
    }
  });
}

template <class T>
void check_nan_maximum() {
  for (const size_t n : {1, 5, 16, 40}) {
    for (size_t bad = 0; bad < n; ++bad) {
      std::vector<T> x(n, T{1});
      x[bad] = kNaN<T>;
      T row = 0;
      max_middle(x.data(), &row, 1, n, 1);
      std::vector<T> columns(n), twice(2 * n, T{3});
      twice[bad] = kNaN<T>;
      max_middle(twice.data(), columns.data(), 1, 2, n);
      CHECK(std::isnan(row));
      CHECK(argmax(x.data(), n) == bad);
      bool right = true;
      for (size_t j = 0; j < n; ++j) right = right && std::isnan(columns[j]) == (j == bad);
      CHECK(right);
    }
  }
}

TEST_CASE("a maximum over NaN is NaN") {
  on_every_target([] {
    check_nan_maximum<float>();
    check_nan_maximum<double>();
  });
}

TEST_CASE("a maximum over -inf alone is -inf") {
  on_every_target([] {
    for (const size_t n : kLengths) {
      if (n == 0) continue;
      const std::vector<float> x(n, -kInfinity<float>);
      float y = 0;
      max_middle(x.data(), &y, 1, n, 1);
      CHECK(y == -kInfinity<float>);
      CHECK(argmax(x.data(), n) == 0);
    }
  });
}

TEST_CASE("B058 the first of equal maxima gets the gradient, and argmax takes the lowest index") {
  on_every_target([] {
    for (const size_t n : {5, 70000}) {
      const std::vector<float> x(n, 2.5f);
      std::vector<float> dx(n, -1.0f);
      const float dy = 3;
      max_middle_backward(x.data(), &dy, dx.data(), 1, n, 1, false);
      CHECK(dx[0] == 3.0f);
      CHECK(std::all_of(dx.begin() + 1, dx.end(), [](float v) { return v == 0.0f; }));
      CHECK(argmax(x.data(), n) == 0);
    }
    std::vector<double> x = {1, 7, 7, 2, 7, 3};  // [3, 2]: the columns' maxima are at rows 1 (second 7) and 0
    std::vector<double> dx(6, 1.0);
    const std::vector<double> dy = {10, 20};
    max_middle_backward(x.data(), dy.data(), dx.data(), 1, 3, 2, true);
    CHECK(dx == std::vector<double>{1, 21, 11, 1, 1, 1});
    CHECK(argmax(x.data(), 6) == 1);
  });
}

TEST_CASE("reductions of tensors: axes, kept dimensions, refusals") {
  const Tensor<float> x({2, 3}, {1, 2, 3, 4, 5, 9});
  CHECK(sum_axis(x, 0).to_vector() == std::vector<float>{5, 7, 12});
  CHECK(sum_axis(x, 1).to_vector() == std::vector<float>{6, 18});
  CHECK(sum_axis(x, 1, true).shape() == Shape{2, 1});
  CHECK(mean_axis(x, 1).to_vector() == std::vector<float>{2, 6});
  CHECK(max_axis(x, 0).to_vector() == std::vector<float>{4, 5, 9});
  CHECK(sum_all(x).item() == 24.0f);
  CHECK(mean_all(x).item() == 4.0f);
  CHECK(max_all(x).item() == 9.0f);
  CHECK(sum_all(x).rank() == 0);
  CHECK(sum_axis(Tensor<float>({0, 3}), 0).to_vector() == std::vector<float>{0, 0, 0});
  CHECK(sum_all(Tensor<float>({0})).item() == 0.0f);
  CHECK_THROWS_AS(sum_axis(x, 2), Error);
  CHECK_THROWS_AS(mean_axis(Tensor<float>({2, 0}), 1), Error);
  CHECK_THROWS_AS(max_all(Tensor<float>({0})), Error);
}

template <class T>
std::vector<Real> plain_softmax(const T* x, size_t n) {
  const T max = *std::max_element(x, x + n);
  std::vector<Real> y;
  for (size_t i = 0; i < n; ++i) y.push_back(std::exp(Real{x[i]} - max));
  const Real total = std::accumulate(y.begin(), y.end(), Real{0});
  for (Real& v : y) v /= total;
  return y;
}

template <class T>
void check_softmax(size_t rows, size_t n) {
  const Guarded<T> x = random_values<T>(rows * n, 6 + n, -6, 6);
  const Guarded<T> dy = random_values<T>(rows * n, 7 + n);
  const Guarded<T> dlse = random_values<T>(rows, 8 + n);
  Guarded<T> y(rows * n), dx(rows * n), lse(rows), dx_lse(rows * n);
  Guarded<T> sum = random_values<T>(rows * n, 9 + n), sum_lse = sum;
  std::vector<Real> want_y, want_dx, want_sum, want_lse, want_dx_lse, want_sum_lse;
  for (size_t r = 0; r < rows; ++r) {
    const std::vector<Real> p = n ? plain_softmax(x.data() + r * n, n) : std::vector<Real>();
    Real inner = 0, total = 0;
    for (size_t i = 0; i < n; ++i) {
      inner += p[i] * dy[r * n + i];
      total += std::exp(Real{x[r * n + i]});
    }
    want_lse.push_back(std::log(total));
    for (size_t i = 0; i < n; ++i) {
      want_y.push_back(p[i]);
      want_dx.push_back(p[i] * (dy[r * n + i] - inner));
      want_sum.push_back(sum[r * n + i] + want_dx.back());
      want_dx_lse.push_back(p[i] * dlse[r]);
      want_sum_lse.push_back(sum_lse[r * n + i] + want_dx_lse.back());
    }
  }
  softmax(x.data(), y.data(), rows, n);
  softmax_backward(y.data(), dy.data(), dx.data(), rows, n, false);
  softmax_backward(y.data(), dy.data(), sum.data(), rows, n, true);
  log_sum_exp(x.data(), lse.data(), rows, n);
  log_sum_exp_backward(x.data(), lse.data(), dlse.data(), dx_lse.data(), rows, n, false);
  log_sum_exp_backward(x.data(), lse.data(), dlse.data(), sum_lse.data(), rows, n, true);
  INFO(rows << " rows of " << n);
  CHECK(all_close(y.data(), want_y, 4 * kEpsilon<T>));
  CHECK(all_close(dx.data(), want_dx, 8 * kEpsilon<T>));
  CHECK(all_close(sum.data(), want_sum, 8 * kEpsilon<T>));
  if (n > 0) CHECK(all_close(lse.data(), want_lse, 4 * kEpsilon<T>));
  CHECK(all_close(dx_lse.data(), want_dx_lse, 16 * kEpsilon<T>));
  CHECK(all_close(sum_lse.data(), want_sum_lse, 16 * kEpsilon<T>));
  CHECK((y.intact() && dx.intact() && sum.intact() && lse.intact() && dx_lse.intact() && sum_lse.intact()));

  Guarded<T> in_place = x, gradient = dy;
  softmax(in_place.data(), in_place.data(), rows, n);
  softmax_backward(y.data(), gradient.data(), gradient.data(), rows, n, false);
  CHECK(same_bits(in_place.data(), y.data(), rows * n));
  CHECK(same_bits(gradient.data(), dx.data(), rows * n));
}

TEST_CASE("softmax and log_sum_exp match plain code at every length on every target") {
  on_every_target([] {
    for (const size_t n : kLengths) {
      check_softmax<float>(3, n);
      check_softmax<double>(3, n);
    }
  });
}

template <class T>
void check_masked_row() {
  for (const size_t n : {1, 3, 16, 40}) {
    Guarded<T> x = random_values<T>(3 * n, 15), without = x;
    std::fill_n(x.data() + n, n, -kInfinity<T>);
    const Guarded<T> dy = random_values<T>(3 * n, 16);
    Guarded<T> y(3 * n, kNaN<T>), dx(3 * n, kNaN<T>), lse(3), dx_lse(3 * n, kNaN<T>), other(3 * n),
        other_dx(3 * n);
    softmax(x.data(), y.data(), 3, n);
    softmax_backward(y.data(), dy.data(), dx.data(), 3, n, false);
    log_sum_exp(x.data(), lse.data(), 3, n);
    log_sum_exp_backward(x.data(), lse.data(), dy.data(), dx_lse.data(), 3, n, false);
    softmax(without.data(), other.data(), 3, n);
    softmax_backward(other.data(), dy.data(), other_dx.data(), 3, n, false);
    bool zero = true;
    for (size_t i = n; i < 2 * n; ++i) zero = zero && y[i] == 0 && dx[i] == 0 && dx_lse[i] == 0;
    CHECK(zero);
    CHECK(lse[1] == -kInfinity<T>);
    for (const size_t row : {0, 2}) {
      CHECK(same_bits(y.data() + row * n, other.data() + row * n, n));
      CHECK(same_bits(dx.data() + row * n, other_dx.data() + row * n, n));
    }
  }
}

TEST_CASE("B028 a fully masked row gives zeros and zero gradient, the other rows keep their bits") {
  on_every_target([] {
    check_masked_row<float>();
    check_masked_row<double>();
  });
}

template <class T>
T lse_of(std::vector<T> x) {
  T y = 0;
  log_sum_exp(x.data(), &y, 1, x.size());
  return y;
}

template <class T>
std::vector<T> softmax_of(std::vector<T> x) {
  softmax(x.data(), x.data(), 1, x.size());
  return x;
}

template <class T>
void check_huge_logits() {
  CHECK(lse_of<T>({4, 5, 6}) == Approx(6.4076059644).epsilon(1e-6));
  CHECK(lse_of<T>({kInfinity<T>, 2, 3}) == kInfinity<T>);
  CHECK(lse_of<T>({-kInfinity<T>, -kInfinity<T>}) == -kInfinity<T>);
  CHECK(lse_of<T>({1, -kInfinity<T>}) == T{1});
  CHECK(lse_of<T>({10000, 0, 0}) == T{10000});
  CHECK(lse_of<T>({-10000, -10000}) == Approx(-10000 + std::log(2.0)).epsilon(1e-6));
  CHECK(std::isnan(lse_of<T>({1, kNaN<T>, 3})));
  CHECK(std::isnan(lse_of<T>({-kInfinity<T>, kNaN<T>})));
  CHECK(std::isnan(lse_of<T>({kInfinity<T>, kNaN<T>})));

  CHECK(softmax_of<T>({10000, 0, 0}) == std::vector<T>{1, 0, 0});
  CHECK(softmax_of<T>({0, -10000, 0}) == std::vector<T>{0.5, 0, 0.5});
  CHECK(softmax_of<T>({-kInfinity<T>, 3}) == std::vector<T>{0, 1});
  CHECK(softmax_of<T>({kInfinity<T>, 2, kInfinity<T>, -kInfinity<T>}) == std::vector<T>{0.5, 0, 0.5, 0});
  for (const T other : {T{1}, kInfinity<T>, -kInfinity<T>}) {
    for (const T v : softmax_of<T>({other, kNaN<T>})) CHECK(std::isnan(v));
  }

  for (const std::vector<T>& x : {std::vector<T>{10000, 0, 0}, {-10000, 10000, 3}, {kInfinity<T>, 2, 3}}) {
    const std::vector<T> y = softmax_of(x);
    const std::vector<T> dy = {2, -1, 5};
    std::vector<T> dx(3);
    softmax_backward(y.data(), dy.data(), dx.data(), 1, 3, false);
    CHECK(all_finite(dx.data(), 3));
    CHECK(std::fabs(dx[0] + dx[1] + dx[2]) <= 4 * kEpsilon<T>);
    const T lse = lse_of(x), one = 1;
    log_sum_exp_backward(x.data(), &lse, &one, dx.data(), 1, 3, false);
    CHECK(all_finite(dx.data(), 3));
    CHECK(dx[0] + dx[1] + dx[2] == Approx(1).epsilon(1e-6));
  }
}

TEST_CASE("B033 log_sum_exp and softmax take huge and infinite logits, values and gradients") {
  on_every_target([] {
    check_huge_logits<float>();
    check_huge_logits<double>();
  });
}

}  // namespace
}  // namespace storytape::test
