// In-place updates of arrays: sums of gradients and the optimizer's step. Included per target.
#if defined(STORYTAPE_TENSOR_KERNELS_UPDATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_TENSOR_KERNELS_UPDATE_INL_H_
#undef STORYTAPE_TENSOR_KERNELS_UPDATE_INL_H_
#else
#define STORYTAPE_TENSOR_KERNELS_UPDATE_INL_H_
#endif

#include <algorithm>
#include <bit>

#include "tensor/elementwise.h"
#include "tensor/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// y[i] = f(x[i], y[i])
template <class T, class F>
HWY_INLINE void UpdateLoop(const T* x, T* y, size_t n, const F& f) {
  const hn::ScalableTag<T> d;
  ForVectors(d, n, [&](auto partial, size_t i, size_t count) HWY_ATTR {
    constexpr bool kPartial = decltype(partial)::value;
    StoreSome<kPartial>(d, f(LoadSome<kPartial>(d, x + i, count), LoadSome<kPartial>(d, y + i, count)), y + i,
                        count);
  });
}

// (P1) y += x
template <class T>
HWY_INLINE void AddInto(T* y, const T* x, size_t n) {
  using V = hn::Vec<hn::ScalableTag<T>>;
  UpdateLoop(x, y, n, [](V xi, V yi) HWY_ATTR { return hn::Add(yi, xi); });
}

// (P2) y += a x
template <class T>
HWY_INLINE void Axpy(T a, const T* x, T* y, size_t n) {
  using V = hn::Vec<hn::ScalableTag<T>>;
  const V factor = hn::Set(hn::ScalableTag<T>(), a);
  UpdateLoop(x, y, n, [&](V xi, V yi) HWY_ATTR { return hn::MulAdd(factor, xi, yi); });
}

// (P3) y = a x
template <class T>
HWY_INLINE void Scale(T a, const T* x, T* y, size_t n) {
  using V = hn::Vec<hn::ScalableTag<T>>;
  const hn::ScalableTag<T> d;
  const V factor = hn::Set(d, a);
  ForVectors(d, n, [&](auto partial, size_t i, size_t count) HWY_ATTR {
    constexpr bool kPartial = decltype(partial)::value;
    StoreSome<kPartial>(d, hn::Mul(factor, LoadSome<kPartial>(d, x + i, count)), y + i, count);
  });
}

// (P4) y += w (x - y)
template <class T>
HWY_INLINE void Lerp(T w, const T* x, T* y, size_t n) {
  using V = hn::Vec<hn::ScalableTag<T>>;
  const V weight = hn::Set(hn::ScalableTag<T>(), w);
  UpdateLoop(x, y, n, [&](V xi, V yi) HWY_ATTR { return hn::MulAdd(weight, hn::Sub(xi, yi), yi); });
}

// One vector of the sum of kCount blocks, in the tree of tree_sum.
template <size_t kCount, class D, class Load>
HWY_INLINE hn::Vec<D> TreeOf(D d, size_t first, const Load& load) {
  if constexpr (kCount == 1) {
    return load(first);
  } else {
    constexpr size_t kLeft = std::bit_floor(kCount - 1);
    return hn::Add(TreeOf<kLeft>(d, first, load), TreeOf<kCount - kLeft>(d, first + kLeft, load));
  }
}

// dst[0, n) = the sum of the blocks' values from `offset` on.
template <size_t kCount, class T>
HWY_NOINLINE void TreeSumFew(T* dst, const T* const* blocks, size_t offset, size_t n) {
  const hn::ScalableTag<T> d;
  ForVectors(d, n, [&](auto partial, size_t i, size_t count) HWY_ATTR {
    constexpr bool kPartial = decltype(partial)::value;
    const auto load = [&](size_t b) HWY_ATTR { return LoadSome<kPartial>(d, blocks[b] + offset + i, count); };
    StoreSome<kPartial>(d, TreeOf<kCount>(d, 0, load), dst + i, count);
  });
}

inline constexpr size_t kTreePiece = 512;

// As TreeSumFew for any count. REQUIRES: n <= kTreePiece.
template <class T>
HWY_NOINLINE void TreeSumPiece(T* dst, const T* const* blocks, size_t count, size_t offset, size_t n) {
  switch (count) {
    case 1:
      return TreeSumFew<1>(dst, blocks, offset, n);
    case 2:
      return TreeSumFew<2>(dst, blocks, offset, n);
    case 3:
      return TreeSumFew<3>(dst, blocks, offset, n);
    case 4:
      return TreeSumFew<4>(dst, blocks, offset, n);
    case 5:
      return TreeSumFew<5>(dst, blocks, offset, n);
    case 6:
      return TreeSumFew<6>(dst, blocks, offset, n);
    case 7:
      return TreeSumFew<7>(dst, blocks, offset, n);
    case 8:
      return TreeSumFew<8>(dst, blocks, offset, n);
    default:
      break;
  }
  const size_t left = std::bit_floor(count - 1);
  HWY_ALIGN_MAX T rest[kTreePiece];
  TreeSumPiece(rest, blocks + left, count - left, offset, n);
  // Last, since dst may be the first block.
  TreeSumPiece(dst, blocks, left, offset, n);
  AddInto(dst, rest, n);
}

// (P5) dst = tree(blocks[0], ..., blocks[count - 1])
template <class T>
HWY_INLINE void TreeSum(T* dst, const T* const* blocks, size_t count, size_t n) {
  for (size_t i = 0; i < n; i += kTreePiece)
    TreeSumPiece(dst + i, blocks, count, i, std::min(kTreePiece, n - i));
}

// AdamW, all moments in T:
//   (A1) g' = grad_scale g
//   (A2) m  = beta1 m + (1 - beta1) g'
//   (A3) v  = beta2 v + (1 - beta2) g'^2
//   (A4) p  = (1 - lr weight_decay) p
//   (A5) p -= lr (m / bias1) / (sqrt(v / bias2) + eps)
template <class T>
HWY_INLINE void AdamWStep(const AdamW& s, T* p, T* m, T* v, const T* g, size_t n) {
  const hn::ScalableTag<T> d;
  const auto set = [&](double x) HWY_ATTR { return hn::Set(d, static_cast<T>(x)); };
  const auto grad_scale = set(s.grad_scale);
  const auto beta1 = set(s.beta1);
  const auto beta2 = set(s.beta2);
  const auto one_minus_beta1 = set(1 - s.beta1);
  const auto one_minus_beta2 = set(1 - s.beta2);
  const auto decay = set(1 - s.lr * s.weight_decay);
  const auto rate = set(s.lr / s.bias1);
  const auto inverse_bias2 = set(1 / s.bias2);
  const auto eps = set(s.eps);
  using V = hn::Vec<hn::ScalableTag<T>>;
  ForVectors(d, n, [&](auto partial, size_t i, size_t count) HWY_ATTR {
    constexpr bool kPartial = decltype(partial)::value;
    const V gi = hn::Mul(LoadSome<kPartial>(d, g + i, count), grad_scale);  // (A1)
    V mi = LoadSome<kPartial>(d, m + i, count);
    V vi = LoadSome<kPartial>(d, v + i, count);
    V pi = LoadSome<kPartial>(d, p + i, count);
    mi = hn::MulAdd(beta1, mi, hn::Mul(one_minus_beta1, gi));               // (A2)
    vi = hn::MulAdd(beta2, vi, hn::Mul(hn::Mul(one_minus_beta2, gi), gi));  // (A3)
    pi = hn::Mul(decay, pi);                                                // (A4)
    const V root = hn::Add(hn::Sqrt(hn::Mul(vi, inverse_bias2)), eps);
    pi = hn::NegMulAdd(rate, hn::Div(mi, root), pi);  // (A5)
    StoreSome<kPartial>(d, pi, p + i, count);
    StoreSome<kPartial>(d, mi, m + i, count);
    StoreSome<kPartial>(d, vi, v + i, count);
  });
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
