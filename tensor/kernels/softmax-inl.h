// Softmax and log-sum-exp of rows. Included per target.
#if defined(STORYTAPE_TENSOR_KERNELS_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_TENSOR_KERNELS_SOFTMAX_INL_H_
#undef STORYTAPE_TENSOR_KERNELS_SOFTMAX_INL_H_
#else
#define STORYTAPE_TENSOR_KERNELS_SOFTMAX_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The largest value of a row; NaN may or may not be seen. -inf for n = 0.
template <class T>
HWY_INLINE T RowMax(const T* x, size_t n) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  const auto lowest = hn::Set(d, -std::numeric_limits<T>::infinity());
  auto m0 = lowest, m1 = lowest;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    m0 = hn::Max(m0, hn::LoadU(d, x + i));
    m1 = hn::Max(m1, hn::LoadU(d, x + i + lanes));
  }
  if (i + lanes <= n) {
    m0 = hn::Max(m0, hn::LoadU(d, x + i));
    i += lanes;
  }
  if (i < n) m1 = hn::Max(m1, hn::IfThenElse(hn::FirstN(d, n - i), LoadPartial(d, x + i, n - i), lowest));
  return LargestLane(d, hn::Max(m0, m1));
}

// What is left of softmax when the maximum is not finite: +inf entries share 1; without any, NaN if there is
// one, else 0 (a masked row). y[i] = or += factor times that.
template <class T>
HWY_NOINLINE void InfiniteSoftmaxRow(const T* x, T factor, T* y, size_t n, bool accumulate) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  const size_t infinite = static_cast<size_t>(std::count(x, x + n, kInfinity));
  const bool nan = std::any_of(x, x + n, [](T v) { return std::isnan(v); });
  for (size_t i = 0; i < n; ++i) {
    T p = 0;
    if (x[i] == kInfinity) p = T{1} / static_cast<T>(infinite);
    if (nan) p = std::numeric_limits<T>::quiet_NaN();
    y[i] = accumulate ? y[i] + factor * p : factor * p;
  }
}

//   (F1) e[i] = exp(x[i] - max x), kept in y with kStore;   returns sum e
template <bool kStore, class T>
HWY_INLINE T ExpRow(const T* x, T max, T* y, size_t n) {
  const hn::ScalableTag<T> d;
  const auto shift = hn::Set(d, max);
  return SumOfVectors(d, n, [&](auto partial, size_t i, size_t count) HWY_ATTR {
    constexpr bool kPartial = decltype(partial)::value;
    auto e = ExpNonPositive(d, hn::Sub(LoadSome<kPartial>(d, x + i, count), shift));
    if constexpr (kPartial) e = hn::IfThenElseZero(hn::FirstN(d, count), e);
    if constexpr (kStore) StoreSome<kPartial>(d, e, y + i, count);
    return e;
  });
}

//   (F2) y[i] = e[i] / sum e
template <class T>
HWY_INLINE void Softmax(const T* x, T* y, size_t rows, size_t n) {
  const hn::ScalableTag<T> d;
  for (size_t row = 0; row < rows; ++row, x += n, y += n) {
    const T max = RowMax(x, n);
    if (std::isinf(max)) {
      InfiniteSoftmaxRow(x, T{1}, y, n, false);
      continue;
    }
    const auto inverse = hn::Set(d, T{1} / ExpRow<true>(x, max, y, n));  // (F1)
    ForVectors(d, n, [&](auto partial, size_t i, size_t count) HWY_ATTR {
      constexpr bool kPartial = decltype(partial)::value;
      StoreSome<kPartial>(d, hn::Mul(LoadSome<kPartial>(d, y + i, count), inverse), y + i, count);  // (F2)
    });
  }
}

//   (F3) dx = y (dy - <y, dy>)          reads y, never x
template <bool kAccumulate, class T>
HWY_INLINE void SoftmaxBackward(const T* y, const T* dy, T* dx, size_t rows, size_t n) {
  const hn::ScalableTag<T> d;
  for (size_t row = 0; row < rows; ++row, y += n, dy += n, dx += n) {
    const T inner = SumOfVectors(d, n, [&](auto partial, size_t i, size_t count) HWY_ATTR {
      constexpr bool kPartial = decltype(partial)::value;
      return hn::Mul(LoadSome<kPartial>(d, y + i, count), LoadSome<kPartial>(d, dy + i, count));
    });
    const auto s = hn::Set(d, inner);
    ForVectors(d, n, [&](auto partial, size_t i, size_t count) HWY_ATTR {
      constexpr bool kPartial = decltype(partial)::value;
      const auto yi = LoadSome<kPartial>(d, y + i, count);
      const auto difference = hn::Sub(LoadSome<kPartial>(d, dy + i, count), s);
      auto result = hn::Mul(yi, difference);
      if constexpr (kAccumulate) result = hn::MulAdd(yi, difference, LoadSome<kPartial>(d, dx + i, count));
      StoreSome<kPartial>(d, result, dx + i, count);
    });
  }
}

//   (F4) y = max x + log sum_i exp(x[i] - max x)
template <class T>
HWY_INLINE void LogSumExp(const T* x, T* y, size_t rows, size_t n) {
  for (size_t row = 0; row < rows; ++row, x += n) {
    const T max = RowMax(x, n);
    if (std::isinf(max)) {
      const bool nan = std::any_of(x, x + n, [](T v) { return std::isnan(v); });
      y[row] = nan ? std::numeric_limits<T>::quiet_NaN() : max;
      continue;
    }
    y[row] = max + std::log(ExpRow<false>(x, max, static_cast<T*>(nullptr), n));
  }
}

//   (F5) dx[i] = dy exp(x[i] - y)
template <bool kAccumulate, class T>
HWY_INLINE void LogSumExpBackward(const T* x, const T* y, const T* dy, T* dx, size_t rows, size_t n) {
  const hn::ScalableTag<T> d;
  for (size_t row = 0; row < rows; ++row, x += n, dx += n) {
    if (std::isinf(y[row])) {
      InfiniteSoftmaxRow(x, dy[row], dx, n, kAccumulate);
      continue;
    }
    const auto shift = hn::Set(d, y[row]);
    const auto g = hn::Set(d, dy[row]);
    ForVectors(d, n, [&](auto partial, size_t i, size_t count) HWY_ATTR {
      constexpr bool kPartial = decltype(partial)::value;
      const auto p = ExpNonPositive(d, hn::Sub(LoadSome<kPartial>(d, x + i, count), shift));
      auto result = hn::Mul(g, p);
      if constexpr (kAccumulate) result = hn::MulAdd(g, p, LoadSome<kPartial>(d, dx + i, count));
      StoreSome<kPartial>(d, result, dx + i, count);
    });
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
