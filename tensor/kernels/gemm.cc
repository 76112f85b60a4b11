// Dispatch of the register-tile kernels; see gemm-inl.h.
#include "tensor/gemm.h"

#include <algorithm>

#include "tensor/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/kernels/gemm.cc"
#include "tensor/simd.h"
#include "tensor/simd_targets.h"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tensor/kernels/gemm-inl.h"
#include "tensor/kernels/gelu-inl.h"
#include "tensor/kernels/math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {

// Rows of k of a packed panel that one pass takes: 512 × 64 floats are 128 KB, within a core's second cache.
constexpr size_t kPassDepth = 512;
// Rows of C between epilogues, so that they find their values still in cache.
constexpr size_t kEpilogueRows = 48;

template <typename T>
size_t PanelColumns() {
  return kTileVectors * hn::Lanes(hn::ScalableTag<T>());
}

size_t PanelF() {
  return PanelColumns<float>();
}
size_t PanelD() {
  return PanelColumns<double>();
}
const char* Name() {
  return hwy::TargetName(HWY_TARGET);
}

template <typename T>
void PackT(Trans trans, size_t rows, size_t columns, const T* b, size_t ldb, T* packed) {
  const size_t panel = PanelColumns<T>();
  const size_t k = trans == Trans::kYes ? columns : rows;
  const size_t n = trans == Trans::kYes ? rows : columns;
  for (size_t j = 0; j < n; j += panel) {
    const size_t width = std::min(panel, n - j);
    if (trans == Trans::kNo) {
      for (size_t p = 0; p < k; ++p, packed += panel) {
        std::copy_n(b + p * ldb + j, width, packed);
        std::fill(packed + width, packed + panel, T{0});
      }
    } else {
      // Column j of op(B) is row j of B: walked 16 values of k at a time, so that both sides stay in cache.
      for (size_t p0 = 0; p0 < k; p0 += 16) {
        const size_t p1 = std::min(k, p0 + 16);
        for (size_t i = 0; i < width; ++i) {
          const T* from = b + (j + i) * ldb;
          for (size_t p = p0; p < p1; ++p) packed[p * panel + i] = from[p];
        }
        for (size_t p = p0; p < p1; ++p)
          std::fill(packed + p * panel + width, packed + (p + 1) * panel, T{0});
      }
      packed += k * panel;
    }
  }
}

template <typename T>
void ScaleC(size_t m, size_t n, T beta, T* c, size_t ldc) {
  for (size_t i = 0; i < m; ++i) {
    T* row = c + i * ldc;
    if (beta == T{0}) {
      std::fill_n(row, n, T{0});
    } else if (beta != T{1}) {
      for (size_t j = 0; j < n; ++j) row[j] *= beta;
    }
  }
}

template <typename T>
void FinishRow(size_t n, const Epilogue<T>& e, size_t row, T* c) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  const auto step = [&](size_t j, auto load, auto store) HWY_ATTR {
    auto x = load(c + j);
    if (e.bias) x = hn::Add(x, load(e.bias + j));
    if (e.residual) x = hn::Add(x, load(e.residual + row * e.ld_residual + j));
    if (e.gelu_pre) {
      store(x, e.gelu_pre + row * n + j);
      x = GeluErf(d, x);
    }
    if (e.gelu_grad_pre) x = hn::Mul(x, GeluErfGrad(d, load(e.gelu_grad_pre + row * n + j)));
    store(x, c + j);
  };
  using V = hn::Vec<decltype(d)>;
  size_t j = 0;
  for (; j + lanes <= n; j += lanes) {
    step(
        j, [&](const T* p) HWY_ATTR { return hn::LoadU(d, p); },
        [&](V x, T* p) HWY_ATTR { hn::StoreU(x, d, p); });
  }
  if (j == n) return;
  const size_t left = n - j;
  step(
      j, [&](const T* p) HWY_ATTR { return LoadPartial(d, p, left); },
      [&](V x, T* p) HWY_ATTR { StorePartial(d, x, p, left); });
}

// C (+)= alpha·op(A)·B over packed panels; beta in {0, 1} is the store, any other is done beforehand.
template <typename T>
void PackedT(Trans trans_a, size_t m, size_t n, size_t k, T alpha, const T* a, size_t lda, const T* packed,
             T beta, T* c, size_t ldc, const Epilogue<T>& epilogue) {
  const hn::ScalableTag<T> d;
  const size_t panel = PanelColumns<T>();
  const size_t row_stride = trans_a == Trans::kYes ? 1 : lda;
  const size_t step = trans_a == Trans::kYes ? lda : 1;
  const bool finish = epilogue.bias || epilogue.residual || epilogue.gelu_pre || epilogue.gelu_grad_pre;
  if (alpha == T{0}) k = 0;  // A and B are then not read
  if (k == 0 || (beta != T{0} && beta != T{1})) {
    ScaleC(m, n, beta, c, ldc);
    beta = T{1};
  }
  const size_t block = finish ? kEpilogueRows : std::max<size_t>(m, 1);
  for (size_t i = 0; i < m; i += block) {
    const size_t rows = std::min(block, m - i);
    for (size_t p = 0; p < k; p += kPassDepth) {
      const size_t depth = std::min(kPassDepth, k - p);
      const Store store = beta == T{0} && p == 0 ? Store::kSet : Store::kAdd;
      for (size_t j = 0; j < n; j += panel) {
        GemmPanel<kTileVectors, false>(d, rows, depth, a + i * row_stride + p * step, row_stride, step,
                                       packed + j * k + p * panel, panel, alpha, store, c + i * ldc + j, ldc,
                                       std::min(panel, n - j));
      }
    }
    if (!finish) continue;
    for (size_t row = i; row < i + rows; ++row) FinishRow(n, epilogue, row, c + row * ldc);
  }
}

// Unpacked operands, for products too small to be worth packing.
template <typename T>
void SmallT(Trans trans_a, size_t m, size_t n, size_t k, T alpha, const T* a, size_t lda, const T* b,
            size_t ldb, T beta, T* c, size_t ldc) {
  const hn::ScalableTag<T> d;
  if (alpha == T{0}) k = 0;  // A and B are then not read
  if (k == 0 || (beta != T{0} && beta != T{1})) {
    ScaleC(m, n, beta, c, ldc);
    beta = T{1};
  }
  if (k == 0) return;
  GemmSmall(d, m, n, k, alpha, a, trans_a == Trans::kYes ? 1 : lda, trans_a == Trans::kYes ? lda : 1, b, ldb,
            beta == T{0} ? Store::kSet : Store::kAdd, c, ldc);
}

// out[j] (+)= Σ_i x[i][j], i rising; a strip of columns stays in registers.
template <typename T>
void ColumnSumsT(size_t rows, size_t n, const T* x, bool fresh, T* out) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  size_t j = 0;
  for (; j + 4 * lanes <= n; j += 4 * lanes) {
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    for (size_t i = 0; i < rows; ++i) {
      const T* from = x + i * n + j;
      s0 = hn::Add(s0, hn::LoadU(d, from));
      s1 = hn::Add(s1, hn::LoadU(d, from + lanes));
      s2 = hn::Add(s2, hn::LoadU(d, from + 2 * lanes));
      s3 = hn::Add(s3, hn::LoadU(d, from + 3 * lanes));
    }
    const auto store = [&](hn::Vec<decltype(d)> s, T* to) {
      hn::StoreU(fresh ? s : hn::Add(hn::LoadU(d, to), s), d, to);
    };
    store(s0, out + j);
    store(s1, out + j + lanes);
    store(s2, out + j + 2 * lanes);
    store(s3, out + j + 3 * lanes);
  }
  for (; j < n; j += lanes) {
    const size_t left = std::min(lanes, n - j);
    auto sum = hn::Zero(d);
    for (size_t i = 0; i < rows; ++i) sum = hn::Add(sum, LoadPartial(d, x + i * n + j, left));
    if (!fresh) sum = hn::Add(LoadPartial(d, out + j, left), sum);
    StorePartial(d, sum, out + j, left);
  }
}

#define STORYTAPE_GEMM_WRAPPERS(T, S)                                                                        \
  void Pack##S(Trans t, size_t r, size_t c, const T* b, size_t ldb, T* to) {                                 \
    PackT(t, r, c, b, ldb, to);                                                                              \
  }                                                                                                          \
  void Packed##S(Trans t, size_t m, size_t n, size_t k, T alpha, const T* a, size_t lda, const T* b, T beta, \
                 T* c, size_t ldc, const Epilogue<T>& e) {                                                   \
    PackedT(t, m, n, k, alpha, a, lda, b, beta, c, ldc, e);                                                  \
  }                                                                                                          \
  void Small##S(Trans t, size_t m, size_t n, size_t k, T alpha, const T* a, size_t lda, const T* b,          \
                size_t ldb, T beta, T* c, size_t ldc) {                                                      \
    SmallT(t, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);                                                 \
  }                                                                                                          \
  void ColumnSums##S(size_t rows, size_t n, const T* x, bool fresh, T* out) {                                \
    ColumnSumsT(rows, n, x, fresh, out);                                                                     \
  }
STORYTAPE_GEMM_WRAPPERS(float, F)
STORYTAPE_GEMM_WRAPPERS(double, D)
#undef STORYTAPE_GEMM_WRAPPERS

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace storytape {
namespace {

HWY_EXPORT(PanelF);
HWY_EXPORT(PanelD);
HWY_EXPORT(Name);
HWY_EXPORT(PackF);
HWY_EXPORT(PackD);
HWY_EXPORT(PackedF);
HWY_EXPORT(PackedD);
HWY_EXPORT(SmallF);
HWY_EXPORT(SmallD);
HWY_EXPORT(ColumnSumsF);
HWY_EXPORT(ColumnSumsD);

template <class T>
constexpr bool kFloat = std::is_same_v<T, float>;

template <class T>
size_t panel_columns() {
  if constexpr (kFloat<T>) return SIMD_DISPATCH(PanelF)();
  return SIMD_DISPATCH(PanelD)();
}

template <class T>
void pack_panels(Trans trans, size_t rows, size_t columns, const T* b, size_t ldb, T* to) {
  if constexpr (kFloat<T>) {
    SIMD_DISPATCH(PackF)(trans, rows, columns, b, ldb, to);
  } else {
    SIMD_DISPATCH(PackD)(trans, rows, columns, b, ldb, to);
  }
}

template <class T>
void run_packed(Trans trans_a, size_t m, size_t n, size_t k, T alpha, const T* a, size_t lda, const T* packed,
                T beta, T* c, size_t ldc, const Epilogue<T>& epilogue) {
  if constexpr (kFloat<T>) {
    SIMD_DISPATCH(PackedF)(trans_a, m, n, k, alpha, a, lda, packed, beta, c, ldc, epilogue);
  } else {
    SIMD_DISPATCH(PackedD)(trans_a, m, n, k, alpha, a, lda, packed, beta, c, ldc, epilogue);
  }
}

template <class T>
void run_small(Trans trans_a, size_t m, size_t n, size_t k, T alpha, const T* a, size_t lda, const T* b,
               size_t ldb, T beta, T* c, size_t ldc) {
  if constexpr (kFloat<T>) {
    SIMD_DISPATCH(SmallF)(trans_a, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  } else {
    SIMD_DISPATCH(SmallD)(trans_a, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  }
}

size_t round_up(size_t n, size_t step) {
  return (n + step - 1) / step * step;
}

}  // namespace

std::string gemm_kernels() {
  return "6x" + std::to_string(panel_columns<float>()) + " " + SIMD_DISPATCH(Name)();
}

template <class T>
void PackedB<T>::pack(Trans trans, size_t rows, size_t columns, const T* b, size_t ldb) {
  k_ = trans == Trans::kYes ? columns : rows;
  n_ = trans == Trans::kYes ? rows : columns;
  const size_t bytes = k_ * round_up(n_, panel_columns<T>()) * sizeof(T);
  if (bytes > bytes_ || !buffer_.unique()) buffer_ = Buffer(bytes);
  bytes_ = std::max(bytes, bytes_);
  if (bytes) pack_panels(trans, rows, columns, b, ldb, reinterpret_cast<T*>(buffer_.data()));
}

template <class T>
void gemm_packed(Trans trans_a, size_t m, const T* a, size_t lda, const PackedB<T>& b, T beta, T* c,
                 size_t ldc, const Epilogue<T>& epilogue) {
  run_packed(trans_a, m, b.n(), b.k(), T{1}, a, lda, b.data(), beta, c, ldc, epilogue);
}

template <class T>
void gemm_own(Trans trans_a, Trans trans_b, size_t m, size_t n, size_t k, T alpha, const T* a, size_t lda,
              const T* b, size_t ldb, T beta, T* c, size_t ldc) {
  if (m == 0 || n == 0) return;
  // Packing costs k·n moves against m·n·k multiply-adds; a few rows don't earn it back, and a B that fits the
  // first cache needs no help.
  if (trans_b == Trans::kNo && (m <= 2 * 6 || k * n * sizeof(T) <= 16 * 1024)) {
    return run_small(trans_a, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  }
  PackedB<T> packed;
  packed.pack(trans_b, trans_b == Trans::kYes ? n : k, trans_b == Trans::kYes ? k : n, b, ldb);
  run_packed(trans_a, m, n, k, alpha, a, lda, packed.data(), beta, c, ldc, Epilogue<T>{});
}

std::string gemm_choice(size_t m, size_t n, size_t k) {
  // Measured with `bench gemm`: with AVX2 and AVX-512 our kernels lead at every size; on the narrower targets
  // BLIS does from about 64³ on.
  const bool wide = panel_columns<float>() >= 16;
  return wide || m * n * k < size_t{64} * 64 * 64 ? "own" : "blis";
}

template <class T>
void gemm(Trans trans_a, Trans trans_b, size_t m, size_t n, size_t k, T alpha, const T* a, size_t lda,
          const T* b, size_t ldb, T beta, T* c, size_t ldc) {
  const bool wide = panel_columns<float>() >= 16;
  if (wide || m * n * k < size_t{64} * 64 * 64) {
    gemm_own(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  } else {
    gemm_blis(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  }
}

template <class T>
void gemm_batched(size_t batch, Trans trans_a, Trans trans_b, size_t m, size_t n, size_t k, T alpha,
                  const T* a, size_t lda, size_t stride_a, const T* b, size_t ldb, size_t stride_b, T beta,
                  T* c, size_t ldc, size_t stride_c) {
  for (size_t i = 0; i < batch; ++i) {
    gemm(trans_a, trans_b, m, n, k, alpha, a + i * stride_a, lda, b + i * stride_b, ldb, beta,
         c + i * stride_c, ldc);
  }
}

template <class T>
void column_sums(size_t rows, size_t n, const T* x, T beta, T* out) {
  if (beta != T{0} && beta != T{1}) fail("column_sums: beta is 0 or 1, got {}", beta);
  if constexpr (kFloat<T>) {
    SIMD_DISPATCH(ColumnSumsF)(rows, n, x, beta == T{0}, out);
  } else {
    SIMD_DISPATCH(ColumnSumsD)(rows, n, x, beta == T{0}, out);
  }
}

#define STORYTAPE_INSTANTIATE(T)                                                                             \
  template void column_sums(size_t, size_t, const T*, T, T*);                                                \
  template class PackedB<T>;                                                                                 \
  template void gemm(Trans, Trans, size_t, size_t, size_t, T, const T*, size_t, const T*, size_t, T, T*,     \
                     size_t);                                                                                \
  template void gemm_own(Trans, Trans, size_t, size_t, size_t, T, const T*, size_t, const T*, size_t, T, T*, \
                         size_t);                                                                            \
  template void gemm_batched(size_t, Trans, Trans, size_t, size_t, size_t, T, const T*, size_t, size_t,      \
                             const T*, size_t, size_t, T, T*, size_t, size_t);                               \
  template void gemm_packed(Trans, size_t, const T*, size_t, const PackedB<T>&, T, T*, size_t,               \
                            const Epilogue<T>&)
STORYTAPE_INSTANTIATE(float);
STORYTAPE_INSTANTIATE(double);
#undef STORYTAPE_INSTANTIATE

}  // namespace storytape
#endif  // HWY_ONCE
