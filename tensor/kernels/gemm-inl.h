// Register-tile matrix kernel, per target. Included inside other kernels too (attention, chunked mixers),
// where the products are small and their operands already lie in cache.
//
//   C[m×n] (+)= A[m×k] · B[k×n]      (G1) c[i][j] = Σ_p a[i][p]·b[p][j], p rising: the order is fixed
//
// A tile of MR rows by NV vectors of C stays in registers while p runs; each step loads NV vectors of B and
// broadcasts MR values of A. A is addressed by two strides, so A and its transpose are one kernel; B's rows
// are ldb apart, so packed panels (ldb = panel) and plain row-major operands are one kernel.

#if defined(STORYTAPE_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_GEMM_INL_H_
#undef STORYTAPE_GEMM_INL_H_
#else
#define STORYTAPE_GEMM_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "tensor/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 32 vector registers hold 6×4 sums, 4 of B and a broadcast; 16 hold 6×2 sums, 2 and 1.
#if HWY_TARGET <= HWY_AVX3
constexpr size_t kTileVectors = 4;
#else
constexpr size_t kTileVectors = 2;
#endif
constexpr size_t kTileRows = 6;

// How a tile meets C.
enum class Store { kSet, kAdd };

// One tile of kRows × kVectors vectors. With `columns` < kVectors·lanes, the last vectors are stored in part
// (and B's loaded in part where kMaskB). A element (i, p) is a[i·row_stride + p·step].
template <size_t kRows, size_t kVectors, bool kMaskB, class D, typename T = hn::TFromD<D>>
HWY_INLINE void GemmTile(D d, size_t k, const T* HWY_RESTRICT a, size_t row_stride, size_t step,
                         const T* HWY_RESTRICT b, size_t ldb, T alpha, Store store, T* HWY_RESTRICT c,
                         size_t ldc, size_t columns) {
  using V = hn::Vec<D>;
  const size_t lanes = hn::Lanes(d);
  V sums[kRows][kVectors];
  HWY_UNROLL(8) for (size_t i = 0; i < kRows; ++i) {
    HWY_UNROLL(8) for (size_t j = 0; j < kVectors; ++j) sums[i][j] = hn::Zero(d);
  }
  const bool whole = columns == kVectors * lanes;
  // Values of vector j that exist.
  const auto live = [&](size_t j) HWY_ATTR {
    const size_t left = columns > j * lanes ? columns - j * lanes : 0;
    return left < lanes ? left : lanes;
  };
  for (size_t p = 0; p < k; ++p) {
    V bs[kVectors];
    HWY_UNROLL(8) for (size_t j = 0; j < kVectors; ++j) {
      if constexpr (kMaskB) {
        bs[j] = LoadPartial(d, b + j * lanes, live(j));
      } else {
        bs[j] = hn::LoadU(d, b + j * lanes);
      }
    }
    HWY_UNROLL(8) for (size_t i = 0; i < kRows; ++i) {
      const V x = hn::Set(d, a[i * row_stride]);
      HWY_UNROLL(8) for (size_t j = 0; j < kVectors; ++j) sums[i][j] = hn::MulAdd(x, bs[j], sums[i][j]);
    }
    a += step;
    b += ldb;
  }
  const V scale = hn::Set(d, alpha);
  HWY_UNROLL(8) for (size_t i = 0; i < kRows; ++i) {
    HWY_UNROLL(8) for (size_t j = 0; j < kVectors; ++j) {
      T* to = c + i * ldc + j * lanes;
      V x = hn::Mul(sums[i][j], scale);
      if (whole) {
        if (store == Store::kAdd) x = hn::Add(x, hn::LoadU(d, to));
        hn::StoreU(x, d, to);
      } else {
        if (store == Store::kAdd) x = hn::Add(x, LoadPartial(d, to, live(j)));
        StorePartial(d, x, to, live(j));
      }
    }
  }
}

// The rows of one panel: C[m × columns] (+)= alpha · A · B, columns ≤ kVectors·lanes.
template <size_t kVectors, bool kMaskB, class D, typename T = hn::TFromD<D>>
HWY_INLINE void GemmPanel(D d, size_t m, size_t k, const T* a, size_t row_stride, size_t step, const T* b,
                          size_t ldb, T alpha, Store store, T* c, size_t ldc, size_t columns) {
  size_t i = 0;
  for (; i + kTileRows <= m; i += kTileRows) {
    GemmTile<kTileRows, kVectors, kMaskB>(d, k, a + i * row_stride, row_stride, step, b, ldb, alpha, store,
                                          c + i * ldc, ldc, columns);
  }
  const T* rest_a = a + i * row_stride;
  T* rest_c = c + i * ldc;
#define STORYTAPE_REST(rows)                                                                              \
  case rows:                                                                                              \
    return GemmTile<rows, kVectors, kMaskB>(d, k, rest_a, row_stride, step, b, ldb, alpha, store, rest_c, \
                                            ldc, columns)
  switch (m - i) {
    STORYTAPE_REST(1);
    STORYTAPE_REST(2);
    STORYTAPE_REST(3);
    STORYTAPE_REST(4);
    STORYTAPE_REST(5);
    default:
      return;
  }
#undef STORYTAPE_REST
}

// C[m×n] (+)= alpha·A·B with B row-major and unpacked: for small products whose operands lie in cache.
template <class D, typename T = hn::TFromD<D>>
HWY_NOINLINE void GemmSmall(D d, size_t m, size_t n, size_t k, T alpha, const T* a, size_t row_stride,
                            size_t step, const T* b, size_t ldb, Store store, T* c, size_t ldc) {
  const size_t lanes = hn::Lanes(d);
  const size_t panel = kTileVectors * lanes;
  size_t j = 0;
  for (; j + panel <= n; j += panel) {
    GemmPanel<kTileVectors, false>(d, m, k, a, row_stride, step, b + j, ldb, alpha, store, c + j, ldc, panel);
  }
  for (; j + 2 * lanes <= n; j += 2 * lanes) {
    GemmPanel<2, false>(d, m, k, a, row_stride, step, b + j, ldb, alpha, store, c + j, ldc, 2 * lanes);
  }
  for (; j < n; j += lanes) {
    const size_t columns = n - j < lanes ? n - j : lanes;
    GemmPanel<1, true>(d, m, k, a, row_stride, step, b + j, ldb, alpha, store, c + j, ldc, columns);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // STORYTAPE_GEMM_INL_H_
