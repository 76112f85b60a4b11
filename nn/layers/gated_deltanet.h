// The Gated DeltaNet layer: the gated delta rule with short convolutions, keys and queries of length 1, a
// decay from a rate per head and a step per token, and a gated norm behind it. Yang, Kautz, Hatamizadeh,
// "Gated Delta Networks: Improving Mamba2 with Delta Rule", 2024; in the forms of Qwen3-Next, OLMo hybrid and
// flash-linear-attention:
//
//                beta_scale   gate            norm_eps   A_log, dt_bias start
//   Qwen3-Next   1            silu            1e-6       log U(0.01, 16), 1
//   OLMo hybrid  2            silu            1e-5       log U(0, 16), softplus^-1(dt)
//   fla          1            silu, or none   1e-5       as OLMo hybrid
//
//   (GD1)  q = silu(conv(x W_q)),  k = silu(conv(x W_k))  in H_k heads,  v = silu(conv(x W_v))  in H_v heads
//   (GD2)  q̂ = q/|q| dk^-1/2,  k̂ = k/|k|;   value head h reads key head floor(h H_k / H_v)
//   (GD3)  α = exp(-exp(A_log) softplus(x W_a + dt_bias)),   β = beta_scale σ(x W_b)
//   (GD4)  S_t = (I - β_t k̂_tᵀ k̂_t) α_t S_{t-1} + β_t k̂_tᵀ v_t,   o_t = q̂_t S_t  nn/mixers/gated_delta_rule.h
//   (GD5)  y = concat_h(rms_norm(o; w) act(x W_g)) W_o
//
// A_log and dt_bias start as in OLMo hybrid and fla: over the heads their decays span horizons from one token
// to hundreds, where Qwen3-Next's let nearly every head forget at once. Left out: nothing of the layer; its
// packed projections are separate matrices here.
#pragma once

#include "nn/layers/parts.h"

namespace storytape {

struct GatedDeltaNetConfig {
  size_t dim;          // D
  size_t key_heads;    // H_k
  size_t value_heads;  // H_v, a multiple of key_heads
  size_t key_dim;      // dk, of one head
  size_t value_dim;    // dv, of one head
  ConvolutionConfig convolution = {};
  OutputGate gate = OutputGate::kSilu;
  double beta_scale = 1;  // up to 2
  double norm_eps = 1e-5;
};

// Carries "conv_q", "conv_k", "conv_v" [B, K-1, C] and "S" [B, H_v, dk, dv].
template <class T>
class GatedDeltaNet final : public Layer<T> {
 public:
  GatedDeltaNet(const GatedDeltaNetConfig& config, ParameterList<T>& parameters, const std::string& name);

  std::string_view kind() const override { return "gated_deltanet"; }
  std::vector<StateTensor> state_tensors(size_t batch) const override;
  Pass<T> apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states, size_t seen,
                Face face) const override;

 private:
  GatedDeltaNetConfig config_;
  ConvolvedProjection<T> q_, k_, v_;
  Projection<T> a_, b_, g_, out_;
  Parameter<T>*A_log_, *dt_bias_, *norm_;
};

}  // namespace storytape
