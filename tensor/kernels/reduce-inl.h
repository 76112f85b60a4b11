// Sums and maxima. Included per target.
#if defined(STORYTAPE_TENSOR_KERNELS_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_TENSOR_KERNELS_REDUCE_INL_H_
#undef STORYTAPE_TENSOR_KERNELS_REDUCE_INL_H_
#else
#define STORYTAPE_TENSOR_KERNELS_REDUCE_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tensor/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ------------------------------------------------------------------------------------------------ one long
// sum
//   (S1) the sum over [0, n): blocks of kSumBlock elements in a balanced tree; in a block, element i goes to
//   running sum
//        i mod kSumLanes, and these are folded by halves. So the order is the same for vectors of any width.
inline constexpr size_t kSumLanes = 64;
inline constexpr size_t kSumBlock = 4096;

// What a sum adds: V(d, i) is the vector of the terms from i on, Scalar(i) one term; both are added to a
// running sum.
template <class T>
struct SumTerm {
  using Sum = T;
  const T* x;
  template <class D, class V>
  HWY_INLINE V Vector(D d, size_t i, V sum) const {
    return hn::Add(sum, hn::LoadU(d, x + i));
  }
  HWY_INLINE T Scalar(size_t i, T sum) const { return sum + x[i]; }
};
template <class T>
struct DotTerm {
  using Sum = T;
  const T* a;
  const T* b;
  template <class D, class V>
  HWY_INLINE V Vector(D d, size_t i, V sum) const {
    return hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum);
  }
  HWY_INLINE T Scalar(size_t i, T sum) const { return a[i] * b[i] + sum; }
};
template <class T>
struct SquareTerm {
  using Sum = double;
  const T* x;
  template <class D, class V>
  HWY_INLINE V Vector(D d, size_t i, V sum) const {
    if constexpr (sizeof(T) == 4) {
      const V v = hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, D>(), x + i));
      return hn::MulAdd(v, v, sum);
    } else {
      const V v = hn::LoadU(d, x + i);
      return hn::MulAdd(v, v, sum);
    }
  }
  HWY_INLINE double Scalar(size_t i, double sum) const {
    const double v = static_cast<double>(x[i]);
    return v * v + sum;
  }
};

template <class Term>
HWY_NOINLINE typename Term::Sum SumBlock(const Term& term, size_t begin, size_t end) {
  using S = typename Term::Sum;
  const hn::CappedTag<S, kSumLanes / 4> d;
  const size_t lanes = hn::Lanes(d);
  HWY_ALIGN_MAX S sums[kSumLanes];
  const size_t whole = begin + (end - begin) / kSumLanes * kSumLanes;
  for (size_t lane = 0; lane < kSumLanes; lane += 4 * lanes) {
    auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
    for (size_t i = begin + lane; i < whole; i += kSumLanes) {
      s0 = term.Vector(d, i, s0);
      s1 = term.Vector(d, i + lanes, s1);
      s2 = term.Vector(d, i + 2 * lanes, s2);
      s3 = term.Vector(d, i + 3 * lanes, s3);
    }
    hn::Store(s0, d, sums + lane);
    hn::Store(s1, d, sums + lane + lanes);
    hn::Store(s2, d, sums + lane + 2 * lanes);
    hn::Store(s3, d, sums + lane + 3 * lanes);
  }
  for (size_t i = whole; i < end; ++i) sums[i - whole] = term.Scalar(i, sums[i - whole]);
  for (size_t half = kSumLanes / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

template <class Term>
HWY_NOINLINE typename Term::Sum SumTree(const Term& term, size_t begin, size_t end) {
  if (end - begin <= kSumBlock) return SumBlock(term, begin, end);
  const size_t blocks = (end - begin + kSumBlock - 1) / kSumBlock;
  const size_t middle = begin + std::bit_floor(blocks - 1) * kSumBlock;
  return SumTree(term, begin, middle) + SumTree(term, middle, end);
}

// 0 x is NaN for what isn't finite, and stays so in a sum.
template <class T>
HWY_INLINE bool AllFinite(const T* x, size_t n) {
  const hn::ScalableTag<T> d;
  const auto zero = hn::Zero(d);
  const T sum = SumOfVectors(d, n, [&](auto partial, size_t i, size_t count) HWY_ATTR {
    return hn::Mul(LoadSome<decltype(partial)::value>(d, x + i, count), zero);
  });
  return sum == T{0};
}

// ------------------------------------------------------------------------------------------------ sums over
// an axis
//   (S2) y[o][j] = sum_k x[o][k][j]: rows k in runs, runs in blocks, block after block added to y, for each j
//   alike. A
//        run has about cbrt(m) rows, a block as many runs, so that no sum has many more terms than that.

HWY_INLINE size_t RowsPerRun(size_t m) {
  const size_t bits = static_cast<size_t>(std::bit_width(m));
  return std::max(size_t{16}, size_t{1} << (bits + 2) / 3);
}

template <class T>
HWY_NOINLINE void SumRows(const T* x, T* y, size_t m, size_t inner, bool accumulate) {
  const hn::ScalableTag<T> d;
  const size_t run = RowsPerRun(m);
  const size_t block = run * run;
  for (size_t begin = 0; begin < m; begin += block) {
    const size_t end = std::min(m, begin + block);
    const bool add = accumulate || begin > 0;
    ForVectors(d, inner, [&](auto partial, size_t j, size_t count) HWY_ATTR {
      constexpr bool kPartial = decltype(partial)::value;
      auto sum = hn::Zero(d);
      for (size_t first = begin; first < end; first += run) {
        const size_t last = std::min(end, first + run);
        auto rows = LoadSome<kPartial>(d, x + first * inner + j, count);
        for (size_t k = first + 1; k < last; ++k)
          rows = hn::Add(rows, LoadSome<kPartial>(d, x + k * inner + j, count));
        sum = hn::Add(sum, rows);
      }
      if (add) sum = hn::Add(LoadSome<kPartial>(d, y + j, count), sum);
      StoreSome<kPartial>(d, sum, y + j, count);
    });
  }
}

template <class T>
HWY_INLINE void SumMiddle(const T* x, T* y, size_t outer, size_t m, size_t inner, bool accumulate) {
  if (m == 0) {
    if (!accumulate) std::fill_n(y, outer * inner, T{0});
  } else if (inner == 1) {
    for (size_t o = 0; o < outer; ++o) {
      const T sum = SumTree(SumTerm<T>{x + o * m}, 0, m);
      y[o] = accumulate ? y[o] + sum : sum;
    }
  } else {
    for (size_t o = 0; o < outer; ++o) SumRows(x + o * m * inner, y + o * inner, m, inner, accumulate);
  }
}

// ------------------------------------------------------------------------------------------------ maxima

// max(m, x), NaN if either is: the machine's own maximum may drop it.
template <class V>
HWY_INLINE V MaxOrNaN(V m, V x) {
  return hn::IfThenElse(hn::Or(hn::Ge(m, x), hn::IsNaN(m)), m, x);
}

template <class T>
HWY_NOINLINE T MaxOfRow(const T* x, size_t n) {
  const hn::ScalableTag<T> d;
  const auto lowest = hn::Set(d, -std::numeric_limits<T>::infinity());
  auto m = lowest;
  ForVectors(d, n, [&](auto partial, size_t i, size_t count) HWY_ATTR {
    auto v = LoadSome<decltype(partial)::value>(d, x + i, count);
    if constexpr (decltype(partial)::value) v = hn::IfThenElse(hn::FirstN(d, count), v, lowest);
    m = MaxOrNaN(m, v);
  });
  if (!hn::AllFalse(d, hn::IsNaN(m))) return std::numeric_limits<T>::quiet_NaN();
  return LargestLane(d, m);
}

template <class T>
HWY_NOINLINE void MaxOfRows(const T* x, T* y, size_t m, size_t inner) {
  const hn::ScalableTag<T> d;
  ForVectors(d, inner, [&](auto partial, size_t j, size_t count) HWY_ATTR {
    constexpr bool kPartial = decltype(partial)::value;
    auto max = LoadSome<kPartial>(d, x + j, count);
    for (size_t k = 1; k < m; ++k) max = MaxOrNaN(max, LoadSome<kPartial>(d, x + k * inner + j, count));
    StoreSome<kPartial>(d, max, y + j, count);
  });
}

template <class T>
HWY_INLINE void MaxMiddle(const T* x, T* y, size_t outer, size_t m, size_t inner) {
  if (m == 0) {
    std::fill_n(y, outer * inner, -std::numeric_limits<T>::infinity());
  } else if (inner == 1) {
    for (size_t o = 0; o < outer; ++o) y[o] = MaxOfRow(x + o * m, m);
  } else {
    for (size_t o = 0; o < outer; ++o) MaxOfRows(x + o * m * inner, y + o * inner, m, inner);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
