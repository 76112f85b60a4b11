#include "tensor/norm.h"

#include "tensor/simd.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/kernels/norm.cc"
// After HWY_TARGET_INCLUDE.
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "tensor/kernels/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {

void LayerNormF32(const float* x, const float* gamma, const float* beta, float eps, float* y, float* mean,
                  float* rstd, size_t rows, size_t n) {
  LayerNorm(x, gamma, beta, eps, y, mean, rstd, rows, n);
}
void LayerNormF64(const double* x, const double* gamma, const double* beta, double eps, double* y,
                  double* mean, double* rstd, size_t rows, size_t n) {
  LayerNorm(x, gamma, beta, eps, y, mean, rstd, rows, n);
}
void LayerNormBackwardF32(const float* x, const float* gamma, const float* mean, const float* rstd,
                          const float* dy, float* dx, bool accumulate, float* dgamma, float* dbeta,
                          size_t rows, size_t n) {
  if (accumulate) return LayerNormBackward<true>(x, gamma, mean, rstd, dy, dx, dgamma, dbeta, rows, n);
  LayerNormBackward<false>(x, gamma, mean, rstd, dy, dx, dgamma, dbeta, rows, n);
}
void LayerNormBackwardF64(const double* x, const double* gamma, const double* mean, const double* rstd,
                          const double* dy, double* dx, bool accumulate, double* dgamma, double* dbeta,
                          size_t rows, size_t n) {
  if (accumulate) return LayerNormBackward<true>(x, gamma, mean, rstd, dy, dx, dgamma, dbeta, rows, n);
  LayerNormBackward<false>(x, gamma, mean, rstd, dy, dx, dgamma, dbeta, rows, n);
}
void RmsNormF32(const float* x, const float* gamma, float eps, float* y, float* rstd, size_t rows, size_t n) {
  RmsNorm(x, gamma, eps, y, rstd, rows, n);
}
void RmsNormF64(const double* x, const double* gamma, double eps, double* y, double* rstd, size_t rows,
                size_t n) {
  RmsNorm(x, gamma, eps, y, rstd, rows, n);
}
void RmsNormBackwardF32(const float* x, const float* gamma, const float* rstd, const float* dy, float* dx,
                        bool accumulate, float* dgamma, size_t rows, size_t n) {
  if (accumulate) return RmsNormBackward<true>(x, gamma, rstd, dy, dx, dgamma, rows, n);
  RmsNormBackward<false>(x, gamma, rstd, dy, dx, dgamma, rows, n);
}
void RmsNormBackwardF64(const double* x, const double* gamma, const double* rstd, const double* dy,
                        double* dx, bool accumulate, double* dgamma, size_t rows, size_t n) {
  if (accumulate) return RmsNormBackward<true>(x, gamma, rstd, dy, dx, dgamma, rows, n);
  RmsNormBackward<false>(x, gamma, rstd, dy, dx, dgamma, rows, n);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace storytape {
HWY_EXPORT(LayerNormF32);
HWY_EXPORT(LayerNormF64);
HWY_EXPORT(LayerNormBackwardF32);
HWY_EXPORT(LayerNormBackwardF64);
HWY_EXPORT(RmsNormF32);
HWY_EXPORT(RmsNormF64);
HWY_EXPORT(RmsNormBackwardF32);
HWY_EXPORT(RmsNormBackwardF64);

void layer_norm(const float* x, const float* gamma, const float* beta, float eps, float* y, float* mean,
                float* rstd, size_t rows, size_t n) {
  SIMD_DISPATCH(LayerNormF32)(x, gamma, beta, eps, y, mean, rstd, rows, n);
}
void layer_norm(const double* x, const double* gamma, const double* beta, double eps, double* y, double* mean,
                double* rstd, size_t rows, size_t n) {
  SIMD_DISPATCH(LayerNormF64)(x, gamma, beta, eps, y, mean, rstd, rows, n);
}
void layer_norm_backward(const float* x, const float* gamma, const float* mean, const float* rstd,
                         const float* dy, float* dx, bool accumulate, float* dgamma, float* dbeta,
                         size_t rows, size_t n) {
  SIMD_DISPATCH(LayerNormBackwardF32)(x, gamma, mean, rstd, dy, dx, accumulate, dgamma, dbeta, rows, n);
}
void layer_norm_backward(const double* x, const double* gamma, const double* mean, const double* rstd,
                         const double* dy, double* dx, bool accumulate, double* dgamma, double* dbeta,
                         size_t rows, size_t n) {
  SIMD_DISPATCH(LayerNormBackwardF64)(x, gamma, mean, rstd, dy, dx, accumulate, dgamma, dbeta, rows, n);
}
void rms_norm(const float* x, const float* gamma, float eps, float* y, float* rstd, size_t rows, size_t n) {
  SIMD_DISPATCH(RmsNormF32)(x, gamma, eps, y, rstd, rows, n);
}
void rms_norm(const double* x, const double* gamma, double eps, double* y, double* rstd, size_t rows,
              size_t n) {
  SIMD_DISPATCH(RmsNormF64)(x, gamma, eps, y, rstd, rows, n);
}
void rms_norm_backward(const float* x, const float* gamma, const float* rstd, const float* dy, float* dx,
                       bool accumulate, float* dgamma, size_t rows, size_t n) {
  SIMD_DISPATCH(RmsNormBackwardF32)(x, gamma, rstd, dy, dx, accumulate, dgamma, rows, n);
}
void rms_norm_backward(const double* x, const double* gamma, const double* rstd, const double* dy, double* dx,
                       bool accumulate, double* dgamma, size_t rows, size_t n) {
  SIMD_DISPATCH(RmsNormBackwardF64)(x, gamma, rstd, dy, dx, accumulate, dgamma, rows, n);
}

}  // namespace storytape
#endif
