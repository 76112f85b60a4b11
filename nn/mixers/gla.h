// Gated linear attention (GLA): retention whose decay is a vector, one factor per key channel and token, so
// that one feature of the state can be held while another is flushed. Yang et al., "Gated Linear Attention
// Transformers with Hardware-Efficient Training", 2023.
//
// Per head, row vectors q, k, v, a gate α_t in [0, 1]^dk; tokens are counted from 1:
//
//   recurrence
//   (A1)  S_t = Diag(α_t) S_{t-1} + k_tᵀ v_t
//   (A2)  o_t = q_t S_t                                       read after the write
//
//   parallel, over T tokens from S_0; w_j^(i) is key j as it has decayed by token i ≥ j
//   (A3)  w_j^(i) = k_j ⊙ Π_{j<l≤i} α_l,   λ_i = Π_{l≤i} α_l
//   (A4)  P_ij = q_i · w_j^(i) for j ≤ i, else 0
//   (A5)  o_i = (q_i ⊙ λ_i) S_0 + Σ_j P_ij v_j
//   (A6)  S_T = Diag(λ_T) S_0 + Σ_j w_j^(T)ᵀ v_j
//
//   chunk: (A3)-(A6) tile after tile of at most 16 tokens, S_0 the state at the tile's start; the reverse
//   of a tile is (G8)-(G12), (G15) of nn/mixers/gated_recurrence.h
//
//   reverse of the recurrence, from the last token; G, the gradient of S_t, starts as dS_T
//   (A7)  G += q_tᵀ do_t,   dq_t = do_t S_tᵀ
//   (A8)  dk_t = v_t Gᵀ,   dv_t = k_t G
//   (A9)  dα_t = rows' sums of G ⊙ S_{t-1}                    one number per channel
//   (A10) G = Diag(α_t) G                                     that of S_{t-1}; after the first token dS_0
//
// (G1)-(G15), (R1)-(R9) of nn/mixers/gated_recurrence.h at: vector gate, additive write. Equal channels
// make it `unified`, α_t = γ in all channels retention, α = 1 linear attention. Saved for the backward: the
// inputs and the state at each chunk's start. Recomputed inside the chunk: states, or the tiles' w and P.
//
// Choices: the gate fades what was there before the token, not the token's own write; no scale inside (the
// published layer has 1/sqrt(dk) in q, and gla_gate of nn/gates.h for α). Decay is multiplied up, never
// divided: gates of 0 and 1 are exact. The textbook's parallel form, options.rescale, divides
// keys, P_ij = (q_i ⊙ λ_i)·(k_j / λ_j): in float, for α = 0.7, λ is no normal number from 245 tokens on, and
// 1/λ overflows from 249.
#pragma once

#include "nn/mixers/gated_recurrence.h"

namespace storytape {

// q, k [B, T, H, dk], v [B, T, H, dv], alpha [B, T, H, dk] in [0, 1], S_init [B, H, dk, dv] or undefined for
// zeros. Returns o [B, T, H, dv] and the state after the last token. All of it differentiable. An Error names
// what doesn't fit. Decoding: gated_state and gated_extend.
template <class T>
GatedResult<T> gla(Var<T> q, Var<T> k, Var<T> v, Var<T> alpha, Var<T> S_init = {},
                   const GatedOptions& options = {}) {
  internal::want_gate("gla", alpha, GateShape::kVector);
  return gated_recurrence<T>("gla", q, k, v, alpha, {}, S_init, options);
}

}  // namespace storytape
