#include "nn/kernels/l2_normalize.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/l2_normalize.cc"
#include "tensor/simd.h"
#include "tensor/simd_targets.h"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tensor/kernels/lanes-inl.h"
#include "tensor/kernels/norm-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// r of one row; where its squares overflow or vanish, from the mean of the squares of the row scaled.
template <typename T>
HWY_INLINE T InverseLength(const L2Rows<T>& a, const T* x) {
  const hn::ScalableTag<T> d;
  const T squares = SumOfVectors(d, a.n, [&](auto partial, size_t i, size_t left) HWY_ATTR {
    const auto v = LoadSome<decltype(partial)::value>(d, x + i, left);
    return hn::Mul(v, v);
  });
  const T under_root = a.clamp ? squares : squares + a.eps;
  T r = 1 / std::sqrt(under_root);
  if (SquaresFailed(squares, under_root)) {
    const T count = static_cast<T>(a.n);
    r = ScaledMoments(x, a.n, a.clamp ? T{0} : a.eps / count, false).rstd / std::sqrt(count);
  }
  return a.clamp && r > 1 / a.eps ? 1 / a.eps : r;  // NaN stays
}

template <typename T>
void L2ForwardT(const L2Rows<T>& a, const T* x, T* y, T* r) {
  const hn::ScalableTag<T> d;
  if (a.n == 0) return;
  for (size_t row = 0; row < a.rows; ++row, x += a.n, y += a.n) {
    r[row] = InverseLength(a, x);
    const auto factor = hn::Set(d, r[row]);
    ForVectors(d, a.n, [&](auto partial, size_t i, size_t left) HWY_ATTR {
      constexpr bool kPartial = decltype(partial)::value;
      StoreSome<kPartial>(d, hn::Mul(factor, LoadSome<kPartial>(d, x + i, left)), y + i, left);  // (D1)
    });
  }
}

template <bool kAdd, typename T>
void L2BackwardT(const L2Rows<T>& a, const T* y, const T* r, const T* dy, T* dx) {
  const hn::ScalableTag<T> d;
  if (a.n == 0) return;
  for (size_t row = 0; row < a.rows; ++row, y += a.n, dy += a.n, dx += a.n) {
    // Where the least length is in use, r doesn't depend on the row.
    const bool turns = !a.clamp || r[row] < 1 / a.eps;
    const T along = SumOfVectors(d, turns ? a.n : 0, [&](auto partial, size_t i, size_t left) HWY_ATTR {
      return hn::Mul(LoadSome<decltype(partial)::value>(d, y + i, left),
                     LoadSome<decltype(partial)::value>(d, dy + i, left));
    });
    const auto dot = hn::Set(d, along);
    const auto factor = hn::Set(d, r[row]);
    ForVectors(d, a.n, [&](auto partial, size_t i, size_t left) HWY_ATTR {
      constexpr bool kPartial = decltype(partial)::value;
      const auto across =
          hn::NegMulAdd(LoadSome<kPartial>(d, y + i, left), dot, LoadSome<kPartial>(d, dy + i, left));
      auto g = hn::Mul(factor, across);  // (D2)
      if constexpr (kAdd) g = hn::Add(g, LoadSome<kPartial>(d, dx + i, left));
      StoreSome<kPartial>(d, g, dx + i, left);
    });
  }
}

void L2ForwardF(const L2Rows<float>& a, const float* x, float* y, float* r) {
  L2ForwardT(a, x, y, r);
}
void L2ForwardD(const L2Rows<double>& a, const double* x, double* y, double* r) {
  L2ForwardT(a, x, y, r);
}
void L2BackwardF(const L2Rows<float>& a, const float* y, const float* r, const float* dy, float* dx,
                 bool add) {
  add ? L2BackwardT<true>(a, y, r, dy, dx) : L2BackwardT<false>(a, y, r, dy, dx);
}
void L2BackwardD(const L2Rows<double>& a, const double* y, const double* r, const double* dy, double* dx,
                 bool add) {
  add ? L2BackwardT<true>(a, y, r, dy, dx) : L2BackwardT<false>(a, y, r, dy, dx);
}

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace storytape {
namespace {
HWY_EXPORT(L2ForwardF);
HWY_EXPORT(L2ForwardD);
HWY_EXPORT(L2BackwardF);
HWY_EXPORT(L2BackwardD);
}  // namespace

template <>
void l2_normalize_forward(const L2Rows<float>& rows, const float* x, float* y, float* r) {
  SIMD_DISPATCH(L2ForwardF)(rows, x, y, r);
}
template <>
void l2_normalize_forward(const L2Rows<double>& rows, const double* x, double* y, double* r) {
  SIMD_DISPATCH(L2ForwardD)(rows, x, y, r);
}
template <>
void l2_normalize_backward(const L2Rows<float>& rows, const float* y, const float* r, const float* dy,
                           float* dx, bool add) {
  SIMD_DISPATCH(L2BackwardF)(rows, y, r, dy, dx, add);
}
template <>
void l2_normalize_backward(const L2Rows<double>& rows, const double* y, const double* r, const double* dy,
                           double* dx, bool add) {
  SIMD_DISPATCH(L2BackwardD)(rows, y, r, dy, dx, add);
}

}  // namespace storytape
#endif  // HWY_ONCE
