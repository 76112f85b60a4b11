// Softmax attention as the current models have it. Vaswani et al., "Attention Is All You Need", 2017, with grouped heads
// (Ainslie et al., "GQA", 2023), a window (Jiang et al., "Mistral 7B", 2023), rotation of all or part of the head (Su et
// al., "RoFormer", 2021), norms on queries and keys (Henry et al., "Query-Key Normalization for Transformers", 2020), a
// soft cap (Gemma Team, "Gemma 2", 2024) and an output gate (Qiu et al., "Gated Attention for Large Language Models",
// 2025). One layer for Llama, Qwen2, Qwen3, Mistral, Gemma 2, Qwen3-Next and OLMo hybrid.
//
//   (AT1)  q = x W_q (+ b_q)  in H heads of d,   k = x W_k (+ b_k),  v = x W_v (+ b_v)  in H_kv;
//          query head h reads key and value head floor(h H_kv / H)
//   (AT2)  q ← q / √(mean q² + ε) (n + w_q), likewise k:  per head with one w [d] for all of them, or over all H d
//          channels before they are heads; n = 1 where the stored weight is centred on zero
//   (AT3)  q, k rotated by position in their first `rotary_dim` channels, channel i with i + rotary_dim/2    nn/rope.h
//   (AT4)  o_i = Σ_j softmax_j(cap(scale q_i·k_j)) v_j over the tokens j that i sees      nn/mixers/softmax_attention.h
//   (AT5)  y = (concat_h(o) [⊙ σ(x W_g)]) W_o (+ b_o)
//
// All public codes agree on how it starts: norms at 1, biases at 0; for matrices see nn/layers/parts.h. Left out:
// attention that isn't causal, ALiBi and learned relative positions, scaled rotations (YaRN and its kin), sinks.
#pragma once

#include <optional>

#include "nn/layers/parts.h"
#include "nn/layers/rotation.h"
#include "nn/mixers/softmax_attention.h"

namespace storytape {

enum class QkNorm {
  kNone,
  kHead,  // each head's row, one weight for all heads
  kFull,  // all channels of a token at once
};

struct AttentionConfig {
  size_t dim;                         // D
  size_t heads;                       // H
  size_t kv_heads = 0;                // H_kv, divides heads; 0: as many as heads
  size_t head_dim = 0;                // d; 0: D / H
  std::optional<double> scale = {};   // of (AT4); 1/√d if not given
  std::optional<size_t> window = {};  // tokens that one sees, its own included, at least 1; not given: all
  double softcap = 0;                 // 0: none
  size_t rotary_dim = 0;              // even, at most d; 0: no rotation
  double rope_base = 10000;
  QkNorm qk_norm = QkNorm::kNone;
  double norm_offset = 0;  // n of (AT2)
  double norm_eps = 1e-6;
  bool gate = false;
  bool bias = false;      // b_q, b_k, b_v
  bool out_bias = false;  // b_o
};

// Carries "k" and "v" [B, tokens, H_kv, d], keys after norm and rotation. apply hands on those of all tokens; extend
// keeps them as softmax_attention_extend does, with room that grows by doubling, or a ring of the window's size.
template <class T>
class Attention final : public Layer<T> {
 public:
  Attention(const AttentionConfig& config, ParameterList<T>& parameters, const std::string& name);

  std::string_view kind() const override { return config_.window ? "window" : "attention"; }
  std::vector<StateTensor> state_tensors(size_t batch) const override;
  Pass<T> apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states, size_t seen,
                Face face) const override;
  Tensor<T> extend(State<T>& state, const Tensor<T>& x, const Tensor<T>& residual) const override;

 private:
  struct Heads {
    Var<T> q, k, v;  // [B, T, H or H_kv, d]
  };
  // (AT1) to (AT3) of tokens from position `seen` on.
  Heads heads(const Weights<T>& weights, Var<T> x, size_t seen) const;
  // (AT2), from x W [B, T, heads d].
  Var<T> normed(const Weights<T>& weights, Var<T> x, Parameter<T>* norm, size_t heads) const;
  // (AT5), o [B, T, H, d].
  Var<T> output(const Weights<T>& weights, Var<T> x, Var<T> o, Var<T> residual) const;

  AttentionConfig config_;
  SoftmaxAttentionOptions options_;
  Projection<T> q_, k_, v_, g_, out_;
  Parameter<T>*q_norm_ = nullptr, *k_norm_ = nullptr;
  Rotation<T> rotation_;
};

// (cached, fresh) along the tokens; `fresh` alone where nothing is cached. [B, tokens, ...]
template <class T>
Var<T> with_cached(Var<T> cached, Var<T> fresh);
// The residual as a constant, or undefined as it is; an Error unless it has x's shape.
template <class T>
Var<T> residual_on(Tape<T>& tape, const Tensor<T>& x, const Tensor<T>& residual);

}  // namespace storytape
