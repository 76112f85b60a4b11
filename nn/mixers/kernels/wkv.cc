// Dispatch of the kernels of WKV; see the *-inl.h files.
#include "nn/mixers/kernels/wkv.h"

#include <type_traits>

#include "tensor/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/mixers/kernels/wkv.cc"
#include "tensor/simd_targets.h"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "nn/mixers/kernels/wkv-inl.h"
#include "nn/mixers/kernels/wkv_chunkwise-inl.h"
#include "nn/mixers/kernels/wkv_recurrent-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {

#define STORYTAPE_WKV_WRAPPERS(T, S)                         \
  void WkvChunkwiseForward##S(const WkvForward<T>& args) {   \
    WkvChunkwiseForward(LineTag<T>(), args);                 \
  }                                                          \
  void WkvChunkwiseBackward##S(const WkvBackward<T>& args) { \
    WkvChunkwiseBackward(LineTag<T>(), args);                \
  }                                                          \
  void WkvRecurrentForward##S(const WkvForward<T>& args) {   \
    WkvRecurrentForward(LineTag<T>(), args);                 \
  }                                                          \
  void WkvRecurrentBackward##S(const WkvBackward<T>& args) { \
    WkvRecurrentBackward(LineTag<T>(), args);                \
  }
STORYTAPE_WKV_WRAPPERS(float, F)
STORYTAPE_WKV_WRAPPERS(double, D)
#undef STORYTAPE_WKV_WRAPPERS

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace storytape {
namespace {

HWY_EXPORT(WkvChunkwiseForwardF);
HWY_EXPORT(WkvChunkwiseForwardD);
HWY_EXPORT(WkvChunkwiseBackwardF);
HWY_EXPORT(WkvChunkwiseBackwardD);
HWY_EXPORT(WkvRecurrentForwardF);
HWY_EXPORT(WkvRecurrentForwardD);
HWY_EXPORT(WkvRecurrentBackwardF);
HWY_EXPORT(WkvRecurrentBackwardD);

}  // namespace

#define STORYTAPE_WKV_DISPATCH(name, Name, Args) \
  template <class T>                             \
  void wkv_##name(const Args<T>& args) {         \
    if constexpr (std::is_same_v<T, float>) {    \
      SIMD_DISPATCH(Wkv##Name##F)(args);         \
    } else {                                     \
      SIMD_DISPATCH(Wkv##Name##D)(args);         \
    }                                            \
  }                                              \
  template void wkv_##name(const Args<float>&);  \
  template void wkv_##name(const Args<double>&)
STORYTAPE_WKV_DISPATCH(chunkwise_forward, ChunkwiseForward, WkvForward);
STORYTAPE_WKV_DISPATCH(chunkwise_backward, ChunkwiseBackward, WkvBackward);
STORYTAPE_WKV_DISPATCH(recurrent_forward, RecurrentForward, WkvForward);
STORYTAPE_WKV_DISPATCH(recurrent_backward, RecurrentBackward, WkvBackward);
#undef STORYTAPE_WKV_DISPATCH

}  // namespace storytape
#endif  // HWY_ONCE
