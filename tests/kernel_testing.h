// What the tests of kernels share: odd lengths, arrays between guards, every SIMD target, errors in ulp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tensor/random.h"
#include "tensor/simd.h"
#include "tests/catch.h"

namespace storytape::test {

// Around every vector width, with and without a rest.
inline constexpr size_t kLengths[] = {0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 64, 65, 127, 1000};

// n values between NaN guards, one element off the alignment. A kernel that reads a guard shows NaN, one that
// writes a guard is found by intact().
template <class T>
class Guarded {
 public:
  explicit Guarded(size_t n, T value = T{0}) : n_(n), values_(n + 2 * kGuard, guard()) {
    std::fill_n(data(), n, value);
  }
  Guarded(std::vector<T> values) : Guarded(values.size()) { std::copy(values.begin(), values.end(), data()); }

  T* data() { return values_.data() + kGuard; }
  const T* data() const { return values_.data() + kGuard; }
  size_t size() const { return n_; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }

  bool intact() const {
    const T expected = guard();
    for (size_t i = 0; i < kGuard; ++i) {
      if (std::memcmp(&values_[i], &expected, sizeof(T)) != 0) return false;
      if (std::memcmp(&values_[kGuard + n_ + i], &expected, sizeof(T)) != 0) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 65;
  static T guard() { return std::numeric_limits<T>::quiet_NaN(); }
  size_t n_;
  std::vector<T> values_;
};

template <class T>
Guarded<T> random_values(size_t n, uint64_t seed, double low = -2, double high = 2) {
  Random random(seed);
  Guarded<T> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<T>(random.uniform(low, high));
  return x;
}

// Runs f() once per SIMD target, which is in use meanwhile and named when an assertion fails.
template <class F>
void on_every_target(const F& f) {
  struct Restore {
    std::string name = simd_target();
    ~Restore() { force_simd_target(name); }
  } restore;
  for (const std::string& target : simd_targets()) {
    force_simd_target(target);
    INFO("SIMD target " << target);
    f();
  }
}

// |got - want| in units of the last place of T at `want`; infinite where only one of them is NaN or infinite.
// A value that overflows T counts as infinity.
template <class T>
double ulp_error(T got, long double want) {
  constexpr double kWrong = std::numeric_limits<double>::infinity();
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want) ? 0 : kWrong;
  const T rounded = static_cast<T>(want);
  if (std::isinf(got) || std::isinf(rounded)) return got == rounded ? 0 : kWrong;
  int exponent = 0;
  std::frexp(want, &exponent);
  exponent = std::max(exponent, std::numeric_limits<T>::min_exponent) - std::numeric_limits<T>::digits;
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want) / std::ldexp(1.0L, exponent));
}

// |got - want| <= tolerance (1 + |want|), false for NaN.
template <class T>
bool close(T got, long double want, double tolerance) {
  return std::fabs(static_cast<long double>(got) - want) <=
         static_cast<long double>(tolerance) * (1 + std::fabs(want));
}

template <class T>
constexpr double kEpsilon = static_cast<double>(std::numeric_limits<T>::epsilon());

// Whether every value is close to its partner; says which is not.
template <class T, class U>
bool all_close(const T* got, const std::vector<U>& want, double tolerance) {
  for (size_t i = 0; i < want.size(); ++i) {
    if (!close(got[i], static_cast<long double>(want[i]), tolerance)) {
      UNSCOPED_INFO("at " << i << ": got " << got[i] << ", want " << static_cast<double>(want[i]));
      return false;
    }
  }
  return true;
}

template <class T>
bool same_bits(const T* a, const T* b, size_t n) {
  return n == 0 || std::memcmp(a, b, n * sizeof(T)) == 0;
}

}  // namespace storytape::test
