// The BLIS side of gemm(): which of its kernel families runs, and its calls.
#include <blis.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <optional>

#include "hwy/targets.h"
#include "tensor/gemm.h"

namespace storytape {
namespace {

// BLIS asks the CPU once per process and remembers; a child asks without spoiling that.
std::optional<arch_t> family_as_found() {
  const pid_t child = fork();
  if (child < 0) return std::nullopt;
  if (child == 0) _exit(static_cast<int>(bli_arch_query_id()));
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return std::nullopt;
  return static_cast<arch_t>(WEXITSTATUS(status));
}

std::optional<arch_t> family_that_fits() {
#if HWY_ARCH_X86
  const auto targets = static_cast<uint64_t>(hwy::SupportedTargets());
  if (targets & HWY_AVX3) return BLIS_ARCH_SKX;
  if (targets & HWY_AVX2) return BLIS_ARCH_HASWELL;
#endif
  return std::nullopt;
}

void settle() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (!std::getenv("BLIS_ARCH_TYPE") && !std::getenv("STORYTAPE_BLIS_AS_FOUND")) {
      const auto fits = family_that_fits();
      if (fits && family_as_found() == BLIS_ARCH_GENERIC) {
        setenv("BLIS_ARCH_TYPE", std::to_string(static_cast<int>(*fits)).c_str(), 0);
      }
    }
    bli_thread_set_num_threads(1);
  });
}

trans_t trans_of(Trans trans) {
  return trans == Trans::kYes ? BLIS_TRANSPOSE : BLIS_NO_TRANSPOSE;
}

void call(Trans ta, Trans tb, dim_t m, dim_t n, dim_t k, float alpha, const float* a, inc_t lda,
          const float* b, inc_t ldb, float beta, float* c, inc_t ldc) {
  bli_sgemm(trans_of(ta), trans_of(tb), m, n, k, &alpha, const_cast<float*>(a), lda, 1, const_cast<float*>(b),
            ldb, 1, &beta, c, ldc, 1);
}
void call(Trans ta, Trans tb, dim_t m, dim_t n, dim_t k, double alpha, const double* a, inc_t lda,
          const double* b, inc_t ldb, double beta, double* c, inc_t ldc) {
  bli_dgemm(trans_of(ta), trans_of(tb), m, n, k, &alpha, const_cast<double*>(a), lda, 1,
            const_cast<double*>(b), ldb, 1, &beta, c, ldc, 1);
}

}  // namespace

std::string blis_kernels() {
  settle();
  return bli_arch_string(bli_arch_query_id());
}

template <class T>
void gemm_blis(Trans trans_a, Trans trans_b, size_t m, size_t n, size_t k, T alpha, const T* a, size_t lda,
               const T* b, size_t ldb, T beta, T* c, size_t ldc) {
  settle();
  if (m == 0 || n == 0) return;
  call(trans_a, trans_b, static_cast<dim_t>(m), static_cast<dim_t>(n), static_cast<dim_t>(k), alpha, a,
       static_cast<inc_t>(lda), b, static_cast<inc_t>(ldb), beta, c, static_cast<inc_t>(ldc));
}

template void gemm_blis(Trans, Trans, size_t, size_t, size_t, float, const float*, size_t, const float*,
                        size_t, float, float*, size_t);
template void gemm_blis(Trans, Trans, size_t, size_t, size_t, double, const double*, size_t, const double*,
                        size_t, double, double*, size_t);

}  // namespace storytape
