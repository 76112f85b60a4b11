// The delta rule (DeltaNet): a write that corrects the value already stored under its key. Schlag et al.,
// "Linear Transformers Are Secretly Fast Weight Programmers", 2021; in parallel over the length by the UT
// transform: Yang et al., "Parallelizing Linear Transformers with the Delta Rule over Sequence Length", 2024.
//
// Per head, row vectors q, k, v, a rate β_t in [0, 1] ([0, 2] allows reflections); tokens are counted from 1:
//
//   recurrence
//   (D1)  y_t = v_t - k_t S_{t-1}                             what is missing under the key
//   (D2)  S_t = S_{t-1} + β_t k_tᵀ y_t                        = (I - β_t k_tᵀ k_t) S_{t-1} + β_t k_tᵀ v_t
//   (D3)  o_t = q_t S_t                                       read after the write
//
//   parallel, over T tokens from S_0: the UT transform. One solve gives the values U = Diag(β) Y
//   (D4)  U solves (I + Diag(β) tril(K Kᵀ, -1)) U = Diag(β) (V - K S_0)
//   (D5)  O = Q S_0 + tril(Q Kᵀ) U                            as if U had been written additively
//   (D6)  S_T = S_0 + Kᵀ U
//
//   chunk: (D4)-(D6) tile after tile of at most 16 tokens, S_0 the state at the tile's start; the reverse
//   of a tile is (G8)-(G12), (G14) of nn/mixers/gated_recurrence.h with all decays 1
//
//   reverse of the recurrence, from the last token; G, the gradient of S_t, starts as dS_T
//   (D7)  G += q_tᵀ do_t,   dq_t = do_t S_tᵀ
//   (D8)  x = k_t G,   dβ_t = x·y_t,   dv_t = β_t x
//   (D9)  dk_t = β_t y_t Gᵀ - dv_t S_{t-1}ᵀ
//   (D10) G -= k_tᵀ dv_t                                      = (I - β_t k_tᵀ k_t) G; at last dS_0
//
// (G1)-(G14), (R1)-(R9) of nn/mixers/gated_recurrence.h at: no gate, delta write. Saved for the backward: the
// inputs and the state at each chunk's start. Recomputed inside the chunk: states, or the tiles' solves.
//
// Choices: keys are used as given. The transition's eigenvalue along k is 1 - β |k|²: normalise keys
// (l2_normalize of nn/normalize.h), or the state may grow without bound. No scale and no normaliser inside.
#pragma once

#include "nn/mixers/gated_recurrence.h"

namespace storytape {

// q, k [B, T, H, dk], v [B, T, H, dv], beta [B, T, H] in [0, 2], S_init [B, H, dk, dv] or undefined for
// zeros. Returns o [B, T, H, dv] and the state after the last token. All of it differentiable. An Error
// names what doesn't fit. Decoding: gated_state and gated_extend.
template <class T>
GatedResult<T> delta_rule(Var<T> q, Var<T> k, Var<T> v, Var<T> beta, Var<T> S_init = {},
                          const GatedOptions& options = {}) {
  internal::want_beta("delta_rule", beta);
  return gated_recurrence<T>("delta_rule", q, k, v, {}, beta, S_init, options);
}

}  // namespace storytape
