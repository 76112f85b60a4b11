// The Mamba-2 layer: a state space whose state forgets by a scalar per head and token, written through a step
// width that the input chooses. Dao and Gu, "Transformers are SSMs: Generalized Models and Efficient
// Algorithms Through Structured State Space Duality", 2024; in the form of transformers.
//
//   (MB1)  z = x W_z,   u = silu(conv(x W_x)),   B = silu(conv(x W_B)),   C = silu(conv(x W_C))
//          u in H heads of P, B and C in G groups of N; head h reads group floor(h G / H)
//   (MB2)  Δ = clamp(softplus(x W_dt + dt_bias)),   α = exp(-exp(A_log) Δ)                one per head
//   (MB3)  S_t = α_t S_{t-1} + (Δ_t B_t)ᵀ u_t,   o_t = C_t S_t + D_h u_t
//          nn/mixers/unified.h with q = C, k = Δ B, v = u
//   (MB4)  g = concat_h(o) silu(z);   y = rms_norm(g; w) W_o, the norm over each of G blocks of channels
//
// The gate comes before the norm. The step width is clamped in prefill and in decoding alike; transformers
// clamps it in prefill alone. Starts as there: A_log = log 1, log 2, ..., log H, D = 1, dt_bias = softplus^-1
// of a log-uniform step, projections N(0, 0.1), W_o U(±1/√fan_in), convolutions U(±1/√K) with a bias of 0.
// Left out: nothing of the layer; its packed projection is separate matrices here.
#pragma once

#include <limits>

#include "nn/layers/parts.h"

namespace storytape {

struct Mamba2Config {
  size_t dim;         // D
  size_t heads;       // H
  size_t head_dim;    // P; H P = 2 D in the paper
  size_t state_dim;   // N
  size_t groups = 1;  // G, divides heads
  ConvolutionConfig convolution = {4, true, true};
  bool bias = false;  // of all projections
  double dt_min = 0;  // least and largest Δ
  double dt_max = std::numeric_limits<double>::infinity();
  double norm_eps = 1e-5;
};

// Carries "conv_x", "conv_B", "conv_C" [B, K-1, C] and "S" [B, H, N, P].
template <class T>
class Mamba2 final : public Layer<T> {
 public:
  Mamba2(const Mamba2Config& config, ParameterList<T>& parameters, const std::string& name);

  std::string_view kind() const override { return "mamba2"; }
  std::vector<StateTensor> state_tensors(size_t batch) const override;
  Pass<T> apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states, size_t seen,
                Face face) const override;

 private:
  Mamba2Config config_;
  Projection<T> z_;
  ConvolvedProjection<T> x_, B_, C_;
  Projection<T> dt_, out_;
  Parameter<T>*A_log_, *D_, *dt_bias_, *norm_;
};

}  // namespace storytape
