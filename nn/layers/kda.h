// The Kimi delta attention layer: Gated DeltaNet whose decay is one factor per key channel, from a map of low
// rank. Kimi Team, "Kimi Linear: An Expressive, Efficient Attention Architecture", 2025; in the forms of Kimi
// Linear and flash-linear-attention.
//
//   (KL1)  q, k, v, q̂, k̂, β as (GD1)-(GD3) of nn/layers/gated_deltanet.h
//   (KL2)  f = x W_f1 W_f2 + dt_bias,   α = exp(-exp(A_log_h) softplus(f))                lower_bound = 0
//                                       α = exp(lower_bound σ(exp(A_log_h) f))            lower_bound < 0
//   (KL3)  S_t = (I - β_t k̂_tᵀ k̂_t) Diag(α_t) S_{t-1} + β_t k̂_tᵀ v_t,   o_t = q̂_t S_t   nn/mixers/kda.h
//   (KL4)  y = concat_h(rms_norm(o; w) σ(x W_g1 W_g2 (+ b_g2))) W_o
//
// A_log starts as log U(1, 16), or at 0 with a lower bound; dt_bias, per head and channel, as softplus^-1 of
// a log-uniform step from 1e-3 to 1e-1. Both public codes agree. Left out: nothing of the layer.
#pragma once

#include "nn/layers/parts.h"

namespace storytape {

struct KdaConfig {
  size_t dim;          // D
  size_t key_heads;    // H_k
  size_t value_heads;  // H_v, a multiple of key_heads
  size_t key_dim;      // dk, of one head
  size_t value_dim;    // dv, of one head
  size_t rank = 0;     // of the maps to decay and gate; 0: value_dim
  ConvolutionConfig convolution = {};
  bool gate_bias = false;  // b_g2: fla has it, Kimi Linear has not
  double beta_scale = 1;   // up to 2
  double lower_bound = 0;  // of log α where negative; 0: none
  double norm_eps = 1e-5;
};

// Carries "conv_q", "conv_k", "conv_v" [B, K-1, C] and "S" [B, H_v, dk, dv].
template <class T>
class KimiDeltaAttention final : public Layer<T> {
 public:
  KimiDeltaAttention(const KdaConfig& config, ParameterList<T>& parameters, const std::string& name);

  std::string_view kind() const override { return "kda"; }
  std::vector<StateTensor> state_tensors(size_t batch) const override;
  Pass<T> apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states, size_t seen,
                Face face) const override;

 private:
  // α of (KL2), [B, T, H_v, dk].
  Var<T> decay(const Weights<T>& weights, Var<T> x) const;

  KdaConfig config_;
  ConvolvedProjection<T> q_, k_, v_;
  Projection<T> f1_, f2_, b_, g1_, g2_, out_;
  Parameter<T>*A_log_, *dt_bias_, *norm_;
};

}  // namespace storytape
