// The Forgetting Transformer's attention: softmax attention without positions, whose logits fade by a learned gate per
// head and token. Lin et al., "Forgetting Transformer: Softmax Attention with a Forget Gate", 2025; in the form of
// flash-linear-attention.
//
//   (FO1)  q = x W_q (+ b_q)  in H heads of d,   k = x W_k (+ b_k),  v = x W_v (+ b_v)  in H_kv;
//          query head h reads key and value head floor(h H_kv / H)
//   (FO2)  q ← q / √(mean q² + ε) w_q  per head, with a weight of its own for every channel of every head; likewise k
//   (FO3)  log f_t = log σ(x_t W_f + b_f),  one per query head
//   (FO4)  o_i = Σ_{j≤i} softmax_j(d^-1/2 q_i·k_j + Σ_{j<l≤i} log f_l) v_j                nn/mixers/softmax_attention.h
//   (FO5)  y = (concat_h(o) [⊙ σ(x W_g)]) W_o
//
// b_f starts at 0, so f = 1/2: a horizon of two tokens, from which the gates open in training; norms start at 1. Left
// out: the Pro block's shift of keys and values and its norm on the output, and fla's window, which there bounds the
// cache and not the attention.
#pragma once

#include "nn/layers/parts.h"
#include "nn/mixers/softmax_attention.h"

namespace storytape {

struct ForgettingAttentionConfig {
  size_t dim;           // D
  size_t heads;         // H
  size_t kv_heads = 0;  // H_kv, divides heads; 0: as many as heads
  size_t head_dim = 0;  // d; 0: D / H
  bool qk_norm = false;
  bool gate = false;
  bool bias = false;  // b_q, b_k, b_v
  double norm_eps = 1e-5;
};

// Carries "k", "v" [B, tokens, H_kv, d], keys after the norm, and "log_f" [B, tokens, H, 1]; see Attention.
template <class T>
class ForgettingAttention final : public Layer<T> {
 public:
  ForgettingAttention(const ForgettingAttentionConfig& config, ParameterList<T>& parameters,
                      const std::string& name);

  std::string_view kind() const override { return "forgetting"; }
  std::vector<StateTensor> state_tensors(size_t batch) const override;
  Pass<T> apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states, size_t seen,
                Face face) const override;
  Tensor<T> extend(State<T>& state, const Tensor<T>& x, const Tensor<T>& residual) const override;

 private:
  struct Heads {
    Var<T> q, k, v;  // [B, T, H or H_kv, d]
    Var<T> log_f;    // [B, T, H]
  };
  // (FO1) to (FO3).
  Heads heads(const Weights<T>& weights, Var<T> x) const;
  // (FO2), x [B, T, heads d].
  Var<T> normed(const Weights<T>& weights, Var<T> x, Parameter<T>* norm, size_t heads) const;
  // (FO5), o [B, T, H, d].
  Var<T> output(const Weights<T>& weights, Var<T> x, Var<T> o, Var<T> residual) const;

  ForgettingAttentionConfig config_;
  Projection<T> q_, k_, v_, f_, g_, out_;
  Parameter<T>*q_norm_ = nullptr, *k_norm_ = nullptr;  // [heads d]
};

}  // namespace storytape
