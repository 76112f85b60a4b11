// The (Gated) DeltaProduct layer: n_h delta writes per token, each with keys, values and strengths of its
// own, after one decay. Siems et al., "DeltaProduct: Improving State-Tracking in Linear RNNs via Householder
// Products", 2025, in the form of flash-linear-attention. For the writes j = 0..n_h-1:
//
//   (GP1)  q = silu(conv(x W_q)),  k_j = silu(conv(x W_kj)) in H_k heads,  v_j = silu(conv(x W_vj)) in H_v
//   (GP2)  q̂ = q/|q| dk^-1/2,  k̂_j = k_j/|k_j|,  β_j = beta_scale σ(x W_bj);
//          value head h reads key head floor(h H_k / H_v)
//   (GP3)  α = exp(-exp(A_log) softplus(x W_a + dt_bias)), or 1 without the forget gate
//   (GP4)  S = α_t S_{t-1};  for each j  S += β_j k̂_jᵀ (v_j - k̂_j S);  o_t = q̂_t S  nn/mixers/delta_product.h
//   (GP5)  y = concat_h(rms_norm(o; w) [act(x W_g)]) W_o
//
// beta_scale is 2, as in fla's layer (its model configuration says 1): negative eigenvalues are what several
// writes per token are for. A_log and dt_bias start as in nn/layers/gated_deltanet.h. Left out: nothing of
// the layer; its packed projections are separate matrices here.
#pragma once

#include "nn/layers/parts.h"

namespace storytape {

struct GatedDeltaProductConfig {
  size_t dim;          // D
  size_t key_heads;    // H_k
  size_t value_heads;  // H_v, a multiple of key_heads
  size_t key_dim;      // dk, of one head
  size_t value_dim;    // dv, of one head
  size_t steps = 2;    // n_h, writes per token
  ConvolutionConfig convolution = {};
  bool forget = true;
  OutputGate gate = OutputGate::kSilu;
  double beta_scale = 2;  // up to 2
  double norm_eps = 1e-5;
};

// Carries "conv_q", "conv_k0", "conv_v0", "conv_k1", "conv_v1", ... [B, K-1, C] and "S" [B, H_v, dk, dv].
template <class T>
class GatedDeltaProduct final : public Layer<T> {
 public:
  GatedDeltaProduct(const GatedDeltaProductConfig& config, ParameterList<T>& parameters,
                    const std::string& name);

  std::string_view kind() const override { return "deltaproduct"; }
  std::vector<StateTensor> state_tensors(size_t batch) const override;
  Pass<T> apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states, size_t seen,
                Face face) const override;

 private:
  // What one write per token reads.
  struct Write {
    ConvolvedProjection<T> k, v;
    Projection<T> b;
  };

  GatedDeltaProductConfig config_;
  ConvolvedProjection<T> q_;
  std::vector<Write> writes_;
  Projection<T> a_, g_, out_;
  Parameter<T>*A_log_ = nullptr, *dt_bias_ = nullptr, *norm_;
};

}  // namespace storytape
