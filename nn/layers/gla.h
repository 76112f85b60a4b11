// The gated linear attention layer: a decay per key channel from a map of low rank, and a gated norm behind
// the core. Yang, Wang, Shen, Panda, Kim, "Gated Linear Attention Transformers with Hardware-Efficient
// Training", 2024, in the form of flash-linear-attention.
//
//   (GL1)  q = x W_q  in H heads,  k = x W_k,  v = x W_v  in H_kv heads; with a convolution silu(conv(.))
//   (GL2)  α = σ(x W_gk1 W_gk2 + b_gk2)^(1/τ)               per key channel, H_kv heads
//   (GL3)  S_t = Diag(α_t) S_{t-1} + k_tᵀ v_t,   o_t = dk^-1/2 q_t S_t      nn/mixers/gla.h;
//          head h reads k, v, α of head floor(h H_kv / H)
//   (GL4)  y = concat_h(rms_norm(o; w) act(x W_g)) W_o
//
// b_gk2 starts at 0: α = 2^(-1/16) = 0.958 at first. Left out: fla's feature map on q and k and its clamp of
// the gate.
#pragma once

#include "nn/layers/parts.h"

namespace storytape {

struct GlaConfig {
  size_t dim;           // D
  size_t heads;         // H
  size_t kv_heads = 0;  // H_kv, divides heads; 0: as many as heads
  size_t key_dim;       // dk, of one head; fla: D/(2H)
  size_t value_dim;     // dv, of one head; fla: D/H
  size_t rank = 16;     // of the map to the decay
  double tau = 16;      // τ
  ConvolutionConfig convolution = {0, false, false};
  OutputGate gate = OutputGate::kSilu;
  double norm_eps = 1e-5;
};

// Carries "S" [B, H, dk, dv] and, with a convolution, before it "conv_q", "conv_k", "conv_v" [B, K-1, C].
template <class T>
class GatedLinearAttention final : public Layer<T> {
 public:
  GatedLinearAttention(const GlaConfig& config, ParameterList<T>& parameters, const std::string& name);

  std::string_view kind() const override { return "gla"; }
  std::vector<StateTensor> state_tensors(size_t batch) const override;
  Pass<T> apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states, size_t seen,
                Face face) const override;

 private:
  GlaConfig config_;
  ConvolvedProjection<T> q_, k_, v_;
  Projection<T> gk1_, gk2_, g_, out_;
  Parameter<T>* norm_;
};

}  // namespace storytape
