// Multi-head latent attention: keys and values of all heads from one short latent per token, which is what is cached,
// and beside it one rotated key for all heads. DeepSeek-AI, "DeepSeek-V2: A Strong, Economical, and Efficient
// Mixture-of-Experts Language Model", 2024, section 2.1 and appendix C; in the forms of DeepSeek-V3 and Kimi Linear.
//
//   (ML1)  l = rms_norm(x W_qa; w_qa), or l = x without a query latent
//          q = [l W_qn, l W_qr]  in H heads of d_nope + d_rope
//   (ML2)  c = rms_norm(x W_kva; w_kva)  of r numbers,   κ = x W_kr  of d_rope numbers, without a norm
//   (ML3)  the d_rope channels of q and κ rotated by position, neighbours as pairs (DeepSeek); or not (Kimi Linear)
//   (ML4)  k_h = [c W_kb,h, κ],   v_h = c W_vb,h
//   (ML5)  o_i = Σ_{j≤i} softmax_j((d_nope + d_rope)^-1/2 q_i·k_j) v_j                    nn/mixers/softmax_attention.h
//   (ML6)  y = concat_h(o) W_o
//
// Decoding never forms k_h and v_h: with W_kb,h taken to the query and W_vb,h behind the sum,
//   (ML7)  q_i·k_j = (q_nope,i W_kb,hᵀ)·c_j + q_rope,i·κ_j,     o_i = (Σ_j p_ij c_j) W_vb,h
// it is attention of H query heads over one head whose keys are [c, κ] and whose values are c.
//
// Latents have ε = 1e-6 in both public codes, whatever their models' norms have; the query latent's and the key latent's
// norms start at 1, for matrices see nn/layers/parts.h. Left out: YaRN's scaling of rotation and logits.
#pragma once

#include "nn/layers/parts.h"
#include "nn/layers/rotation.h"

namespace storytape {

struct MlaConfig {
  size_t dim;                // D
  size_t heads;              // H
  size_t nope_dim;           // d_nope
  size_t rope_dim;           // d_rope; even where it is rotated
  size_t value_dim;          // d_v, of one head
  size_t latent;             // r
  size_t query_latent = 0;   // 0: none
  double rope_base = 10000;  // 0: no rotation
  double latent_eps = 1e-6;
};

// Carries "k" [B, tokens, 1, r + d_rope]: c after its norm, then κ after its rotation.
template <class T>
class LatentAttention final : public Layer<T> {
 public:
  LatentAttention(const MlaConfig& config, ParameterList<T>& parameters, const std::string& name);

  std::string_view kind() const override { return "mla"; }
  std::vector<StateTensor> state_tensors(size_t batch) const override;
  Pass<T> apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states, size_t seen,
                Face face) const override;
  Tensor<T> extend(State<T>& state, const Tensor<T>& x, const Tensor<T>& residual) const override;

 private:
  struct Parts {
    Var<T> q_nope, q_rope;  // [B, T, H, d_nope or d_rope]
    Var<T> latent;          // [B, T, 1, r + d_rope]
  };
  // (ML1) to (ML3) of tokens from position `seen` on.
  Parts parts(const Weights<T>& weights, Var<T> x, size_t seen) const;
  double scale() const;

  MlaConfig config_;
  Projection<T> qa_, qn_, qr_, kva_, kr_, kb_, vb_, out_;
  Parameter<T>*qa_norm_ = nullptr, *kva_norm_;
  Rotation<T> rotation_;
};

}  // namespace storytape
