// Gated linear attention (GLA): retention whose decay is a vector, one factor per key channel and token, so that one feature
// of the state can be held while another is flushed. Yang et al., "Gated Linear Attention Transformers with
// Hardware-Efficient Training", 2023.
//
// Per head, with α_t in [0, 1]^dk:
//   (A1)  S_t = Diag(α_t) S_{t-1} + k_tᵀ v_t,   o_t = q_t S_t
//   (A2)  P_ij = Σ_c q_ic k_jc Π_{j<l≤i} α_lc for j ≤ i, else 0;   O = P V + (Q ⊙ Λ) S_0,   Λ_i = Π_{l≤i} α_l
//   (A3)  S_T = Diag(Λ_T) S_0 + Σ_j (k_j ⊙ Π_{j<l≤T} α_l)ᵀ v_j
//   (A4)  dα_t = rows' sums of G_t ⊙ S_{t-1},   G_t = Diag(α_{t+1}) G_{t+1} + q_tᵀ do_t, the gradient of S_t
// (G1)-(R9) of nn/mixers/gated_recurrence.h at: vector gate, additive write. α = γ in all channels is retention, α = 1
// linear attention.
//
// The textbook's parallel form (options.rescale) divides keys by Λ: in float it ends where α^(-L) passes 3.4e38, for α =
// 0.7 after 248 tokens.
#pragma once

#include "nn/mixers/gated_recurrence.h"

namespace storytape {

// q, k, alpha [B, T, H, dk], v [B, T, H, dv], S_init [B, H, dk, dv] or undefined. Returns o [B, T, H, dv] and the state
// after the last token. All of it differentiable.
template <class T>
GatedResult<T> gla(Var<T> q, Var<T> k, Var<T> v, Var<T> alpha, Var<T> S_init = {},
                   const GatedOptions& options = {}) {
  internal::want_gate("gla", alpha, GateShape::kVector);
  return gated_recurrence<T>("gla", q, k, v, alpha, {}, S_init, options);
}

}  // namespace storytape
