// Layer norm and RMS norm of rows; the tags (N1) to (R3) are those of tensor/norm.h. Included per target.
#if defined(STORYTAPE_TENSOR_KERNELS_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_TENSOR_KERNELS_NORM_INL_H_
#undef STORYTAPE_TENSOR_KERNELS_NORM_INL_H_
#else
#define STORYTAPE_TENSOR_KERNELS_NORM_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A row's values are d - shift with d = x - mean: `mean` rounds to T, `shift` is what the rounding left, so
// that values far from 0 lose nothing.
template <class T>
struct RowMoments {
  T mean, shift, rstd;
};

// Sums under this lose digits to subnormal squares.
template <class T>
inline constexpr T kSmallSquare = std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon();

// The moments of a row whose squares overflow or vanish, from the row divided by a power of two near its
// largest value.
//   (M1) rstd = 1 / sqrt(s^2 variance(x/s) + eps) = (1/s) / sqrt(variance(x/s) + eps/s^2)
template <class T>
HWY_NOINLINE RowMoments<T> ScaledMoments(const T* x, size_t n, T eps, bool centre) {
  T largest = 0;
  for (size_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(x[i]));
  int exponent = 0;
  std::frexp(largest, &exponent);
  using Limits = std::numeric_limits<T>;
  const T s = std::ldexp(T{1}, std::clamp(exponent, Limits::min_exponent, Limits::max_exponent - 1));
  const T inverse = 1 / s;
  const T count = static_cast<T>(n);
  T mean = 0, shift = 0, squares = 0;
  if (centre) {
    for (size_t i = 0; i < n; ++i) mean += x[i] * inverse;
    mean /= count;
    for (size_t i = 0; i < n; ++i) shift += x[i] * inverse - mean;
    shift /= count;
  }
  for (size_t i = 0; i < n; ++i) {
    const T d = x[i] * inverse - mean - shift;
    squares += d * d;
  }
  const T variance = squares / count + eps * inverse * inverse;
  // Infinite where eps outweighs the row beyond all measure.
  return {mean * s, shift * s,
          std::isinf(variance) ? 1 / std::sqrt(eps) : inverse / std::sqrt(variance)};  // (M1)
}

template <class T>
HWY_INLINE bool SquaresFailed(T squares, T squares_and_eps) {
  return std::isinf(squares) || squares_and_eps < kSmallSquare<T>;
}

//   (M2) mean = sum x / n,  d = x - mean,  shift = sum d / n,  variance = (sum d^2 - shift sum d) / n
template <class T>
HWY_INLINE RowMoments<T> MomentsOfRow(const T* x, size_t n, T eps) {
  using V = hn::Vec<hn::ScalableTag<T>>;
  const hn::ScalableTag<T> d;
  const T count = static_cast<T>(n);
  const T mean = SumOfVectors(d, n,
                              [&](auto partial, size_t i, size_t left)
                                  HWY_ATTR { return LoadSome<decltype(partial)::value>(d, x + i, left); }) /
                 count;
  const auto centre = hn::Set(d, mean);
  const Sums<T> sums = SumsOfVectors(d, n, [&](auto partial, size_t i, size_t left, V& a, V& b, V&) HWY_ATTR {
    constexpr bool kPartial = decltype(partial)::value;
    auto di = hn::Sub(LoadSome<kPartial>(d, x + i, left), centre);
    if constexpr (kPartial) di = hn::IfThenElseZero(hn::FirstN(d, left), di);
    a = hn::Add(a, di);
    b = hn::MulAdd(di, di, b);
  });
  const T total = sums.a;
  const T squares = sums.b;
  const T shift = total / count;
  T variance = (squares - shift * total) / count;
  if (variance < 0) variance = 0;
  if (SquaresFailed(squares, variance + eps)) return ScaledMoments(x, n, eps, true);
  return {mean, shift, 1 / std::sqrt(variance + eps)};
}

template <class T>
HWY_INLINE void LayerNorm(const T* x, const T* gamma, const T* beta, T eps, T* y, T* mean, T* rstd,
                          size_t rows, size_t n) {
  const hn::ScalableTag<T> d;
  for (size_t row = 0; row < rows; ++row, x += n, y += n) {
    const RowMoments<T> moments = MomentsOfRow(x, n, eps);
    if (mean) mean[row] = moments.mean;
    if (rstd) rstd[row] = moments.rstd;
    const auto m = hn::Set(d, moments.mean), shift = hn::Set(d, moments.shift), r = hn::Set(d, moments.rstd);
    ForVectors(d, n, [&](auto partial, size_t i, size_t left) HWY_ATTR {
      constexpr bool kPartial = decltype(partial)::value;
      auto v = hn::Mul(hn::Sub(hn::Sub(LoadSome<kPartial>(d, x + i, left), m), shift), r);
      if (gamma) v = hn::Mul(v, LoadSome<kPartial>(d, gamma + i, left));
      if (beta) v = hn::Add(v, LoadSome<kPartial>(d, beta + i, left));
      StoreSome<kPartial>(d, v, y + i, left);  // (N1)
    });
  }
}

// Rows whose contributions to dgamma and dbeta are summed before they are added: as many as stay in the first
// cache level between the two passes over them.
inline constexpr size_t kNormRows = 32;
HWY_INLINE size_t NormRows(size_t n) {
  return std::clamp(2048 / n, size_t{4}, kNormRows);
}

// (N3) and (R3): dgamma += sum of dy (x - mean - shift) rstd, dbeta += sum of dy over up to kNormRows rows.
template <bool kCentre, class T>
HWY_INLINE void AddParameterGrads(const T* x, const T* mean, const T* shift, const T* rstd, const T* dy,
                                  T* dgamma, T* dbeta, size_t rows, size_t n) {
  const hn::ScalableTag<T> d;
  ForVectors(d, n, [&](auto partial, size_t i, size_t left) HWY_ATTR {
    constexpr bool kPartial = decltype(partial)::value;
    auto sum_gamma = hn::Zero(d), sum_beta = hn::Zero(d);
    for (size_t row = 0; row < rows; ++row) {
      auto h = LoadSome<kPartial>(d, x + row * n + i, left);
      if constexpr (kCentre) h = hn::Sub(hn::Sub(h, hn::Set(d, mean[row])), hn::Set(d, shift[row]));
      h = hn::Mul(h, hn::Set(d, rstd[row]));
      const auto g = LoadSome<kPartial>(d, dy + row * n + i, left);
      sum_gamma = hn::MulAdd(g, h, sum_gamma);
      sum_beta = hn::Add(sum_beta, g);
    }
    if (dgamma) {
      StoreSome<kPartial>(d, hn::Add(LoadSome<kPartial>(d, dgamma + i, left), sum_gamma), dgamma + i, left);
    }
    if (dbeta)
      StoreSome<kPartial>(d, hn::Add(LoadSome<kPartial>(d, dbeta + i, left), sum_beta), dbeta + i, left);
  });
}

// One row of (N2); returns the row's shift, which the forward doesn't save. With `dx` null it does nothing
// else.
template <bool kAccumulate, class T>
HWY_INLINE T LayerNormBackwardRow(const T* x, const T* gamma, T mean, T rstd, const T* dy, T* dx, size_t n) {
  using V = hn::Vec<hn::ScalableTag<T>>;
  const hn::ScalableTag<T> d;
  const T count = static_cast<T>(n);
  const auto centre = hn::Set(d, mean), r = hn::Set(d, rstd);
  const auto load_g = [&](auto partial, size_t i, size_t left) HWY_ATTR {
    const auto g = LoadSome<decltype(partial)::value>(d, dy + i, left);
    return gamma ? hn::Mul(g, LoadSome<decltype(partial)::value>(d, gamma + i, left)) : g;
  };
  const Sums<T> sums =
      SumsOfVectors(d, n, [&](auto partial, size_t i, size_t left, V& a, V& b, V& c) HWY_ATTR {
        constexpr bool kPartial = decltype(partial)::value;
        auto di = hn::Sub(LoadSome<kPartial>(d, x + i, left), centre);
        if constexpr (kPartial) di = hn::IfThenElseZero(hn::FirstN(d, left), di);
        const auto g = load_g(partial, i, left);
        a = hn::Add(a, di);
        b = hn::Add(b, g);
        c = hn::MulAdd(g, di, c);
      });
  const T shift = sums.a / count;
  if (!dx) return shift;
  const T mean_g = sums.b / count;
  const T mean_gh = (sums.c / count - shift * mean_g) * rstd;
  const auto s = hn::Set(d, shift), mg = hn::Set(d, mean_g), mgh = hn::Set(d, mean_gh);
  ForVectors(d, n, [&](auto partial, size_t i, size_t left) HWY_ATTR {
    constexpr bool kPartial = decltype(partial)::value;
    const auto h = hn::Mul(hn::Sub(hn::Sub(LoadSome<kPartial>(d, x + i, left), centre), s), r);
    const auto t = hn::NegMulAdd(h, mgh, hn::Sub(load_g(partial, i, left), mg));
    auto result = hn::Mul(r, t);
    if constexpr (kAccumulate) result = hn::MulAdd(r, t, LoadSome<kPartial>(d, dx + i, left));
    StoreSome<kPartial>(d, result, dx + i, left);  // (N2)
  });
  return shift;
}

template <bool kAccumulate, class T>
HWY_INLINE void LayerNormBackward(const T* x, const T* gamma, const T* mean, const T* rstd, const T* dy,
                                  T* dx, T* dgamma, T* dbeta, size_t rows, size_t n) {
  if (n == 0) return;
  T shift[kNormRows] = {};
  const size_t block = NormRows(n);
  for (size_t first = 0; first < rows; first += block) {
    const size_t count = std::min(block, rows - first);
    const size_t at = first * n;
    const auto add_parameter_grads = [&]() HWY_ATTR {
      if (dgamma || dbeta) {
        AddParameterGrads<true>(x + at, mean + first, shift, rstd + first, dy + at, dgamma, dbeta, count, n);
      }
    };
    if (n == 1) {
      // h = 0 and g = mean_n(g): exact zeros, which g - mean_n(g) is not if the compiler fuses it with g = dy
      // gamma.
      add_parameter_grads();
      if (dx && !kAccumulate) std::fill_n(dx + at, count, T{0});
      continue;
    }
    if (dx == dy) {
      // dy is about to be overwritten; the shifts come first.
      for (size_t row = 0; row < count; ++row) {
        const size_t r = first + row;
        shift[row] = LayerNormBackwardRow<kAccumulate>(x + r * n, gamma, mean[r], rstd[r], dy + r * n,
                                                       static_cast<T*>(nullptr), n);
      }
      add_parameter_grads();
    }
    for (size_t row = 0; row < count; ++row) {
      const size_t r = first + row;
      shift[row] = LayerNormBackwardRow<kAccumulate>(x + r * n, gamma, mean[r], rstd[r], dy + r * n,
                                                     dx ? dx + r * n : nullptr, n);
    }
    if (dx != dy) add_parameter_grads();
  }
}

//   (M3) rstd = 1 / sqrt(sum x^2 / n + eps)
template <class T>
HWY_INLINE void RmsNorm(const T* x, const T* gamma, T eps, T* y, T* rstd, size_t rows, size_t n) {
  const hn::ScalableTag<T> d;
  for (size_t row = 0; row < rows; ++row, x += n, y += n) {
    const T squares = SumOfVectors(d, n, [&](auto partial, size_t i, size_t left) HWY_ATTR {
      const auto v = LoadSome<decltype(partial)::value>(d, x + i, left);
      return hn::Mul(v, v);
    });
    const T mean_square = squares / static_cast<T>(n) + eps;
    T scale = 1 / std::sqrt(mean_square);  // (M3)
    if (SquaresFailed(squares, mean_square)) scale = ScaledMoments(x, n, eps, false).rstd;
    if (rstd) rstd[row] = scale;
    const auto r = hn::Set(d, scale);
    ForVectors(d, n, [&](auto partial, size_t i, size_t left) HWY_ATTR {
      constexpr bool kPartial = decltype(partial)::value;
      auto v = hn::Mul(LoadSome<kPartial>(d, x + i, left), r);
      if (gamma) v = hn::Mul(v, LoadSome<kPartial>(d, gamma + i, left));
      StoreSome<kPartial>(d, v, y + i, left);  // (R1)
    });
  }
}

template <bool kAccumulate, class T>
HWY_INLINE void RmsNormBackward(const T* x, const T* gamma, const T* rstd, const T* dy, T* dx, T* dgamma,
                                size_t rows, size_t n) {
  const hn::ScalableTag<T> d;
  if (n == 0) return;
  const size_t block = NormRows(n);
  for (size_t first = 0; first < rows; first += block) {
    const size_t count = std::min(block, rows - first);
    // First, since dx may be dy.
    if (dgamma) {
      AddParameterGrads<false>(x + first * n, static_cast<const T*>(nullptr), static_cast<const T*>(nullptr),
                               rstd + first, dy + first * n, dgamma, static_cast<T*>(nullptr), count, n);
    }
    if (!dx) continue;
    for (size_t row = first; row < first + count; ++row) {
      const T* xr = x + row * n;
      const T* dyr = dy + row * n;
      T* dxr = dx + row * n;
      const auto r = hn::Set(d, rstd[row]);
      const auto load_g = [&](auto partial, size_t i, size_t left) HWY_ATTR {
        const auto g = LoadSome<decltype(partial)::value>(d, dyr + i, left);
        return gamma ? hn::Mul(g, LoadSome<decltype(partial)::value>(d, gamma + i, left)) : g;
      };
      const T sum_gh = SumOfVectors(d, n, [&](auto partial, size_t i, size_t left) HWY_ATTR {
        return hn::Mul(load_g(partial, i, left),
                       hn::Mul(LoadSome<decltype(partial)::value>(d, xr + i, left), r));
      });
      const auto mgh = hn::Set(d, sum_gh / static_cast<T>(n));
      ForVectors(d, n, [&](auto partial, size_t i, size_t left) HWY_ATTR {
        constexpr bool kPartial = decltype(partial)::value;
        const auto h = hn::Mul(LoadSome<kPartial>(d, xr + i, left), r);
        const auto t = hn::NegMulAdd(h, mgh, load_g(partial, i, left));
        auto result = hn::Mul(r, t);
        if constexpr (kAccumulate) result = hn::MulAdd(r, t, LoadSome<kPartial>(d, dxr + i, left));
        StoreSome<kPartial>(d, result, dxr + i, left);  // (R2)
      });
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
