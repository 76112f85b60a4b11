#include "tensor/reduce.h"

#include "tensor/simd.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/kernels/reduce.cc"
// After HWY_TARGET_INCLUDE.
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "tensor/kernels/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {

float SumF32(const float* x, size_t n) {
  return SumTree(SumTerm<float>{x}, 0, n);
}
double SumF64(const double* x, size_t n) {
  return SumTree(SumTerm<double>{x}, 0, n);
}
float DotF32(const float* a, const float* b, size_t n) {
  return SumTree(DotTerm<float>{a, b}, 0, n);
}
double DotF64(const double* a, const double* b, size_t n) {
  return SumTree(DotTerm<double>{a, b}, 0, n);
}
double SumOfSquaresF32(const float* x, size_t n) {
  return SumTree(SquareTerm<float>{x}, 0, n);
}
double SumOfSquaresF64(const double* x, size_t n) {
  return SumTree(SquareTerm<double>{x}, 0, n);
}
bool AllFiniteF32(const float* x, size_t n) {
  return AllFinite(x, n);
}
bool AllFiniteF64(const double* x, size_t n) {
  return AllFinite(x, n);
}
void SumMiddleF32(const float* x, float* y, size_t outer, size_t m, size_t inner, bool accumulate) {
  SumMiddle(x, y, outer, m, inner, accumulate);
}
void SumMiddleF64(const double* x, double* y, size_t outer, size_t m, size_t inner, bool accumulate) {
  SumMiddle(x, y, outer, m, inner, accumulate);
}
void MaxMiddleF32(const float* x, float* y, size_t outer, size_t m, size_t inner) {
  MaxMiddle(x, y, outer, m, inner);
}
void MaxMiddleF64(const double* x, double* y, size_t outer, size_t m, size_t inner) {
  MaxMiddle(x, y, outer, m, inner);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace storytape {
HWY_EXPORT(SumF32);
HWY_EXPORT(SumF64);
HWY_EXPORT(DotF32);
HWY_EXPORT(DotF64);
HWY_EXPORT(SumOfSquaresF32);
HWY_EXPORT(SumOfSquaresF64);
HWY_EXPORT(AllFiniteF32);
HWY_EXPORT(AllFiniteF64);
HWY_EXPORT(SumMiddleF32);
HWY_EXPORT(SumMiddleF64);
HWY_EXPORT(MaxMiddleF32);
HWY_EXPORT(MaxMiddleF64);

float sum(const float* x, size_t n) {
  return SIMD_DISPATCH(SumF32)(x, n);
}
double sum(const double* x, size_t n) {
  return SIMD_DISPATCH(SumF64)(x, n);
}
float dot(const float* a, const float* b, size_t n) {
  return SIMD_DISPATCH(DotF32)(a, b, n);
}
double dot(const double* a, const double* b, size_t n) {
  return SIMD_DISPATCH(DotF64)(a, b, n);
}
double sum_of_squares(const float* x, size_t n) {
  return SIMD_DISPATCH(SumOfSquaresF32)(x, n);
}
double sum_of_squares(const double* x, size_t n) {
  return SIMD_DISPATCH(SumOfSquaresF64)(x, n);
}
bool all_finite(const float* x, size_t n) {
  return SIMD_DISPATCH(AllFiniteF32)(x, n);
}
bool all_finite(const double* x, size_t n) {
  return SIMD_DISPATCH(AllFiniteF64)(x, n);
}
void sum_middle(const float* x, float* y, size_t outer, size_t m, size_t inner, bool accumulate) {
  SIMD_DISPATCH(SumMiddleF32)(x, y, outer, m, inner, accumulate);
}
void sum_middle(const double* x, double* y, size_t outer, size_t m, size_t inner, bool accumulate) {
  SIMD_DISPATCH(SumMiddleF64)(x, y, outer, m, inner, accumulate);
}
void max_middle(const float* x, float* y, size_t outer, size_t m, size_t inner) {
  SIMD_DISPATCH(MaxMiddleF32)(x, y, outer, m, inner);
}
void max_middle(const double* x, double* y, size_t outer, size_t m, size_t inner) {
  SIMD_DISPATCH(MaxMiddleF64)(x, y, outer, m, inner);
}

}  // namespace storytape
#endif
