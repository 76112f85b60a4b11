#include "tensor/elementwise.h"
#include "tensor/simd.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/kernels/unary.cc"
// After HWY_TARGET_INCLUDE.
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "tensor/kernels/unary-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {

void UnaryF32(Unary op, const float* x, float* y, size_t n) {
  UnaryForward(op, x, y, n);
}
void UnaryF64(Unary op, const double* x, double* y, size_t n) {
  UnaryForward(op, x, y, n);
}
void UnaryBackwardF32(Unary op, const float* x, const float* y, const float* dy, float* dx, size_t n,
                      bool accumulate) {
  UnaryBackward(op, x, y, dy, dx, n, accumulate);
}
void UnaryBackwardF64(Unary op, const double* x, const double* y, const double* dy, double* dx, size_t n,
                      bool accumulate) {
  UnaryBackward(op, x, y, dy, dx, n, accumulate);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace storytape {
HWY_EXPORT(UnaryF32);
HWY_EXPORT(UnaryF64);
HWY_EXPORT(UnaryBackwardF32);
HWY_EXPORT(UnaryBackwardF64);

void unary(Unary op, const float* x, float* y, size_t n) {
  SIMD_DISPATCH(UnaryF32)(op, x, y, n);
}
void unary(Unary op, const double* x, double* y, size_t n) {
  SIMD_DISPATCH(UnaryF64)(op, x, y, n);
}

void unary_backward(Unary op, const float* x, const float* y, const float* dy, float* dx, size_t n,
                    bool accumulate) {
  SIMD_DISPATCH(UnaryBackwardF32)(op, x, y, dy, dx, n, accumulate);
}
void unary_backward(Unary op, const double* x, const double* y, const double* dy, double* dx, size_t n,
                    bool accumulate) {
  SIMD_DISPATCH(UnaryBackwardF64)(op, x, y, dy, dx, n, accumulate);
}

}  // namespace storytape
#endif
