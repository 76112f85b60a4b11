// Multi-scale retention: linear attention with rotated queries and keys, a fixed decay per head, and a gated
// norm behind it. Sun et al., "Retentive Network: A Successor to Transformer for Large Language Models",
// 2023; in the form of flash-linear-attention, or with the paper's norm.
//
//   (RT1)  q = x W_q   in H heads,  k = x W_k,  v = x W_v   in H_kv heads;   head h reads floor(h H_kv / H)
//   (RT2)  q, k rotated by their position, all dk channels                     nn/rope.h
//   (RT3)  γ_h = 1 - 2^(-5-h);   S_t = γ_h S_{t-1} + k_tᵀ v_t,   o_t = dk^-1/2 q_t S_t  nn/mixers/retention.h
//   (RT4)  y = concat_h(norm(o) silu(x W_g)) W_o,   norm: RMS with a weight w (fla), or the group norm per
//          head without weights (paper)
//
// Left out: the paper's scaling of scores by their sums, which the norm undoes; fla's convolution and feature
// map.
#pragma once

#include "nn/layers/parts.h"

namespace storytape {

struct RetentionConfig {
  size_t dim;               // D
  size_t heads;             // H
  size_t kv_heads = 0;      // H_kv, divides heads; 0: as many as heads
  size_t key_dim;           // dk, of one head, even; fla: D/H
  size_t value_dim;         // dv, of one head; fla: 2D/H
  bool group_norm = false;  // in place of the RMS norm
  bool rotation = true;
  double rope_base = 10000;
  double norm_eps = 1e-5;
};

// Carries "S" [B, H, dk, dv].
template <class T>
class Retention final : public Layer<T> {
 public:
  Retention(const RetentionConfig& config, ParameterList<T>& parameters, const std::string& name);

  std::string_view kind() const override { return "retention"; }
  std::vector<StateTensor> state_tensors(size_t batch) const override;
  Pass<T> apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states, size_t seen,
                Face face) const override;

 private:
  RetentionConfig config_;
  Projection<T> q_, k_, v_, g_, out_;
  Parameter<T>* norm_ = nullptr;  // null: group norm
};

}  // namespace storytape
