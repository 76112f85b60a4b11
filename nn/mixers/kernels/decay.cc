// Dispatch of the decay family's kernels; see the *-inl.h files.
#include "nn/mixers/kernels/decay.h"

#include <algorithm>
#include <type_traits>

#include "tensor/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/mixers/kernels/decay.cc"
#include "tensor/simd_targets.h"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "nn/mixers/kernels/decay-inl.h"
#include "nn/mixers/kernels/decay_backward-inl.h"
#include "nn/mixers/kernels/decay_forward-inl.h"
#include "nn/mixers/kernels/decay_recurrent-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {

#define STORYTAPE_DECAY_WRAPPERS(T, S)                       \
  void ChunkwiseForward##S(const DecayForward<T>& args) {    \
    ChunkwiseForward<LineTag<T>>(LineTag<T>(), args).Run();  \
  }                                                          \
  void ChunkwiseBackward##S(const DecayBackward<T>& args) {  \
    ChunkwiseBackward<LineTag<T>>(LineTag<T>(), args).Run(); \
  }                                                          \
  void RecurrentForward##S(const DecayForward<T>& args) {    \
    RecurrentForward(LineTag<T>(), args);                    \
  }                                                          \
  void RecurrentBackward##S(const DecayBackward<T>& args) {  \
    RecurrentBackward(LineTag<T>(), args);                   \
  }
STORYTAPE_DECAY_WRAPPERS(float, F)
STORYTAPE_DECAY_WRAPPERS(double, D)
#undef STORYTAPE_DECAY_WRAPPERS

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace storytape {
namespace {

HWY_EXPORT(ChunkwiseForwardF);
HWY_EXPORT(ChunkwiseForwardD);
HWY_EXPORT(ChunkwiseBackwardF);
HWY_EXPORT(ChunkwiseBackwardD);
HWY_EXPORT(RecurrentForwardF);
HWY_EXPORT(RecurrentForwardD);
HWY_EXPORT(RecurrentBackwardF);
HWY_EXPORT(RecurrentBackwardD);

// A chunk longer than the sequence is the sequence; scratch is sized by it.
template <class Args>
Args with_fitting_chunk(Args args) {
  if (args.in.chunk > args.in.shape.tokens) args.in.chunk = args.in.shape.tokens;
  return args;
}

}  // namespace

template <class T>
size_t decay_record(const DecayInputs<T>& in) {
  const size_t line = 64 / sizeof(T);
  const auto padded = [&](size_t n) { return (n + line - 1) / line * line; };
  return padded(in.shape.dk) * (padded(in.shape.dv) + 1 + 2 * std::min(in.chunk, in.shape.tokens));
}

#define STORYTAPE_DECAY_DISPATCH(name, Name, Args)      \
  template <class T>                                    \
  void decay_##name(const Args<T>& args) {              \
    if constexpr (std::is_same_v<T, float>) {           \
      SIMD_DISPATCH(Name##F)(with_fitting_chunk(args)); \
    } else {                                            \
      SIMD_DISPATCH(Name##D)(with_fitting_chunk(args)); \
    }                                                   \
  }                                                     \
  template void decay_##name(const Args<float>&);       \
  template void decay_##name(const Args<double>&)
STORYTAPE_DECAY_DISPATCH(chunkwise_forward, ChunkwiseForward, DecayForward);
STORYTAPE_DECAY_DISPATCH(chunkwise_backward, ChunkwiseBackward, DecayBackward);
STORYTAPE_DECAY_DISPATCH(recurrent_forward, RecurrentForward, DecayForward);
STORYTAPE_DECAY_DISPATCH(recurrent_backward, RecurrentBackward, DecayBackward);
#undef STORYTAPE_DECAY_DISPATCH

template size_t decay_record(const DecayInputs<float>&);
template size_t decay_record(const DecayInputs<double>&);

}  // namespace storytape
#endif  // HWY_ONCE
