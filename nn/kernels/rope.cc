#include "nn/kernels/rope.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/rope.cc"
#include "tensor/simd.h"
#include "tensor/simd_targets.h"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tensor/kernels/lanes-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// y = x, or y += x.
template <bool kAdd, class D, typename T = hn::TFromD<D>>
HWY_INLINE void PassRow(D d, size_t n, const T* x, T* y) {
  ForVectors(d, n, [&](auto partial, size_t i, size_t left) HWY_ATTR {
    constexpr bool kPartial = decltype(partial)::value;
    auto v = LoadSome<kPartial>(d, x + i, left);
    if constexpr (kAdd) v = hn::Add(v, LoadSome<kPartial>(d, y + i, left));
    StoreSome<kPartial>(d, v, y + i, left);
  });
}

// The row of one token, every head: a is a head's first half, b its second.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void RotateRow(D d, const RopeRows<T>& r, const T* cosines, const T* sines, const T* x, T* y) {
  for (size_t h = 0; h < r.heads; ++h, x += r.size, y += r.size) {
    ForVectors(d, r.half, [&](auto partial, size_t i, size_t left) HWY_ATTR {
      constexpr bool kPartial = decltype(partial)::value;
      const auto c = LoadSome<kPartial>(d, cosines + i, left);
      const auto s = LoadSome<kPartial>(d, sines + i, left);
      const auto a = LoadSome<kPartial>(d, x + i, left);
      const auto b = LoadSome<kPartial>(d, x + r.half + i, left);
      StoreSome<kPartial>(d, hn::NegMulAdd(b, s, hn::Mul(a, c)), y + i, left);        // (P2)
      StoreSome<kPartial>(d, hn::MulAdd(a, s, hn::Mul(b, c)), y + r.half + i, left);  // (P2)
    });
    PassRow<false>(d, r.size - 2 * r.half, x + 2 * r.half, y + 2 * r.half);
  }
}

// The same back.
template <bool kAdd, class D, typename T = hn::TFromD<D>>
HWY_INLINE void RotateRowBackward(D d, const RopeRows<T>& r, const T* cosines, const T* sines, const T* dy,
                                  T* dx) {
  for (size_t h = 0; h < r.heads; ++h, dy += r.size, dx += r.size) {
    ForVectors(d, r.half, [&](auto partial, size_t i, size_t left) HWY_ATTR {
      constexpr bool kPartial = decltype(partial)::value;
      const auto c = LoadSome<kPartial>(d, cosines + i, left);
      const auto s = LoadSome<kPartial>(d, sines + i, left);
      const auto da = LoadSome<kPartial>(d, dy + i, left);
      const auto db = LoadSome<kPartial>(d, dy + r.half + i, left);
      auto a = hn::MulAdd(db, s, hn::Mul(da, c));     // (P3)
      auto b = hn::NegMulAdd(da, s, hn::Mul(db, c));  // (P3)
      if constexpr (kAdd) {
        a = hn::Add(a, LoadSome<kPartial>(d, dx + i, left));
        b = hn::Add(b, LoadSome<kPartial>(d, dx + r.half + i, left));
      }
      StoreSome<kPartial>(d, a, dx + i, left);
      StoreSome<kPartial>(d, b, dx + r.half + i, left);
    });
    PassRow<kAdd>(d, r.size - 2 * r.half, dy + 2 * r.half, dx + 2 * r.half);
  }
}

// row(cosines, sines, first element) for every token.
template <typename T, class Row>
HWY_INLINE void EachToken(const RopeRows<T>& r, const Row& row) {
  for (size_t i = 0; i < r.batch * r.tokens; ++i) {
    const size_t angle = i % r.tokens * r.half;
    row(r.cosines + angle, r.sines + angle, i * r.heads * r.size);
  }
}

template <typename T>
void RotateT(const RopeRows<T>& r, const T* x, T* y) {
  const hn::ScalableTag<T> d;
  EachToken(r, [&](const T* cosines, const T* sines, size_t at)
                   HWY_ATTR { RotateRow(d, r, cosines, sines, x + at, y + at); });
}

template <bool kAdd, typename T>
void RotateBackwardT(const RopeRows<T>& r, const T* dy, T* dx) {
  const hn::ScalableTag<T> d;
  EachToken(r, [&](const T* cosines, const T* sines, size_t at)
                   HWY_ATTR { RotateRowBackward<kAdd>(d, r, cosines, sines, dy + at, dx + at); });
}

void RotateF(const RopeRows<float>& r, const float* x, float* y) {
  RotateT(r, x, y);
}
void RotateD(const RopeRows<double>& r, const double* x, double* y) {
  RotateT(r, x, y);
}
void RotateBackwardF(const RopeRows<float>& r, const float* dy, float* dx, bool add) {
  add ? RotateBackwardT<true>(r, dy, dx) : RotateBackwardT<false>(r, dy, dx);
}
void RotateBackwardD(const RopeRows<double>& r, const double* dy, double* dx, bool add) {
  add ? RotateBackwardT<true>(r, dy, dx) : RotateBackwardT<false>(r, dy, dx);
}

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace storytape {
namespace {
HWY_EXPORT(RotateF);
HWY_EXPORT(RotateD);
HWY_EXPORT(RotateBackwardF);
HWY_EXPORT(RotateBackwardD);
}  // namespace

template <>
void rope_rotate(const RopeRows<float>& rows, const float* x, float* y) {
  SIMD_DISPATCH(RotateF)(rows, x, y);
}
template <>
void rope_rotate(const RopeRows<double>& rows, const double* x, double* y) {
  SIMD_DISPATCH(RotateD)(rows, x, y);
}
template <>
void rope_rotate_back(const RopeRows<float>& rows, const float* dy, float* dx, bool add) {
  SIMD_DISPATCH(RotateBackwardF)(rows, dy, dx, add);
}
template <>
void rope_rotate_back(const RopeRows<double>& rows, const double* dy, double* dx, bool add) {
  SIMD_DISPATCH(RotateBackwardD)(rows, dy, dx, add);
}

}  // namespace storytape
#endif  // HWY_ONCE
