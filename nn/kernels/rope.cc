#include "nn/kernels/rope.h"

#include <algorithm>

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

// `left` pairs (a, b) of one head's row, from pair i on.
template <bool kNeighbours, bool kPartial, class D, class V, typename T = hn::TFromD<D>>
HWY_INLINE void LoadPairs(D d, size_t half, size_t i, size_t left, const T* x, V& a, V& b) {
  if constexpr (!kNeighbours) {
    a = LoadSome<kPartial>(d, x + i, left);
    b = LoadSome<kPartial>(d, x + half + i, left);
  } else if constexpr (kPartial) {
    T pairs[2 * hn::MaxLanes(D())] = {};
    std::copy_n(x + 2 * i, 2 * left, pairs);
    hn::LoadInterleaved2(d, pairs, a, b);
  } else {
    hn::LoadInterleaved2(d, x + 2 * i, a, b);
  }
}
template <bool kNeighbours, bool kPartial, class D, class V, typename T = hn::TFromD<D>>
HWY_INLINE void StorePairs(D d, size_t half, size_t i, size_t left, V a, V b, T* x) {
  if constexpr (!kNeighbours) {
    StoreSome<kPartial>(d, a, x + i, left);
    StoreSome<kPartial>(d, b, x + half + i, left);
  } else if constexpr (kPartial) {
    T pairs[2 * hn::MaxLanes(D())];
    hn::StoreInterleaved2(a, b, d, pairs);
    std::copy_n(pairs, 2 * left, x + 2 * i);
  } else {
    hn::StoreInterleaved2(a, b, d, x + 2 * i);
  }
}

// The row of one token, every head.
template <bool kNeighbours, class D, typename T = hn::TFromD<D>>
HWY_INLINE void RotateRow(D d, const RopeRows<T>& r, const T* cosines, const T* sines, const T* x, T* y) {
  for (size_t h = 0; h < r.heads; ++h, x += r.size, y += r.size) {
    ForVectors(d, r.half, [&](auto partial, size_t i, size_t left) HWY_ATTR {
      constexpr bool kPartial = decltype(partial)::value;
      const auto c = LoadSome<kPartial>(d, cosines + i, left);
      const auto s = LoadSome<kPartial>(d, sines + i, left);
      hn::Vec<D> a, b;
      LoadPairs<kNeighbours, kPartial>(d, r.half, i, left, x, a, b);
      StorePairs<kNeighbours, kPartial>(d, r.half, i, left, hn::NegMulAdd(b, s, hn::Mul(a, c)),
                                        hn::MulAdd(a, s, hn::Mul(b, c)), y);  // (P2)
    });
    PassRow<false>(d, r.size - 2 * r.half, x + 2 * r.half, y + 2 * r.half);
  }
}

// The same back.
template <bool kNeighbours, bool kAdd, class D, typename T = hn::TFromD<D>>
HWY_INLINE void RotateRowBackward(D d, const RopeRows<T>& r, const T* cosines, const T* sines, const T* dy,
                                  T* dx) {
  for (size_t h = 0; h < r.heads; ++h, dy += r.size, dx += r.size) {
    ForVectors(d, r.half, [&](auto partial, size_t i, size_t left) HWY_ATTR {
      constexpr bool kPartial = decltype(partial)::value;
      const auto c = LoadSome<kPartial>(d, cosines + i, left);
      const auto s = LoadSome<kPartial>(d, sines + i, left);
      hn::Vec<D> da, db;
      LoadPairs<kNeighbours, kPartial>(d, r.half, i, left, dy, da, db);
      auto a = hn::MulAdd(db, s, hn::Mul(da, c));     // (P3)
      auto b = hn::NegMulAdd(da, s, hn::Mul(db, c));  // (P3)
      if constexpr (kAdd) {
        hn::Vec<D> before_a, before_b;
        LoadPairs<kNeighbours, kPartial>(d, r.half, i, left, dx, before_a, before_b);
        a = hn::Add(a, before_a);
        b = hn::Add(b, before_b);
      }
      StorePairs<kNeighbours, kPartial>(d, r.half, i, left, a, b, dx);
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

template <bool kNeighbours, typename T>
void RotateT(const RopeRows<T>& r, const T* x, T* y) {
  const hn::ScalableTag<T> d;
  EachToken(r, [&](const T* cosines, const T* sines, size_t at)
                   HWY_ATTR { RotateRow<kNeighbours>(d, r, cosines, sines, x + at, y + at); });
}

template <bool kNeighbours, bool kAdd, typename T>
void RotateBackwardT(const RopeRows<T>& r, const T* dy, T* dx) {
  const hn::ScalableTag<T> d;
  EachToken(r, [&](const T* cosines, const T* sines, size_t at) HWY_ATTR {
    RotateRowBackward<kNeighbours, kAdd>(d, r, cosines, sines, dy + at, dx + at);
  });
}

void RotateF(const RopeRows<float>& r, const float* x, float* y) {
  r.neighbours ? RotateT<true>(r, x, y) : RotateT<false>(r, x, y);
}
void RotateD(const RopeRows<double>& r, const double* x, double* y) {
  r.neighbours ? RotateT<true>(r, x, y) : RotateT<false>(r, x, y);
}
template <typename T>
void RotateBackward(const RopeRows<T>& r, const T* dy, T* dx, bool add) {
  if (r.neighbours)
    return add ? RotateBackwardT<true, true>(r, dy, dx) : RotateBackwardT<true, false>(r, dy, dx);
  add ? RotateBackwardT<false, true>(r, dy, dx) : RotateBackwardT<false, false>(r, dy, dx);
}
void RotateBackwardF(const RopeRows<float>& r, const float* dy, float* dx, bool add) {
  RotateBackward(r, dy, dx, add);
}
void RotateBackwardD(const RopeRows<double>& r, const double* dy, double* dx, bool add) {
  RotateBackward(r, dy, dx, add);
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
