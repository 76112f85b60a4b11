#include "tensor/elementwise.h"
#include "tensor/simd.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/kernels/binary.cc"
// After HWY_TARGET_INCLUDE.
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "tensor/kernels/binary-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {

void BinaryF32(Binary op, const BinaryRows& s, const float* a, const float* b, float* y) {
  BinaryAll(op, s, a, b, y);
}
void BinaryF64(Binary op, const BinaryRows& s, const double* a, const double* b, double* y) {
  BinaryAll(op, s, a, b, y);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace storytape {
HWY_EXPORT(BinaryF32);
HWY_EXPORT(BinaryF64);

void binary_rows(Binary op, const BinaryRows& rows, const float* a, const float* b, float* y) {
  SIMD_DISPATCH(BinaryF32)(op, rows, a, b, y);
}
void binary_rows(Binary op, const BinaryRows& rows, const double* a, const double* b, double* y) {
  SIMD_DISPATCH(BinaryF64)(op, rows, a, b, y);
}

}  // namespace storytape
#endif
