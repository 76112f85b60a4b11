// Dispatch of the gated family's kernels; see the *-inl.h files.
#include "nn/mixers/kernels/gated.h"

#include <algorithm>
#include <type_traits>

#include "tensor/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/mixers/kernels/gated.cc"
#include "tensor/simd_targets.h"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "nn/mixers/kernels/gated_backward-inl.h"
#include "nn/mixers/kernels/gated_forward-inl.h"
#include "nn/mixers/kernels/gated_recurrent-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {

#define STORYTAPE_GATED_WRAPPERS(T, S)                            \
  void GatedChunkwiseForward##S(const GatedForward<T>& args) {    \
    GatedChunkwiseForward(LineTag<T>(), args);                    \
  }                                                               \
  void GatedChunkwiseBackward##S(const GatedBackward<T>& args) {  \
    GatedChunkwiseBackward<LineTag<T>>(LineTag<T>(), args).Run(); \
  }                                                               \
  void GatedRecurrentForward##S(const GatedForward<T>& args) {    \
    GatedRecurrentForward(LineTag<T>(), args);                    \
  }                                                               \
  void GatedRecurrentBackward##S(const GatedBackward<T>& args) {  \
    GatedRecurrentBackward<LineTag<T>>(LineTag<T>(), args).Run(); \
  }
STORYTAPE_GATED_WRAPPERS(float, F)
STORYTAPE_GATED_WRAPPERS(double, D)
#undef STORYTAPE_GATED_WRAPPERS

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace storytape {
namespace {

HWY_EXPORT(GatedChunkwiseForwardF);
HWY_EXPORT(GatedChunkwiseForwardD);
HWY_EXPORT(GatedChunkwiseBackwardF);
HWY_EXPORT(GatedChunkwiseBackwardD);
HWY_EXPORT(GatedRecurrentForwardF);
HWY_EXPORT(GatedRecurrentForwardD);
HWY_EXPORT(GatedRecurrentBackwardF);
HWY_EXPORT(GatedRecurrentBackwardD);

}  // namespace

#define STORYTAPE_GATED_DISPATCH(name, Name, Args) \
  template <class T>                               \
  void gated_##name(const Args<T>& args) {         \
    if constexpr (std::is_same_v<T, float>) {      \
      SIMD_DISPATCH(Name##F)(args);                \
    } else {                                       \
      SIMD_DISPATCH(Name##D)(args);                \
    }                                              \
  }                                                \
  template void gated_##name(const Args<float>&);  \
  template void gated_##name(const Args<double>&)
STORYTAPE_GATED_DISPATCH(chunkwise_forward, GatedChunkwiseForward, GatedForward);
STORYTAPE_GATED_DISPATCH(chunkwise_backward, GatedChunkwiseBackward, GatedBackward);
STORYTAPE_GATED_DISPATCH(recurrent_forward, GatedRecurrentForward, GatedForward);
STORYTAPE_GATED_DISPATCH(recurrent_backward, GatedRecurrentBackward, GatedBackward);
#undef STORYTAPE_GATED_DISPATCH

}  // namespace storytape
#endif  // HWY_ONCE
