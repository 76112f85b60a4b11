// Tools of the tiled softmax attention, per target: packing of heads into scratch memory, and register tiles.

#if defined(STORYTAPE_SOFTMAX_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_SOFTMAX_TILES_INL_H_
#undef STORYTAPE_SOFTMAX_TILES_INL_H_
#else
#define STORYTAPE_SOFTMAX_TILES_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "tensor/buffer.h"
#include "tensor/kernels/lanes-inl.h"
#include "tensor/simd_targets.h"
// After simd_targets.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace attention {
namespace hn = hwy::HWY_NAMESPACE;

// A register tile is kGroup rows by up to kTileWidth vectors: 16 sums of 32 registers, or 12 of 16.
// kQueryBlock: queries that are worked on at a time; a multiple of kGroup and of every vector length.
// kKeyChunk, kBackwardChunk: keys between two looks at the running maximum, and keys whose weights and their
// gradients stand in memory at a time; multiples of kGroup.
#if HWY_TARGET <= HWY_AVX3
constexpr size_t kGroup = 8, kTileWidth = 2;
constexpr size_t kQueryBlock = 64, kKeyChunk = 128, kBackwardChunk = 32;
#else
constexpr size_t kGroup = 6, kTileWidth = 2;
constexpr size_t kQueryBlock = 96, kKeyChunk = 96, kBackwardChunk = 48;
#endif
// Distance of a chunk's rows: not a power of two, so that a column of a chunk spreads over the whole first
// cache.
constexpr size_t kStripStride = kQueryBlock + 16;

static_assert(kQueryBlock % kGroup == 0 && kKeyChunk % kGroup == 0 && kBackwardChunk % kGroup == 0);

HWY_INLINE size_t RoundUp(size_t n, size_t step) {
  return (n + step - 1) / step * step;
}

// A head's rows lie a whole token apart, in steps that the hardware doesn't foresee: asked for this many rows
// ahead.
constexpr size_t kPrefetchRows = 2;

// Asks for row[0..width) of a row that is needed soon; any address will do.
template <typename T>
HWY_INLINE void PrefetchRow(const T* row, size_t width) {
  for (size_t i = 0; i < width; i += 64 / sizeof(T)) hwy::Prefetch(row + i);
}

// Memory for one call, aligned to 64 bytes.
template <typename T>
class Scratch {
 public:
  explicit Scratch(size_t elements) : buffer_(elements * sizeof(T)) {}
  T* data() const { return reinterpret_cast<T*>(buffer_.data()); }

 private:
  Buffer buffer_;
};

// to[r × padded] = from[r × width] · factor, zeros in the padding. REQUIRES: padded is width rounded up to
// vectors.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void CopyRow(D d, size_t width, T factor, const T* from, T* to) {
  const size_t lanes = hn::Lanes(d);
  const auto f = hn::Set(d, factor);
  size_t i = 0;
  for (; i + lanes <= width; i += lanes) hn::Store(hn::Mul(hn::LoadU(d, from + i), f), d, to + i);
  if (i < width) hn::Store(hn::Mul(LoadPartial(d, from + i, width - i), f), d, to + i);
}

// to[width] = from·factor, added to what is there if `add`.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void WriteRow(D d, size_t width, T factor, bool add, const T* from, T* to) {
  const size_t lanes = hn::Lanes(d);
  const auto f = hn::Set(d, factor);
  size_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    const auto x = hn::Load(d, from + i);
    hn::StoreU(add ? hn::MulAdd(x, f, hn::LoadU(d, to + i)) : hn::Mul(x, f), d, to + i);
  }
  if (i == width) return;
  const auto x = hn::Load(d, from + i);
  const size_t left = width - i;
  StorePartial(d, add ? hn::MulAdd(x, f, LoadPartial(d, to + i, left)) : hn::Mul(x, f), to + i, left);
}

// x[r × width] *= factor[r], width in whole vectors.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void ScaleRows(D d, size_t rows, size_t width, const T* factor, T* x) {
  for (size_t r = 0; r < rows; ++r) {
    const auto f = hn::Set(d, factor[r]);
    for (size_t i = 0; i < width; i += hn::Lanes(d)) hn::Store(hn::Mul(hn::Load(d, x + i), f), d, x + i);
    x += width;
  }
}

// Σ a·b over n values.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE T Dot(D d, size_t n, const T* a, const T* b) {
  const size_t lanes = hn::Lanes(d);
  auto sum = hn::Zero(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) sum = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum);
  if (i < n) sum = hn::MulAdd(LoadPartial(d, a + i, n - i), LoadPartial(d, b + i, n - i), sum);
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// The transpose of blocks of 16 bytes by 16 bytes: to[c × ldt + r] = from[r × ldf + c] · factor.
template <typename T>
HWY_INLINE void TransposeBlock(const T* from, size_t ldf, T factor, T* to, size_t ldt) {
#if HWY_TARGET == HWY_SCALAR
  constexpr size_t n = 16 / sizeof(T);
  for (size_t c = 0; c < n; ++c) {
    for (size_t r = 0; r < n; ++r) to[c * ldt + r] = from[r * ldf + c] * factor;
  }
#else
  const hn::FixedTag<T, 16 / sizeof(T)> d;
  const auto f = hn::Set(d, factor);
  const auto a0 = hn::Mul(hn::LoadU(d, from), f);
  const auto a1 = hn::Mul(hn::LoadU(d, from + ldf), f);
  if constexpr (sizeof(T) == 8) {
    hn::StoreU(hn::InterleaveLower(d, a0, a1), d, to);
    hn::StoreU(hn::InterleaveUpper(d, a0, a1), d, to + ldt);
  } else {
    const auto a2 = hn::Mul(hn::LoadU(d, from + 2 * ldf), f);
    const auto a3 = hn::Mul(hn::LoadU(d, from + 3 * ldf), f);
    const auto b0 = hn::InterleaveLower(d, a0, a2);
    const auto b1 = hn::InterleaveLower(d, a1, a3);
    const auto b2 = hn::InterleaveUpper(d, a0, a2);
    const auto b3 = hn::InterleaveUpper(d, a1, a3);
    hn::StoreU(hn::InterleaveLower(d, b0, b1), d, to);
    hn::StoreU(hn::InterleaveUpper(d, b0, b1), d, to + ldt);
    hn::StoreU(hn::InterleaveLower(d, b2, b3), d, to + 2 * ldt);
    hn::StoreU(hn::InterleaveUpper(d, b2, b3), d, to + 3 * ldt);
  }
#endif
}

// to[width × kQueryBlock] = from[rows × width]ᵀ · factor, rows `ld` apart; zeros up to the next whole vector
// of rows.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void Transpose(D d, size_t rows, size_t width, const T* from, size_t ld, T factor, T* to) {
  constexpr size_t n = 16 / sizeof(T);
  const size_t block_rows = rows / n * n;
  const size_t block_width = width / n * n;
  for (size_t c = 0; c < block_width; c += n) {
    for (size_t r = 0; r < block_rows; r += n) {
      TransposeBlock(from + r * ld + c, ld, factor, to + c * kQueryBlock + r, kQueryBlock);
    }
  }
  const size_t padded = RoundUp(rows, hn::Lanes(d));
  for (size_t c = 0; c < width; ++c) {
    T* line = to + c * kQueryBlock;
    for (size_t r = c < block_width ? block_rows : 0; r < rows; ++r) line[r] = from[r * ld + c] * factor;
    for (size_t r = rows; r < padded; ++r) line[r] = T{0};
  }
}

// tile(width, i) for vectors i, i + lanes, ... that cover [begin, end): kWidth of them at a time, then what
// is left.
template <size_t kWidth, class Tile>
HWY_INLINE void ForTiles(size_t lanes, size_t begin, size_t end, Tile tile) {
  for (; begin + (kWidth - 1) * lanes < end; begin += kWidth * lanes) {
    tile(std::integral_constant<size_t, kWidth>(), begin);
  }
  if constexpr (kWidth > 1) ForTiles<kWidth - 1>(lanes, begin, end, tile);
}

template <size_t kVectors, class D, class V>
HWY_INLINE void ZeroTile(D d, V (&sums)[kGroup][kVectors]) {
  HWY_UNROLL(8) for (size_t r = 0; r < kGroup; ++r) {
    HWY_UNROLL(4) for (size_t c = 0; c < kVectors; ++c) sums[r][c] = hn::Zero(d);
  }
}

// sums[r][c] += Σ_p a[r·row_stride + p·step] · b[p·ldb + c], p rising.
template <size_t kVectors, class D, class V, typename T = hn::TFromD<D>>
HWY_INLINE void AddToTile(D d, size_t k, const T* HWY_RESTRICT a, size_t row_stride, size_t step,
                          const T* HWY_RESTRICT b, size_t ldb, V (&sums)[kGroup][kVectors]) {
  const size_t lanes = hn::Lanes(d);
  HWY_UNROLL(4) for (size_t p = 0; p < k; ++p) {
    V bs[kVectors];
    HWY_UNROLL(4) for (size_t c = 0; c < kVectors; ++c) bs[c] = hn::Load(d, b + c * lanes);
    HWY_UNROLL(8) for (size_t r = 0; r < kGroup; ++r) {
      const V x = hn::Set(d, a[r * row_stride]);
      HWY_UNROLL(4) for (size_t c = 0; c < kVectors; ++c) sums[r][c] = hn::MulAdd(x, bs[c], sums[r][c]);
    }
    a += step;
    b += ldb;
  }
}

// kVectors vectors of the columns of AddProduct.
template <size_t kVectors, class D, typename T = hn::TFromD<D>>
HWY_INLINE void AddProductTile(D d, size_t k, const T* a, size_t row_stride, size_t step, const T* b,
                               size_t n, bool fresh, T* c) {
  const size_t lanes = hn::Lanes(d);
  hn::Vec<D> sums[kGroup][kVectors];
  if (fresh) {
    ZeroTile<kVectors>(d, sums);
  } else {
    HWY_UNROLL(8) for (size_t r = 0; r < kGroup; ++r) {
      HWY_UNROLL(4) for (size_t v = 0; v < kVectors; ++v) sums[r][v] = hn::Load(d, c + r * n + v * lanes);
    }
  }
  AddToTile<kVectors>(d, k, a, row_stride, step, b, n, sums);
  HWY_UNROLL(8) for (size_t r = 0; r < kGroup; ++r) {
    HWY_UNROLL(4) for (size_t v = 0; v < kVectors; ++v) hn::Store(sums[r][v], d, c + r * n + v * lanes);
  }
}

// c[kGroup × n] (+)= A[kGroup × k] · b[k × n], A as in AddToTile; set instead of added to if `fresh`. n in
// whole vectors.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void AddProduct(D d, size_t k, const T* a, size_t row_stride, size_t step, const T* b, size_t n,
                           bool fresh, T* c) {
  ForTiles<kTileWidth>(hn::Lanes(d), 0, n, [&](auto width, size_t j) HWY_ATTR {
    AddProductTile<width()>(d, k, a, row_stride, step, b + j, n, fresh, c + j);
  });
}

}  // namespace attention
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
