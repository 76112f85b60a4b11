// The vector functions of math-inl.h on every SIMD target, against the C library in long double.
#include <cmath>
#include <limits>
#include <vector>

#include "tensor/simd.h"
#include "tensor/simd_targets.h"
#include "tests/kernel_testing.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/math_test.cc"
// After HWY_TARGET_INCLUDE.
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "tensor/kernels/gelu-inl.h"
#include "tensor/kernels/math-inl.h"

#ifndef STORYTAPE_TESTS_MATH_TEST_ONCE
#define STORYTAPE_TESTS_MATH_TEST_ONCE
namespace storytape::test {
enum class Math {
  kExp,
  kExpNonPositive,
  kExpGradual,
  kLog,
  kLog1pUnit,
  kSigmoid,
  kSigmoidGrad,
  kSilu,
  kSiluGrad,
  kSoftplus,
  kLogSigmoid,
  kTanh,
  kTanhGrad,
  kErf,
  kGeluErf,
  kGeluErfGrad,
  kGeluTanh,
  kGeluTanhGrad,
  kEluPlusOne,
};
}  // namespace storytape::test
#endif

HWY_BEFORE_NAMESPACE();
namespace storytape::test {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace k = storytape::HWY_NAMESPACE;

template <class D, class V>
HWY_INLINE V Evaluate(D d, Math function, V x) {
  switch (function) {
    case Math::kExp:
      return k::Exp(d, x);
    case Math::kExpNonPositive:
      return k::ExpNonPositive(d, x);
    case Math::kExpGradual:
      return k::ExpNonPositive<true>(d, x);
    case Math::kLog:
      return k::Log(d, x);
    case Math::kLog1pUnit:
      return k::Log1pUnit(d, x);
    case Math::kSigmoid:
      return k::Sigmoid(d, x);
    case Math::kSigmoidGrad:
      return k::SigmoidGrad(d, x);
    case Math::kSilu:
      return k::Silu(d, x);
    case Math::kSiluGrad:
      return k::SiluGrad(d, x);
    case Math::kSoftplus:
      return k::Softplus(d, x);
    case Math::kLogSigmoid:
      return k::LogSigmoid(d, x);
    case Math::kTanh:
      return k::Tanh(d, x);
    case Math::kTanhGrad:
      return k::TanhGrad(d, x);
    case Math::kErf:
      return k::Erf(d, x);
    case Math::kGeluErf:
      return k::GeluErf(d, x);
    case Math::kGeluErfGrad:
      return k::GeluErfGrad(d, x);
    case Math::kGeluTanh:
      return k::GeluTanh(d, x);
    case Math::kGeluTanhGrad:
      return k::GeluTanhGrad(d, x);
    case Math::kEluPlusOne:
      return k::EluPlusOne(d, x);
  }
  return x;
}

template <class T>
HWY_INLINE void EvaluateAll(Math function, const T* x, T* y, size_t n) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < n; i += lanes) {
    const size_t left = n - i < lanes ? n - i : lanes;
    k::StorePartial(d, Evaluate(d, function, k::LoadPartial(d, x + i, left)), y + i, left);
  }
}
void EvaluateF32(Math function, const float* x, float* y, size_t n) {
  EvaluateAll(function, x, y, n);
}
void EvaluateF64(Math function, const double* x, double* y, size_t n) {
  EvaluateAll(function, x, y, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace storytape::test
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace storytape::test {
namespace {

HWY_EXPORT(EvaluateF32);
HWY_EXPORT(EvaluateF64);
void evaluate(Math f, const float* x, float* y, size_t n) {
  SIMD_DISPATCH(EvaluateF32)(f, x, y, n);
}
void evaluate(Math f, const double* x, double* y, size_t n) {
  SIMD_DISPATCH(EvaluateF64)(f, x, y, n);
}

using Real = long double;
constexpr Real kPi = 3.14159265358979323846264338327950288L;
const Real kTanhGeluFactor = std::sqrt(2 / kPi);

Real logistic(Real x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}
Real normal_below(Real x) {
  return std::erfc(-x / std::sqrt(2.0L)) / 2;
}
Real normal_density(Real x) {
  return std::exp(-x * x / 2) / std::sqrt(2 * kPi);
}

// The function in long double, its limit at infinities.
Real exact(Math f, Real x) {
  const Real e = std::exp(-std::fabs(x));
  const Real e2 = std::exp(-2 * std::fabs(x));
  const Real u2 = 2 * kTanhGeluFactor * (x + 0.044715L * x * x * x);
  const bool infinite = std::isinf(x);
  switch (f) {
    case Math::kExp:
    case Math::kExpNonPositive:
    case Math::kExpGradual:
      return std::exp(x);
    case Math::kLog:
      return std::log(x);
    case Math::kLog1pUnit:
      return std::log1p(x);
    case Math::kSigmoid:
      return logistic(x);
    case Math::kSigmoidGrad:
      return e / ((1 + e) * (1 + e));
    case Math::kSilu:
      return infinite ? std::max(x, Real{0}) : x * logistic(x);
    case Math::kSiluGrad:
      return infinite ? logistic(x) : logistic(x) * (1 + x * logistic(-x));
    case Math::kSoftplus:
      return std::isnan(x) ? x : std::max(x, Real{0}) + std::log1p(e);
    case Math::kLogSigmoid:
      return std::isnan(x) ? x : std::min(x, Real{0}) - std::log1p(e);
    case Math::kTanh:
      return std::tanh(x);
    case Math::kTanhGrad:
      return 4 * e2 / ((1 + e2) * (1 + e2));
    case Math::kErf:
      return std::erf(x);
    case Math::kGeluErf:
      return infinite ? std::max(x, Real{0}) : x * normal_below(x);
    case Math::kGeluErfGrad:
      return infinite ? normal_below(x) : normal_below(x) + x * normal_density(x);
    case Math::kGeluTanh:
      return infinite ? std::max(x, Real{0}) : x * logistic(u2);
    case Math::kGeluTanhGrad:
      return infinite ? logistic(x)
                      : logistic(u2) +
                            x * logistic(u2) * logistic(-u2) * 2 * kTanhGeluFactor * (1 + 0.134145L * x * x);
    case Math::kEluPlusOne:
      return x > 0 ? x + 1 : std::exp(x);
  }
  return 0;
}

// A range of arguments and the error allowed in it: so many ulp, or so many epsilons in absolute terms.
struct Sweep {
  Math function;
  const char* name;
  double low, high;
  double ulp;
  double epsilons = 0;
};

template <class T>
std::vector<T> arguments(const Sweep& sweep) {
  Random random(7);
  std::vector<T> x;
  for (int i = 0; i < 20000; ++i) x.push_back(static_cast<T>(random.uniform(sweep.low, sweep.high)));
  // Small arguments of every size.
  for (int i = 0; i < 10000; ++i) {
    const double magnitude = std::exp(random.uniform(-80, 4));
    const double v = (random.next() & 1) ? magnitude : -magnitude;
    if (v >= sweep.low && v <= sweep.high) x.push_back(static_cast<T>(v));
  }
  return x;
}

template <class T>
void check_sweeps(const std::vector<Sweep>& sweeps) {
  for (const Sweep& sweep : sweeps) {
    const std::vector<T> x = arguments<T>(sweep);
    std::vector<Real> want;
    for (const T v : x) want.push_back(exact(sweep.function, v));
    on_every_target([&] {
      std::vector<T> y(x.size());
      evaluate(sweep.function, x.data(), y.data(), x.size());
      double worst = 0;
      size_t at = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double error = ulp_error(y[i], want[i]);
        const Real absolute = std::fabs(static_cast<Real>(y[i]) - want[i]);
        if (absolute <= sweep.epsilons * kEpsilon<T>) continue;
        if (!(error <= worst)) {
          worst = error;
          at = i;
        }
      }
      INFO(sweep.name << "(" << x[at] << ") = " << y[at] << ", want " << static_cast<double>(want[at])
                      << ", off by " << worst << " ulp");
      CHECK(worst <= sweep.ulp);
    });
  }
}

#define STORYTAPE_SWEEP(function, ...) \
  { Math::function, #function, __VA_ARGS__ }

TEST_CASE("vector functions of floats are within their bounds on every target") {
  check_sweeps<float>({
      STORYTAPE_SWEEP(kExp, -110, 90, 2),
      STORYTAPE_SWEEP(kExpNonPositive, -87.33, 0, 1.5),
      STORYTAPE_SWEEP(kExpGradual, -110, 0, 1.5),
      STORYTAPE_SWEEP(kLog, 1e-42, 2, 1.5),
      STORYTAPE_SWEEP(kLog, 0.4, 2, 1.5),
      STORYTAPE_SWEEP(kLog, 2, 3e38, 1.5),
      STORYTAPE_SWEEP(kLog1pUnit, 0, 1, 1.5),
      STORYTAPE_SWEEP(kSigmoid, -110, 110, 3),
      STORYTAPE_SWEEP(kSigmoidGrad, -110, 110, 4),
      STORYTAPE_SWEEP(kSilu, -110, 110, 3),
      STORYTAPE_SWEEP(kSiluGrad, -110, 110, 6, 1),
      STORYTAPE_SWEEP(kSoftplus, -110, 110, 2.5),
      STORYTAPE_SWEEP(kLogSigmoid, -110, 110, 2.5),
      STORYTAPE_SWEEP(kTanh, -25, 25, 3),
      STORYTAPE_SWEEP(kTanhGrad, -60, 60, 4.5),
      STORYTAPE_SWEEP(kErf, -1, 1, 3),
      STORYTAPE_SWEEP(kErf, -12, 12, 3),
      STORYTAPE_SWEEP(kGeluErf, -0.5, 20, 5),
      STORYTAPE_SWEEP(kGeluErf, -20, 0, 5, 0.7),
      STORYTAPE_SWEEP(kGeluErfGrad, -0.5, 20, 3),
      STORYTAPE_SWEEP(kGeluErfGrad, -20, 0, 3, 1),
      STORYTAPE_SWEEP(kGeluTanh, -1, 20, 3.5),
      STORYTAPE_SWEEP(kGeluTanh, -20, 0, 3.5, 0.5),
      STORYTAPE_SWEEP(kGeluTanhGrad, -0.5, 20, 4),
      STORYTAPE_SWEEP(kGeluTanhGrad, -20, 0, 4, 1),
      STORYTAPE_SWEEP(kEluPlusOne, -110, 20, 1.5),
  });
}

TEST_CASE("vector functions of doubles are within their bounds on every target") {
  check_sweeps<double>({
      STORYTAPE_SWEEP(kExp, -750, 712, 2),
      STORYTAPE_SWEEP(kExpNonPositive, -708.3, 0, 1.5),
      STORYTAPE_SWEEP(kExpGradual, -750, 0, 1.5),
      STORYTAPE_SWEEP(kLog, 1e-310, 2, 1.5),
      STORYTAPE_SWEEP(kLog, 0.4, 2, 1.5),
      STORYTAPE_SWEEP(kLog, 2, 1e308, 1.5),
      STORYTAPE_SWEEP(kLog1pUnit, 0, 1, 1.5),
      STORYTAPE_SWEEP(kSigmoid, -750, 750, 3),
      STORYTAPE_SWEEP(kSigmoidGrad, -750, 750, 4),
      STORYTAPE_SWEEP(kSilu, -750, 750, 3),
      STORYTAPE_SWEEP(kSiluGrad, -750, 750, 6, 1),
      STORYTAPE_SWEEP(kSoftplus, -750, 750, 2.5),
      STORYTAPE_SWEEP(kLogSigmoid, -750, 750, 2.5),
      STORYTAPE_SWEEP(kTanh, -25, 25, 3),
      STORYTAPE_SWEEP(kTanhGrad, -370, 370, 4.5),
      STORYTAPE_SWEEP(kErf, -1, 1, 3),
      STORYTAPE_SWEEP(kErf, -12, 12, 3),
      STORYTAPE_SWEEP(kGeluErf, -0.5, 20, 2.5),
      STORYTAPE_SWEEP(kGeluErf, -5, 0, 6),
      STORYTAPE_SWEEP(kGeluErf, -40, 0, 6),
      STORYTAPE_SWEEP(kGeluErfGrad, -0.5, 20, 4),
      STORYTAPE_SWEEP(kGeluErfGrad, -40, -1, 9),
      STORYTAPE_SWEEP(kGeluErfGrad, -40, 0, 9, 1),
      STORYTAPE_SWEEP(kGeluTanh, -1, 20, 3.5),
      STORYTAPE_SWEEP(kGeluTanh, -20, 0, 3.5, 0.5),
      STORYTAPE_SWEEP(kGeluTanhGrad, -0.5, 20, 4),
      STORYTAPE_SWEEP(kGeluTanhGrad, -20, 0, 4, 1),
      STORYTAPE_SWEEP(kEluPlusOne, -750, 20, 1.5),
  });
}

constexpr Math kEverywhere[] = {Math::kExp,      Math::kSigmoid,      Math::kSigmoidGrad, Math::kSilu,
                                Math::kSiluGrad, Math::kSoftplus,     Math::kLogSigmoid,  Math::kTanh,
                                Math::kTanhGrad, Math::kErf,          Math::kGeluErf,     Math::kGeluErfGrad,
                                Math::kGeluTanh, Math::kGeluTanhGrad, Math::kEluPlusOne};

template <class T>
void check_extremes() {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  std::vector<T> x = {T{0}, -T{0}, std::numeric_limits<T>::quiet_NaN(), kInfinity, -kInfinity};
  for (const double v : {1e-8, 20.0, 88.0, 104.0, 300.0, 1e4, 1e30}) {
    x.push_back(static_cast<T>(v));
    x.push_back(static_cast<T>(-v));
  }
  for (const Math f : kEverywhere) {
    std::vector<T> y(x.size());
    evaluate(f, x.data(), y.data(), x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      // Far in its tail the tanh GELU is exp of a large argument, whose rounding shows.
      const bool tail = (f == Math::kGeluTanh || f == Math::kGeluTanhGrad) && x[i] <= -20;
      const Real want = exact(f, x[i]);
      INFO("function " << static_cast<int>(f) << " of " << x[i] << ": " << y[i] << ", want "
                       << static_cast<double>(want));
      if (tail) {
        CHECK(ulp_error(y[i], want) <= 4000);
      } else {
        CHECK(ulp_error(y[i], want) <= 4);
      }
    }
  }
}

TEST_CASE("B027 the sigmoid family takes infinities, NaN and huge arguments, values and derivatives") {
  on_every_target([] {
    check_extremes<float>();
    check_extremes<double>();
  });
}

template <class T>
T value(Math f, double x) {
  const T argument = static_cast<T>(x);
  T y = 0;
  evaluate(f, &argument, &y, 1);
  return y;
}

TEST_CASE("B027 values given in the report") {
  on_every_target([] {
    CHECK(value<float>(Math::kLogSigmoid, -300) == -300.0f);
    CHECK(value<float>(Math::kSigmoid, 300) == 1.0f);  // the slope of log_sigmoid at -300
    CHECK(value<float>(Math::kSigmoid, 0) == 0.5f);    // the slope of softplus at 0
    CHECK(value<float>(Math::kSigmoid, -200) == 0.0f);
    CHECK(value<float>(Math::kSilu, -1e30) == 0.0f);
  });
}

TEST_CASE("B024 elu + 1 keeps small features, value and derivative") {
  on_every_target([] {
    for (const double x : {-5.0, -10.0, -15.0, -17.0, -20.0, -50.0, -0.0, 0.0, 1e-8}) {
      const float y = value<float>(Math::kEluPlusOne, x);
      CHECK(ulp_error(y, exact(Math::kEluPlusOne, static_cast<float>(x))) <= 2);
    }
    CHECK(value<float>(Math::kEluPlusOne, -20) == Approx(2.0611536e-9).epsilon(1e-6));
    CHECK(value<float>(Math::kEluPlusOne, 0) == 1.0f);
  });
}

TEST_CASE("exponentials end at exactly 0 and at infinity") {
  on_every_target([] {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    CHECK(value<float>(Math::kExp, -kInfinity) == 0.0f);
    CHECK(value<float>(Math::kExp, -104) == 0.0f);
    CHECK(value<float>(Math::kExp, -103.9) > 0.0f);
    CHECK(value<float>(Math::kExp, 88.7) < std::numeric_limits<float>::infinity());
    CHECK(value<float>(Math::kExp, 88.73) == std::numeric_limits<float>::infinity());
    CHECK(value<float>(Math::kExpNonPositive, -kInfinity) == 0.0f);
    CHECK(value<float>(Math::kExpNonPositive, -1e30) == 0.0f);
    CHECK(value<float>(Math::kExpNonPositive, 0) == 1.0f);
    CHECK(value<double>(Math::kExpNonPositive, -kInfinity) == 0.0);
    CHECK(value<double>(Math::kExpNonPositive, 0) == 1.0);
    CHECK(value<double>(Math::kExp, -745) > 0.0);
    CHECK(value<double>(Math::kExp, 709.7) < kInfinity);
    CHECK(value<double>(Math::kExp, 709.8) == kInfinity);
    CHECK(std::isnan(value<float>(Math::kExpNonPositive, std::nan(""))));
  });
}

TEST_CASE("log of what has none") {
  on_every_target([] {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    CHECK(value<float>(Math::kLog, 0) == -std::numeric_limits<float>::infinity());
    CHECK(value<double>(Math::kLog, -0.0) == -kInfinity);
    CHECK(value<double>(Math::kLog, kInfinity) == kInfinity);
    CHECK(std::isnan(value<float>(Math::kLog, -1)));
    CHECK(std::isnan(value<double>(Math::kLog, -kInfinity)));
    CHECK(std::isnan(value<float>(Math::kLog, std::nan(""))));
    CHECK(value<float>(Math::kLog, 1) == 0.0f);
  });
}

}  // namespace
}  // namespace storytape::test
#endif
