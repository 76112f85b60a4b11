// Matrix products, row-major:  C[m×n] = beta·C + alpha·op(A)[m×k]·op(B)[k×n],  op = as it is or transposed.
//
// Two engines: BLIS for large general products, and our own register-tile kernels for everything that
// training does (packed weights, small products, odd shapes). gemm() picks per shape by measurement;
// `storytape bench gemm` shows both. C is not read where beta = 0. Empty products are legal: k = 0 gives
// beta·C. T is float or double.
#pragma once

#include <cstddef>
#include <string>

#include "tensor/buffer.h"

namespace storytape {

enum class Trans { kNo, kYes };

// B as the kernel reads it: panels of `panel` columns, each k × panel values in a row, zeros after column n.
template <class T>
class PackedB {
 public:
  PackedB() = default;
  // Packs op(B), where B is stored row-major with `rows` rows and `columns` columns. A later call reuses the
  // memory.
  void pack(Trans trans, size_t rows, size_t columns, const T* b) { pack(trans, rows, columns, b, columns); }
  void pack(Trans trans, size_t rows, size_t columns, const T* b, size_t ldb);

  size_t k() const { return k_; }
  size_t n() const { return n_; }
  const T* data() const { return reinterpret_cast<const T*>(buffer_.data()); }
  size_t bytes() const { return bytes_; }

 private:
  size_t k_ = 0;
  size_t n_ = 0;
  size_t bytes_ = 0;
  Buffer buffer_;
};

// What happens to an element c of the product on its way to memory, in this order (each optional):
//   c += bias[column];  c += residual[row, column];
//   GELU (erf):  pre[row, column] = c, c = gelu(c);
//   its reverse: c *= gelu'(pre[row, column]).
template <class T>
struct Epilogue {
  const T* bias = nullptr;      // [n]
  const T* residual = nullptr;  // [m × n], rows ld_residual apart
  size_t ld_residual = 0;
  T* gelu_pre = nullptr;             // [m × n], rows n apart: written
  const T* gelu_grad_pre = nullptr;  // [m × n], rows n apart: read
};

template <class T>
void gemm(Trans trans_a, Trans trans_b, size_t m, size_t n, size_t k, T alpha, const T* a, size_t lda,
          const T* b, size_t ldb, T beta, T* c, size_t ldc);

// C[i] = beta·C[i] + alpha·op(A[i])·op(B[i]) for i < batch; matrices lie stride_* elements apart (0: shared).
template <class T>
void gemm_batched(size_t batch, Trans trans_a, Trans trans_b, size_t m, size_t n, size_t k, T alpha,
                  const T* a, size_t lda, size_t stride_a, const T* b, size_t ldb, size_t stride_b, T beta,
                  T* c, size_t ldc, size_t stride_c);

// C[m × packed.n()] = beta·C + op(A)·B, then the epilogue (which wants beta = 0 or a plain sum).
template <class T>
void gemm_packed(Trans trans_a, size_t m, const T* a, size_t lda, const PackedB<T>& b, T beta, T* c,
                 size_t ldc, const Epilogue<T>& epilogue = {});

// out[j] = beta·out[j] + Σ_i x[i, j] for x [rows × n]; beta is 0 or 1; i rises.
template <class T>
void column_sums(size_t rows, size_t n, const T* x, T beta, T* out);

// The engines by name, for benchmarks and tests. REQUIRES as gemm().
template <class T>
void gemm_own(Trans trans_a, Trans trans_b, size_t m, size_t n, size_t k, T alpha, const T* a, size_t lda,
              const T* b, size_t ldb, T beta, T* c, size_t ldc);
template <class T>
void gemm_blis(Trans trans_a, Trans trans_b, size_t m, size_t n, size_t k, T alpha, const T* a, size_t lda,
               const T* b, size_t ldb, T beta, T* c, size_t ldc);
// "own" or "blis": what gemm() takes for this product.
std::string gemm_choice(size_t m, size_t n, size_t k);

// The family of kernels that BLIS runs, e.g. "skx". Settled at first use: where BLIS does not know the CPU
// and would run its slow "generic" kernels, the family that fits is chosen through BLIS_ARCH_TYPE, unless the
// user has set that variable or STORYTAPE_BLIS_AS_FOUND. BLIS runs on the calling thread alone, whatever
// BLIS_NUM_THREADS says.
std::string blis_kernels();
// Our kernel's register tile in float and its target, e.g. "6x64 AVX3".
std::string gemm_kernels();

}  // namespace storytape
