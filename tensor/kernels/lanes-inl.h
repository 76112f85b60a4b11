// Loads and stores of fewer values than a vector holds, and clamps that keep NaN. Included per target.
#if defined(STORYTAPE_TENSOR_KERNELS_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_TENSOR_KERNELS_LANES_INL_H_
#undef STORYTAPE_TENSOR_KERNELS_LANES_INL_H_
#else
#define STORYTAPE_TENSOR_KERNELS_LANES_INL_H_
#endif

#include <cstddef>
#include <type_traits>

#include "tensor/simd_targets.h"
// After simd_targets.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#undef STORYTAPE_MASKED_MOVES
// AVX2's masked moves of floats and doubles never touch the lanes left out, although those of narrower types
// may.
#if !HWY_MEM_OPS_MIGHT_FAULT || HWY_TARGET == HWY_AVX2
#define STORYTAPE_MASKED_MOVES 1
#else
#define STORYTAPE_MASKED_MOVES 0
#endif

// p[0..n) and zeros; reads nothing past p[n-1]. REQUIRES: n <= Lanes(d).
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadPartial(D d, const T* HWY_RESTRICT p, size_t n) {
#if STORYTAPE_MASKED_MOVES
  return hn::MaskedLoad(hn::FirstN(d, n), d, p);
#else
  HWY_ALIGN_MAX T lanes[HWY_MAX_BYTES / sizeof(T)];
  hn::Store(hn::Zero(d), d, lanes);
  for (size_t i = 0; i < n; ++i) lanes[i] = p[i];
  return hn::Load(d, lanes);
#endif
}

// Writes p[0..n) alone. REQUIRES: n <= Lanes(d).
template <class D, class V, class T = hn::TFromD<D>>
HWY_INLINE void StorePartial(D d, V v, T* HWY_RESTRICT p, size_t n) {
#if STORYTAPE_MASKED_MOVES
  hn::BlendedStore(v, hn::FirstN(d, n), d, p);
#else
  HWY_ALIGN_MAX T lanes[HWY_MAX_BYTES / sizeof(T)];
  hn::Store(v, d, lanes);
  for (size_t i = 0; i < n; ++i) p[i] = lanes[i];
#endif
}

// p[0..Lanes(d)), or p[0..n) and zeros.
template <bool kPartial, class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadSome(D d, const T* HWY_RESTRICT p, size_t n) {
  if constexpr (kPartial) return LoadPartial(d, p, n);
  return hn::LoadU(d, p);
}
template <bool kPartial, class D, class V, class T = hn::TFromD<D>>
HWY_INLINE void StoreSome(D d, V v, T* HWY_RESTRICT p, size_t n) {
  if constexpr (kPartial) {
    StorePartial(d, v, p, n);
  } else {
    hn::StoreU(v, d, p);
  }
}

// Calls f(std::bool_constant<kPartial>, i, lanes) for the vectors that make up [0, n), the last one partial
// if n isn't a multiple of Lanes(d).
template <class D, class F>
HWY_INLINE void ForVectors(D d, size_t n, const F& f) {
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) f(std::false_type(), i, lanes);
  if (i < n) f(std::true_type(), i, n - i);
}

// Up to three sums over [0, n) at once: f(partial, i, lanes, a, b, c) adds its vectors to the running sums a,
// b, c and leaves the lanes past n alone (adds 0). Two sets of running sums, folded every 128 vectors: the
// order depends on n and the vector's width alone.
template <class T>
struct Sums {
  T a, b, c;
};
template <class D, class F>
HWY_INLINE Sums<hn::TFromD<D>> SumsOfVectors(D d, size_t n, const F& f) {
  const size_t lanes = hn::Lanes(d);
  auto a = hn::Zero(d), b = hn::Zero(d), c = hn::Zero(d);
  size_t i = 0;
  while (i + lanes <= n) {
    auto a0 = hn::Zero(d), a1 = hn::Zero(d), b0 = hn::Zero(d), b1 = hn::Zero(d), c0 = hn::Zero(d),
         c1 = hn::Zero(d);
    size_t round = 0;
    for (; round < 64 && i + 2 * lanes <= n; ++round, i += 2 * lanes) {
      f(std::false_type(), i, lanes, a0, b0, c0);
      f(std::false_type(), i + lanes, lanes, a1, b1, c1);
    }
    if (round < 64 && i + lanes <= n) {
      f(std::false_type(), i, lanes, a0, b0, c0);
      i += lanes;
    }
    a = hn::Add(a, hn::Add(a0, a1));
    b = hn::Add(b, hn::Add(b0, b1));
    c = hn::Add(c, hn::Add(c0, c1));
  }
  if (i < n) f(std::true_type(), i, n - i, a, b, c);
  return {hn::GetLane(hn::SumOfLanes(d, a)), hn::GetLane(hn::SumOfLanes(d, b)),
          hn::GetLane(hn::SumOfLanes(d, c))};
}

// The sum of f's vectors over [0, n), f as in ForVectors and 0 in the lanes past n; in the order of
// SumsOfVectors.
template <class D, class F>
HWY_INLINE hn::TFromD<D> SumOfVectors(D d, size_t n, const F& f) {
  using V = hn::Vec<D>;
  return SumsOfVectors(d, n,
                       [&](auto partial, size_t i, size_t count, V& a, V& /*b*/, V& /*c*/)
                           HWY_ATTR { a = hn::Add(a, f(partial, i, count)); })
      .a;
}

// The largest of a vector's values, -inf if all are (where hn::MaxOfLanes may start from the lowest finite
// number). NaN may or may not be seen.
template <class D, class V, class T = hn::TFromD<D>>
HWY_INLINE T LargestLane(D d, V v) {
#if HWY_TARGET == HWY_EMU128
  HWY_ALIGN T lanes[HWY_MAX_BYTES / sizeof(T)];
  hn::Store(v, d, lanes);
  T largest = lanes[0];
  for (size_t i = 1; i < hn::Lanes(d); ++i) largest = lanes[i] > largest ? lanes[i] : largest;
  return largest;
#else
  return hn::GetLane(hn::MaxOfLanes(d, v));
#endif
}

// min(x, high) and max(x, low), NaN where x is NaN: the machine's own minimum in an order that keeps it where
// the instruction is known to, else by comparing.
template <class D, class V, class T = hn::TFromD<D>>
HWY_INLINE V AtMost(D d, V x, T high) {
#if (HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128) || HWY_ARCH_ARM
  return hn::Min(hn::Set(d, high), x);
#else
  const V bound = hn::Set(d, high);
  return hn::IfThenElse(hn::Gt(x, bound), bound, x);
#endif
}
template <class D, class V, class T = hn::TFromD<D>>
HWY_INLINE V AtLeast(D d, V x, T low) {
#if (HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128) || HWY_ARCH_ARM
  return hn::Max(hn::Set(d, low), x);
#else
  const V bound = hn::Set(d, low);
  return hn::IfThenElse(hn::Lt(x, bound), bound, x);
#endif
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
