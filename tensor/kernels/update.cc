#include "tensor/elementwise.h"
#include "tensor/simd.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/kernels/update.cc"
// After HWY_TARGET_INCLUDE.
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "tensor/kernels/update-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {

void AddIntoF32(float* y, const float* x, size_t n) {
  AddInto(y, x, n);
}
void AddIntoF64(double* y, const double* x, size_t n) {
  AddInto(y, x, n);
}
void AxpyF32(float a, const float* x, float* y, size_t n) {
  Axpy(a, x, y, n);
}
void AxpyF64(double a, const double* x, double* y, size_t n) {
  Axpy(a, x, y, n);
}
void ScaleF32(float a, const float* x, float* y, size_t n) {
  Scale(a, x, y, n);
}
void ScaleF64(double a, const double* x, double* y, size_t n) {
  Scale(a, x, y, n);
}
void LerpF32(float w, const float* x, float* y, size_t n) {
  Lerp(w, x, y, n);
}
void LerpF64(double w, const double* x, double* y, size_t n) {
  Lerp(w, x, y, n);
}
void TreeSumF32(float* dst, const float* const* blocks, size_t count, size_t n) {
  TreeSum(dst, blocks, count, n);
}
void TreeSumF64(double* dst, const double* const* blocks, size_t count, size_t n) {
  TreeSum(dst, blocks, count, n);
}
void AdamWF32(const AdamW& step, float* p, float* m, float* v, const float* g, size_t n) {
  AdamWStep(step, p, m, v, g, n);
}
void AdamWF64(const AdamW& step, double* p, double* m, double* v, const double* g, size_t n) {
  AdamWStep(step, p, m, v, g, n);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace storytape {
HWY_EXPORT(AddIntoF32);
HWY_EXPORT(AddIntoF64);
HWY_EXPORT(AxpyF32);
HWY_EXPORT(AxpyF64);
HWY_EXPORT(ScaleF32);
HWY_EXPORT(ScaleF64);
HWY_EXPORT(LerpF32);
HWY_EXPORT(LerpF64);
HWY_EXPORT(TreeSumF32);
HWY_EXPORT(TreeSumF64);
HWY_EXPORT(AdamWF32);
HWY_EXPORT(AdamWF64);

void add_into(float* y, const float* x, size_t n) {
  SIMD_DISPATCH(AddIntoF32)(y, x, n);
}
void add_into(double* y, const double* x, size_t n) {
  SIMD_DISPATCH(AddIntoF64)(y, x, n);
}
void axpy(float a, const float* x, float* y, size_t n) {
  SIMD_DISPATCH(AxpyF32)(a, x, y, n);
}
void axpy(double a, const double* x, double* y, size_t n) {
  SIMD_DISPATCH(AxpyF64)(a, x, y, n);
}
void scale(float a, const float* x, float* y, size_t n) {
  SIMD_DISPATCH(ScaleF32)(a, x, y, n);
}
void scale(double a, const double* x, double* y, size_t n) {
  SIMD_DISPATCH(ScaleF64)(a, x, y, n);
}
void lerp(float w, const float* x, float* y, size_t n) {
  SIMD_DISPATCH(LerpF32)(w, x, y, n);
}
void lerp(double w, const double* x, double* y, size_t n) {
  SIMD_DISPATCH(LerpF64)(w, x, y, n);
}
void tree_sum(float* dst, const float* const* blocks, size_t count, size_t n) {
  SIMD_DISPATCH(TreeSumF32)(dst, blocks, count, n);
}
void tree_sum(double* dst, const double* const* blocks, size_t count, size_t n) {
  SIMD_DISPATCH(TreeSumF64)(dst, blocks, count, n);
}
void adamw(const AdamW& step, float* p, float* m, float* v, const float* g, size_t n) {
  SIMD_DISPATCH(AdamWF32)(step, p, m, v, g, n);
}
void adamw(const AdamW& step, double* p, double* m, double* v, const double* g, size_t n) {
  SIMD_DISPATCH(AdamWF64)(step, p, m, v, g, n);
}

}  // namespace storytape
#endif
