// Rows padded to whole 64-byte lines, and products of them: what the kernels of the mixers with a matrix for
// a state share. Included per target.
//
// Scratch rows are padded with zeros, so that products need no masks; only the caller's arrays are read and
// written with partial vectors.
#if defined(STORYTAPE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_ROWS_INL_H_
#undef STORYTAPE_ROWS_INL_H_
#else
#define STORYTAPE_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <utility>

#include "tensor/buffer.h"
#include "tensor/simd_targets.h"
// After simd_targets.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "tensor/kernels/gemm-inl.h"
#include "tensor/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors of at most a line, so that a padded row is whole vectors on every target.
template <typename T>
constexpr size_t kLine = 64 / sizeof(T);
template <typename T>
using LineTag = hn::CappedTag<T, kLine<T>>;

template <typename T>
constexpr size_t Padded(size_t n) {
  return (n + kLine<T> - 1) / kLine<T> * kLine<T>;
}

// Takes one block and cuts it into arrays.
template <typename T>
Buffer CutScratch(std::initializer_list<std::pair<T**, size_t>> arrays) {
  size_t total = 0;
  for (const auto& [where, size] : arrays) total += Padded<T>(size);
  Buffer buffer(total * sizeof(T));
  T* next = reinterpret_cast<T*>(buffer.data());
  for (const auto& [where, size] : arrays) {
    *where = next;
    next += Padded<T>(size);
  }
  return buffer;
}

// C[m×n] (+)= A[m×k]·B[k×n] where B's and C's rows are padded; n is rounded up to vectors.
template <class D, typename T = hn::TFromD<D>>
HWY_NOINLINE void Product(D d, size_t m, size_t n, size_t k, const T* a, size_t row_stride, size_t step,
                          const T* b, size_t ldb, Store store, T* c, size_t ldc) {
  const size_t lanes = hn::Lanes(d);
  size_t j = 0;
  for (; j + (kTileVectors - 1) * lanes < n; j += kTileVectors * lanes) {
    GemmPanel<kTileVectors, false>(d, m, k, a, row_stride, step, b + j, ldb, T{1}, store, c + j, ldc,
                                   kTileVectors * lanes);
  }
  if (j >= n) return;
  if constexpr (kTileVectors == 4) {
    if (j + 2 * lanes < n) {
      return GemmPanel<3, false>(d, m, k, a, row_stride, step, b + j, ldb, T{1}, store, c + j, ldc,
                                 3 * lanes);
    }
    if (j + lanes < n) {
      return GemmPanel<2, false>(d, m, k, a, row_stride, step, b + j, ldb, T{1}, store, c + j, ldc,
                                 2 * lanes);
    }
  }
  GemmPanel<1, false>(d, m, k, a, row_stride, step, b + j, ldb, T{1}, store, c + j, ldc, lanes);
}

// Row i of `to` = f of row i of `from`, padded with zeros.
template <class D, class F, typename T = hn::TFromD<D>>
HWY_INLINE void LoadRows(D d, size_t rows, size_t width, const T* from, size_t stride, T* to, size_t ld,
                         const F& f) {
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < rows; ++i, from += stride, to += ld) {
    size_t j = 0;
    for (; j + lanes <= width; j += lanes) hn::StoreU(f(hn::LoadU(d, from + j)), d, to + j);
    if (j < width) {
      const auto x = f(LoadPartial(d, from + j, width - j));
      hn::StoreU(hn::IfThenElseZero(hn::FirstN(d, width - j), x), d, to + j);
      j += lanes;
    }
    for (; j < ld; j += lanes) hn::StoreU(hn::Zero(d), d, to + j);
  }
}
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void LoadRows(D d, size_t rows, size_t width, const T* from, size_t stride, T* to, size_t ld) {
  LoadRows(d, rows, width, from, stride, to, ld, [](auto x) HWY_ATTR { return x; });
}

// to[0..width) = f(from vector, place), or that added. `from` is padded.
template <class D, class F, typename T = hn::TFromD<D>>
HWY_INLINE void StoreRow(D d, size_t width, const T* from, T* to, bool add, const F& f) {
  const size_t lanes = hn::Lanes(d);
  size_t j = 0;
  for (; j + lanes <= width; j += lanes) {
    auto x = f(hn::LoadU(d, from + j), j);
    if (add) x = hn::Add(x, hn::LoadU(d, to + j));
    hn::StoreU(x, d, to + j);
  }
  if (j == width) return;
  auto x = f(hn::LoadU(d, from + j), j);
  if (add) x = hn::Add(x, LoadPartial(d, to + j, width - j));
  StorePartial(d, x, to + j, width - j);
}
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void StoreRows(D d, size_t rows, size_t width, const T* from, size_t ld, T* to, size_t stride,
                          bool add) {
  for (size_t i = 0; i < rows; ++i) {
    StoreRow(d, width, from + i * ld, to + i * stride, add, [](auto x, size_t) HWY_ATTR { return x; });
  }
}

template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void ZeroArray(D d, T* x, size_t n /*whole lines*/) {
  for (size_t i = 0; i < n; i += hn::Lanes(d)) hn::StoreU(hn::Zero(d), d, x + i);
}
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void ScaleArray(D d, T scale, T* x, size_t n /*whole lines*/) {
  const auto s = hn::Set(d, scale);
  for (size_t i = 0; i < n; i += hn::Lanes(d)) hn::StoreU(hn::Mul(s, hn::LoadU(d, x + i)), d, x + i);
}
// y += scale·x
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void AddScaled(D d, T scale, const T* x, T* y, size_t n /*whole lines*/) {
  const auto s = hn::Set(d, scale);
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    hn::StoreU(hn::MulAdd(s, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  }
}
// Lane by lane, sum + x·y.
template <class D, class V = hn::Vec<D>, typename T = hn::TFromD<D>>
HWY_INLINE V AddDot(D d, const T* x, const T* y, size_t n /*whole lines*/, V sum) {
  for (size_t i = 0; i < n; i += hn::Lanes(d))
    sum = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), sum);
  return sum;
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::TFromD<D> Total(D d, V x) {
  return hn::GetLane(hn::SumOfLanes(d, x));
}

#if HWY_TARGET != HWY_SCALAR
// to[j][i] = from[i][j], one block of kBlock × kBlock values; rows `rows` and after count as zeros.
template <size_t kBlock, typename T>
HWY_INLINE void TransposeBlock(const T* from, size_t ld_from, size_t rows, T* to, size_t ld_to) {
  const hn::FixedTag<T, kBlock> d;
  using V = hn::Vec<decltype(d)>;
  V x[kBlock], y[kBlock];
  HWY_UNROLL(8)
  for (size_t r = 0; r < kBlock; ++r) x[r] = r < rows ? hn::LoadU(d, from + r * ld_from) : hn::Zero(d);
  if constexpr (kBlock == 2) {
    y[0] = hn::InterleaveLower(d, x[0], x[1]);
    y[1] = hn::InterleaveUpper(d, x[0], x[1]);
  } else {
    // Within each half of 128 bits: pairs of rows two apart, then pairs of those.
    HWY_UNROLL(2) for (size_t half = 0; half < kBlock; half += 4) {
      const V even = hn::InterleaveLower(d, x[half], x[half + 2]),
              odd = hn::InterleaveLower(d, x[half + 1], x[half + 3]);
      const V even_up = hn::InterleaveUpper(d, x[half], x[half + 2]);
      const V odd_up = hn::InterleaveUpper(d, x[half + 1], x[half + 3]);
      y[half] = hn::InterleaveLower(d, even, odd);
      y[half + 1] = hn::InterleaveUpper(d, even, odd);
      y[half + 2] = hn::InterleaveLower(d, even_up, odd_up);
      y[half + 3] = hn::InterleaveUpper(d, even_up, odd_up);
    }
    if constexpr (kBlock == 8) {
      HWY_UNROLL(4) for (size_t r = 0; r < 4; ++r) {
        const V low = hn::ConcatLowerLower(d, y[r + 4], y[r]);
        y[r + 4] = hn::ConcatUpperUpper(d, y[r + 4], y[r]);
        y[r] = low;
      }
    }
  }
  HWY_UNROLL(8) for (size_t r = 0; r < kBlock; ++r) hn::StoreU(y[r], d, to + r * ld_to);
}
#endif

// to[width × Padded(rows)] = from[rows × Padded(width)]ᵀ, zeros in the columns after `rows`. `to` has Padded(width)
// rows; those after `width` may get the transposed padding.
template <typename T>
HWY_INLINE void Transpose(size_t rows, size_t width, const T* from, size_t ld_from, T* to, size_t ld_to) {
#if HWY_TARGET == HWY_SCALAR
  for (size_t j = 0; j < width; ++j) {
    for (size_t i = 0; i < Padded<T>(rows); ++i) to[j * ld_to + i] = i < rows ? from[i * ld_from + j] : T{0};
  }
#else
  constexpr size_t kBlock = sizeof(T) == 8 ? 2 : HWY_MAX_BYTES >= 32 ? 8 : 4;
  for (size_t i = 0; i < Padded<T>(rows); i += kBlock) {
    const size_t left = i < rows ? rows - i : 0;
    for (size_t j = 0; j < width; j += kBlock) {
      const T* x = from + i * ld_from + j;
      T* y = to + j * ld_to + i;
      if (left >= kBlock) {
        TransposeBlock<kBlock>(x, ld_from, kBlock, y, ld_to);
      } else {
        TransposeBlock<kBlock>(x, ld_from, left, y, ld_to);
      }
    }
  }
#endif
}

// Asks for rows [first, first + rows), as far as there are any, of an array whose chunk starts at `chunk`:
// while the products of one tile run, the cache fetches what the next chunk will read.
template <typename T>
HWY_INLINE void PrefetchRows(const T* chunk, size_t stride, size_t width, size_t n, size_t first,
                             size_t rows) {
  for (size_t i = first; i < std::min(n, first + rows); ++i) {
    for (size_t j = 0; j < width; j += kLine<T>) hwy::Prefetch(chunk + i * stride + j);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
