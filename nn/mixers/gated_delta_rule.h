// The gated delta rule (Gated DeltaNet): a scalar gate that forgets everything a little, and the delta rule
// that overwrites one key. Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024, equation 10.
//
// Per head, row vectors q, k, v, a gate α_t in [0, 1], a rate β_t in [0, 1] ([0, 2] allows reflections);
// tokens are counted from 1:
//
//   recurrence
//   (N1)  S̃_t = α_t S_{t-1}                                   the decay comes first,
//   (N2)  y_t = v_t - k_t S̃_t                                 the write reads the decayed state
//   (N3)  S_t = S̃_t + β_t k_tᵀ y_t                            = α_t (I - β_t k_tᵀ k_t) S_{t-1} + β_t k_tᵀ v_t
//   (N4)  o_t = q_t S_t                                       read after the write
//
//   parallel, over T tokens from S_0
//   (N5)  D_ij = Π_{j<l≤i} α_l for j ≤ i, else 0;   λ_i = Π_{l≤i} α_l
//   (N6)  U solves (I + Diag(β) A) U = Diag(β) (V - Diag(λ) K S_0),   A = K Kᵀ ⊙ D below the diagonal, else 0
//   (N7)  O = Diag(λ) Q S_0 + (Q Kᵀ ⊙ D) U
//   (N8)  S_T = λ_T S_0 + (Diag(D_T) K)ᵀ U                    D_T: the last row of D
//
//   chunk: (N5)-(N8) tile after tile of at most 16 tokens, S_0 the state at the tile's start; the reverse
//   of a tile is (G8)-(G14) of nn/mixers/gated_recurrence.h
//
//   reverse of the recurrence, from the last token; G, the gradient of S_t, starts as dS_T
//   (N9)  G += q_tᵀ do_t,   dq_t = do_t S_tᵀ
//   (N10) x = k_t G,   dβ_t = x·y_t,   dv_t = β_t x
//   (N11) dk_t = β_t y_t Gᵀ - dv_t S̃_tᵀ
//   (N12) G -= k_tᵀ dv_t                                      now that of S̃_t
//   (N13) dα_t = ⟨G, S_{t-1}⟩
//   (N14) G = α_t G                                           that of S_{t-1}; after the first token dS_0
//
// (G1)-(G14), (R1)-(R9) of nn/mixers/gated_recurrence.h at: scalar gate, delta write. α = 1 is the delta
// rule, bit for bit. Saved for the backward: the inputs and the state at each chunk's start. Recomputed
// inside the chunk: states, or the tiles' scores, D and solves.
//
// Choices: order as above; keys as given (normalise them: nn/mixers/delta_rule.h); no scale inside. D is
// multiplied up, never divided: α = 0, a hard reset, and 1 are exact. The textbook's parallel form,
// options.rescale, is b ⊙ delta_rule(Q, K, V / b), b the running product of the gates: for α = 0.8 b is no
// normal float from 392 tokens on, for α = 0.85 from 538.
#pragma once

#include "nn/mixers/gated_recurrence.h"

namespace storytape {

// q, k [B, T, H, dk], v [B, T, H, dv], alpha [B, T, H] in [0, 1], beta [B, T, H] in [0, 2], S_init [B, H, dk,
// dv] or undefined for zeros. Returns o [B, T, H, dv] and the state after the last token. All of it
// differentiable. An Error names what doesn't fit. Decoding: gated_state and gated_extend.
template <class T>
GatedResult<T> gated_delta_rule(Var<T> q, Var<T> k, Var<T> v, Var<T> alpha, Var<T> beta, Var<T> S_init = {},
                                const GatedOptions& options = {}) {
  internal::want_gate("gated_delta_rule", alpha, GateShape::kScalar);
  internal::want_beta("gated_delta_rule", beta);
  return gated_recurrence<T>("gated_delta_rule", q, k, v, alpha, beta, S_init, options);
}

}  // namespace storytape
