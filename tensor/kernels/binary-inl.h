// Arithmetic of two arrays, one of whose rows or values may repeat. Included per target.
#if defined(STORYTAPE_TENSOR_KERNELS_BINARY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_TENSOR_KERNELS_BINARY_INL_H_
#undef STORYTAPE_TENSOR_KERNELS_BINARY_INL_H_
#else
#define STORYTAPE_TENSOR_KERNELS_BINARY_INL_H_
#endif

#include "tensor/elementwise.h"
#include "tensor/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct AddOp {
  template <class V>
  static HWY_INLINE V F(V a, V b) {
    return hn::Add(a, b);
  }
};
struct SubOp {
  template <class V>
  static HWY_INLINE V F(V a, V b) {
    return hn::Sub(a, b);
  }
};
struct MulOp {
  template <class V>
  static HWY_INLINE V F(V a, V b) {
    return hn::Mul(a, b);
  }
};
struct DivOp {
  template <class V>
  static HWY_INLINE V F(V a, V b) {
    return hn::Div(a, b);
  }
};

// (B1) y[i] = a[i] op b[i], where kRepeat says that a[0] or b[0] stands for the whole row
template <class Op, bool kRepeatA, bool kRepeatB, class T>
HWY_INLINE void BinaryRow(const T* a, const T* b, T* y, size_t n) {
  const hn::ScalableTag<T> d;
  const auto a0 = hn::Set(d, a[0]);
  const auto b0 = hn::Set(d, b[0]);
  ForVectors(d, n, [&](auto partial, size_t i, size_t count) HWY_ATTR {
    constexpr bool kPartial = decltype(partial)::value;
    const auto ai = kRepeatA ? a0 : LoadSome<kPartial>(d, a + i, count);
    const auto bi = kRepeatB ? b0 : LoadSome<kPartial>(d, b + i, count);
    StoreSome<kPartial>(d, Op::F(ai, bi), y + i, count);
  });
}

template <class Op, bool kRepeatA, bool kRepeatB, class T>
HWY_NOINLINE void BinaryLoop(const BinaryRows& s, const T* a, const T* b, T* y) {
  for (size_t row = 0; row < s.rows; ++row) {
    BinaryRow<Op, kRepeatA, kRepeatB>(a + row * s.a_row_stride, b + row * s.b_row_stride, y + row * s.n, s.n);
  }
}

template <class Op, class T>
HWY_INLINE void BinaryStrides(const BinaryRows& s, const T* a, const T* b, T* y) {
  if (s.a_stride && s.b_stride) return BinaryLoop<Op, false, false>(s, a, b, y);
  if (s.a_stride) return BinaryLoop<Op, false, true>(s, a, b, y);
  if (s.b_stride) return BinaryLoop<Op, true, false>(s, a, b, y);
  return BinaryLoop<Op, true, true>(s, a, b, y);
}

template <class T>
HWY_INLINE void BinaryAll(Binary op, const BinaryRows& s, const T* a, const T* b, T* y) {
  if (s.rows == 0 || s.n == 0) return;
  switch (op) {
    case Binary::kAdd:
      return BinaryStrides<AddOp>(s, a, b, y);
    case Binary::kSub:
      return BinaryStrides<SubOp>(s, a, b, y);
    case Binary::kMul:
      return BinaryStrides<MulOp>(s, a, b, y);
    case Binary::kDiv:
      return BinaryStrides<DivOp>(s, a, b, y);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
