// The DeltaNet layer: the delta rule with short convolutions, keys and queries of length 1, and a norm behind
// it. Yang, Wang, Zhang, Shen, Kim, "Parallelizing Linear Transformers with the Delta Rule over Sequence
// Length", 2024, in the form of flash-linear-attention:
//
//   (DN1)  q = silu(conv(x W_q)),  k = silu(conv(x W_k)),  v = silu(conv(x W_v))          H heads
//   (DN2)  q̂ = q/|q| dk^-1/2,  k̂ = k/|k|,   β = beta_scale σ(x W_b)
//   (DN3)  S_t = (I - β_t k̂_tᵀ k̂_t) S_{t-1} + β_t k̂_tᵀ v_t,   o_t = q̂_t S_t       nn/mixers/delta_rule.h
//   (DN4)  y = concat_h(rms_norm(o; w) [act(x W_g)]) W_o
//
// Left out: fla's other feature maps (elu, relu, identity) and its normalisation of keys by their sum.
#pragma once

#include "nn/layers/parts.h"

namespace storytape {

struct DeltaNetConfig {
  size_t dim;        // D
  size_t heads;      // H
  size_t key_dim;    // dk, of one head
  size_t value_dim;  // dv, of one head
  ConvolutionConfig convolution = {};
  OutputGate gate = OutputGate::kNone;
  double beta_scale = 1;  // up to 2
  double norm_eps = 1e-5;
};

// Carries "conv_q", "conv_k", "conv_v" [B, K-1, C] and "S" [B, H, dk, dv].
template <class T>
class DeltaNet final : public Layer<T> {
 public:
  DeltaNet(const DeltaNetConfig& config, ParameterList<T>& parameters, const std::string& name);

  std::string_view kind() const override { return "deltanet"; }
  std::vector<StateTensor> state_tensors(size_t batch) const override;
  Pass<T> apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states, size_t seen,
                Face face) const override;

 private:
  DeltaNetConfig config_;
  ConvolvedProjection<T> q_, k_, v_;
  Projection<T> b_, g_, out_;
  Parameter<T>* norm_;
};

}  // namespace storytape
