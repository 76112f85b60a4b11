// Kimi delta attention (KDA): Gated DeltaNet with a vector gate, one factor per key channel. Kimi Team, "Kimi
// Linear", 2025, equation 1.
//
// Per head, row vectors q, k, v, a gate α_t in [0, 1]^dk, a rate β_t in [0, 1] ([0, 2] allows reflections);
// tokens are counted from 1:
//
//   recurrence
//   (K1)  S̃_t = Diag(α_t) S_{t-1}                             the decay comes first,
//   (K2)  y_t = v_t - k_t S̃_t                                 the write reads the decayed state
//   (K3)  S_t = S̃_t + β_t k_tᵀ y_t                            = (I - β_t k_tᵀ k_t) S̃_t + β_t k_tᵀ v_t
//   (K4)  o_t = q_t S_t                                       read after the write
//
//   parallel, over T tokens from S_0; w_j^(i) is key j as it has decayed by token i ≥ j
//   (K5)  w_j^(i) = k_j ⊙ Π_{j<l≤i} α_l,   λ_i = Π_{l≤i} α_l
//   (K6)  P_ij = q_i · w_j^(i) for j ≤ i,   A_ij = k_i · w_j^(i) for j < i;   else 0
//   (K7)  U solves (I + Diag(β) A) U = Diag(β) (V - K̂ S_0),   rows K̂_i = k_i ⊙ λ_i
//   (K8)  o_i = (q_i ⊙ λ_i) S_0 + Σ_j P_ij u_j                u_j: row j of U
//   (K9)  S_T = Diag(λ_T) S_0 + Σ_j w_j^(T)ᵀ u_j
//
//   chunk: (K5)-(K9) tile after tile of at most 16 tokens, S_0 the state at the tile's start; the reverse
//   of a tile is (G8)-(G12), (G15) of nn/mixers/gated_recurrence.h
//
//   reverse of the recurrence, from the last token; G, the gradient of S_t, starts as dS_T
//   (K10) G += q_tᵀ do_t,   dq_t = do_t S_tᵀ
//   (K11) x = k_t G,   dβ_t = x·y_t,   dv_t = β_t x
//   (K12) dk_t = β_t y_t Gᵀ - dv_t S̃_tᵀ
//   (K13) G -= k_tᵀ dv_t                                      now that of S̃_t
//   (K14) dα_t = rows' sums of G ⊙ S_{t-1}                    one number per channel
//   (K15) G = Diag(α_t) G                                     that of S_{t-1}; after the first token dS_0
//
// (G1)-(G15), (R1)-(R9) of nn/mixers/gated_recurrence.h at: vector gate, delta write. α equal in all
// channels is Gated DeltaNet; without the delta it would be GLA. Saved for the backward: the inputs and the
// state at each chunk's start. Recomputed inside the chunk: states, or the tiles' w, scores and solves.
//
// Choices: order as above; keys as given (normalise them: nn/mixers/delta_rule.h); no scale inside. Decay is
// multiplied up, never divided: gates of 0 and 1 are exact.
#pragma once

#include "nn/mixers/gated_recurrence.h"

namespace storytape {

// q, k [B, T, H, dk], v [B, T, H, dv], alpha [B, T, H, dk] in [0, 1], beta [B, T, H] in [0, 2], S_init [B, H,
// dk, dv] or undefined for zeros. Returns o [B, T, H, dv] and the state after the last token. All of it
// differentiable. An Error names what doesn't fit. Decoding: gated_state and gated_extend.
template <class T>
GatedResult<T> kda(Var<T> q, Var<T> k, Var<T> v, Var<T> alpha, Var<T> beta, Var<T> S_init = {},
                   const GatedOptions& options = {}) {
  internal::want_gate("kda", alpha, GateShape::kVector);
  internal::want_beta("kda", beta);
  return gated_recurrence<T>("kda", q, k, v, alpha, beta, S_init, options);
}

}  // namespace storytape
