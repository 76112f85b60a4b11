// The time mixing of RWKV-4 (Peng et al., 2023): token shift, projections, WKV, and a gate of its own.
//
//   r = shift(x; μ_r) W_r,  k = shift(x; μ_k) W_k,  v = shift(x; μ_v) W_v
//   y = (σ(r) ⊙ wkv(w, u, k, v)) W_o
//
// It carries 3·C numbers per sequence, however long: the last x, and the state of nn/mixers/wkv.h.
#pragma once

#include "autograd/tape.h"
#include "nn/mixers/state.h"
#include "nn/mixers/wkv.h"

namespace storytape {

// X is Var<T>, or Tensor<T> for decoding.
template <class X>
struct TimeMixWeights {
  X mu_r, mu_k, mu_v;    // [C]
  X W_r, W_k, W_v, W_o;  // [C, C], stored [in, out]
  X w, u;                // [C], w ≥ 0 the decay itself; RWKV-LM's time_decay gives w = exp(time_decay)
};

template <class T>
struct TimeMixResult {
  Var<T> y;                   // [B, T, C]
  Var<T> last, mean, logden;  // [B, C], handed on
};

// x [B, T, C]; the state [B, C] each: all three, or undefined for the start.
template <class T>
TimeMixResult<T> rwkv_time_mix(const TimeMixWeights<Var<T>>& weights, Var<T> x, Var<T> x_prev,
                               Var<T> mean_init, Var<T> logden_init, const WkvOptions& options = {});

// Before the first token: "x", "mean", "logden".
template <class T>
State<T> rwkv_time_mix_state(size_t batch, size_t channels);

// The outputs of T ≥ 1 further tokens x [B, T, C]; the state moves on. No gradients.
template <class T>
Tensor<T> rwkv_time_mix_extend(const TimeMixWeights<Tensor<T>>& weights, State<T>& state, const Tensor<T>& x);

}  // namespace storytape
