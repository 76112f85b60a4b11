// Dispatch of the softmax attention kernels; see softmax_forward-inl.h, softmax_attention-inl.h and
// softmax_rows-inl.h.
#include "nn/mixers/kernels/softmax_attention.h"

#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/mixers/kernels/softmax_attention.cc"
#include "tensor/simd.h"
#include "tensor/simd_targets.h"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "nn/mixers/kernels/softmax_attention-inl.h"
#include "nn/mixers/kernels/softmax_forward-inl.h"
#include "nn/mixers/kernels/softmax_rows-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {

using attention::Logits;

#define STORYTAPE_SOFTMAX_WRAPPERS(T, S)                                                                    \
  void AttentionForward##S(const SoftmaxAttentionArgs<T>& a, T* o, const SoftmaxAttentionStats<T>& stats) { \
    if (a.log_f) return attention::ForwardT<Logits::kForget>(a, o, stats);                                  \
    if (a.softcap != 0) return attention::ForwardT<Logits::kCapped>(a, o, stats);                           \
    attention::ForwardT<Logits::kPlain>(a, o, stats);                                                       \
  }                                                                                                         \
  void AttentionBackward##S(const SoftmaxAttentionArgs<T>& a, const T* o,                                   \
                            const SoftmaxAttentionStats<T>& stats, const T* d_o,                            \
                            const SoftmaxAttentionGrads<T>& grads) {                                        \
    if (a.log_f) return attention::BackwardT<Logits::kForget>(a, o, stats, d_o, grads);                     \
    if (a.softcap != 0) return attention::BackwardT<Logits::kCapped>(a, o, stats, d_o, grads);              \
    attention::BackwardT<Logits::kPlain>(a, o, stats, d_o, grads);                                          \
  }                                                                                                         \
  void AttentionRowsForward##S(const SoftmaxAttentionArgs<T>& a, T* o) {                                    \
    attention::RowsForwardT(a, o);                                                                          \
  }                                                                                                         \
  void AttentionRowsBackward##S(const SoftmaxAttentionArgs<T>& a, const T* d_o,                             \
                                const SoftmaxAttentionGrads<T>& grads) {                                    \
    attention::RowsBackwardT(a, d_o, grads);                                                                \
  }
STORYTAPE_SOFTMAX_WRAPPERS(float, F)
STORYTAPE_SOFTMAX_WRAPPERS(double, D)
#undef STORYTAPE_SOFTMAX_WRAPPERS

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace storytape {
namespace {

HWY_EXPORT(AttentionForwardF);
HWY_EXPORT(AttentionForwardD);
HWY_EXPORT(AttentionBackwardF);
HWY_EXPORT(AttentionBackwardD);
HWY_EXPORT(AttentionRowsForwardF);
HWY_EXPORT(AttentionRowsForwardD);
HWY_EXPORT(AttentionRowsBackwardF);
HWY_EXPORT(AttentionRowsBackwardD);

template <class T>
constexpr bool kFloat = std::is_same_v<T, float>;

}  // namespace

template <class T>
void softmax_attention_forward(const SoftmaxAttentionArgs<T>& args, T* o,
                               const SoftmaxAttentionStats<T>& stats) {
  if constexpr (kFloat<T>) {
    SIMD_DISPATCH(AttentionForwardF)(args, o, stats);
  } else {
    SIMD_DISPATCH(AttentionForwardD)(args, o, stats);
  }
}

template <class T>
void softmax_attention_backward(const SoftmaxAttentionArgs<T>& args, const T* o,
                                const SoftmaxAttentionStats<T>& stats, const T* d_o,
                                const SoftmaxAttentionGrads<T>& grads) {
  if constexpr (kFloat<T>) {
    SIMD_DISPATCH(AttentionBackwardF)(args, o, stats, d_o, grads);
  } else {
    SIMD_DISPATCH(AttentionBackwardD)(args, o, stats, d_o, grads);
  }
}

template <class T>
void softmax_attention_rows_forward(const SoftmaxAttentionArgs<T>& args, T* o) {
  if constexpr (kFloat<T>) {
    SIMD_DISPATCH(AttentionRowsForwardF)(args, o);
  } else {
    SIMD_DISPATCH(AttentionRowsForwardD)(args, o);
  }
}

template <class T>
void softmax_attention_rows_backward(const SoftmaxAttentionArgs<T>& args, const T* d_o,
                                     const SoftmaxAttentionGrads<T>& grads) {
  if constexpr (kFloat<T>) {
    SIMD_DISPATCH(AttentionRowsBackwardF)(args, d_o, grads);
  } else {
    SIMD_DISPATCH(AttentionRowsBackwardD)(args, d_o, grads);
  }
}

#define STORYTAPE_SOFTMAX_INSTANCES(T)                                                    \
  template void softmax_attention_forward(const SoftmaxAttentionArgs<T>&, T*,             \
                                          const SoftmaxAttentionStats<T>&);               \
  template void softmax_attention_backward(const SoftmaxAttentionArgs<T>&, const T*,      \
                                           const SoftmaxAttentionStats<T>&, const T*,     \
                                           const SoftmaxAttentionGrads<T>&);              \
  template void softmax_attention_rows_forward(const SoftmaxAttentionArgs<T>&, T*);       \
  template void softmax_attention_rows_backward(const SoftmaxAttentionArgs<T>&, const T*, \
                                                const SoftmaxAttentionGrads<T>&);
STORYTAPE_SOFTMAX_INSTANCES(float)
STORYTAPE_SOFTMAX_INSTANCES(double)
#undef STORYTAPE_SOFTMAX_INSTANCES

}  // namespace storytape
#endif  // HWY_ONCE
