#include "tensor/reduce.h"
#include "tensor/simd.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/kernels/softmax.cc"
// After HWY_TARGET_INCLUDE.
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "tensor/kernels/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {

void SoftmaxF32(const float* x, float* y, size_t rows, size_t n) {
  Softmax(x, y, rows, n);
}
void SoftmaxF64(const double* x, double* y, size_t rows, size_t n) {
  Softmax(x, y, rows, n);
}
void SoftmaxBackwardF32(const float* y, const float* dy, float* dx, size_t rows, size_t n, bool accumulate) {
  if (accumulate) return SoftmaxBackward<true>(y, dy, dx, rows, n);
  SoftmaxBackward<false>(y, dy, dx, rows, n);
}
void SoftmaxBackwardF64(const double* y, const double* dy, double* dx, size_t rows, size_t n,
                        bool accumulate) {
  if (accumulate) return SoftmaxBackward<true>(y, dy, dx, rows, n);
  SoftmaxBackward<false>(y, dy, dx, rows, n);
}
void LogSumExpF32(const float* x, float* y, size_t rows, size_t n) {
  LogSumExp(x, y, rows, n);
}
void LogSumExpF64(const double* x, double* y, size_t rows, size_t n) {
  LogSumExp(x, y, rows, n);
}
void LogSumExpBackwardF32(const float* x, const float* y, const float* dy, float* dx, size_t rows, size_t n,
                          bool accumulate) {
  if (accumulate) return LogSumExpBackward<true>(x, y, dy, dx, rows, n);
  LogSumExpBackward<false>(x, y, dy, dx, rows, n);
}
void LogSumExpBackwardF64(const double* x, const double* y, const double* dy, double* dx, size_t rows,
                          size_t n, bool accumulate) {
  if (accumulate) return LogSumExpBackward<true>(x, y, dy, dx, rows, n);
  LogSumExpBackward<false>(x, y, dy, dx, rows, n);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace storytape {
HWY_EXPORT(SoftmaxF32);
HWY_EXPORT(SoftmaxF64);
HWY_EXPORT(SoftmaxBackwardF32);
HWY_EXPORT(SoftmaxBackwardF64);
HWY_EXPORT(LogSumExpF32);
HWY_EXPORT(LogSumExpF64);
HWY_EXPORT(LogSumExpBackwardF32);
HWY_EXPORT(LogSumExpBackwardF64);

void softmax(const float* x, float* y, size_t rows, size_t n) {
  SIMD_DISPATCH(SoftmaxF32)(x, y, rows, n);
}
void softmax(const double* x, double* y, size_t rows, size_t n) {
  SIMD_DISPATCH(SoftmaxF64)(x, y, rows, n);
}
void softmax_backward(const float* y, const float* dy, float* dx, size_t rows, size_t n, bool accumulate) {
  SIMD_DISPATCH(SoftmaxBackwardF32)(y, dy, dx, rows, n, accumulate);
}
void softmax_backward(const double* y, const double* dy, double* dx, size_t rows, size_t n, bool accumulate) {
  SIMD_DISPATCH(SoftmaxBackwardF64)(y, dy, dx, rows, n, accumulate);
}
void log_sum_exp(const float* x, float* y, size_t rows, size_t n) {
  SIMD_DISPATCH(LogSumExpF32)(x, y, rows, n);
}
void log_sum_exp(const double* x, double* y, size_t rows, size_t n) {
  SIMD_DISPATCH(LogSumExpF64)(x, y, rows, n);
}
void log_sum_exp_backward(const float* x, const float* y, const float* dy, float* dx, size_t rows, size_t n,
                          bool accumulate) {
  SIMD_DISPATCH(LogSumExpBackwardF32)(x, y, dy, dx, rows, n, accumulate);
}
void log_sum_exp_backward(const double* x, const double* y, const double* dy, double* dx, size_t rows,
                          size_t n, bool accumulate) {
  SIMD_DISPATCH(LogSumExpBackwardF64)(x, y, dy, dx, rows, n, accumulate);
}

}  // namespace storytape
#endif
