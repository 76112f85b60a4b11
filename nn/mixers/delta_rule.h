// The delta rule (DeltaNet): a write that corrects the value already stored under its key. Schlag et al., "Linear Transformers
// Are Secretly Fast Weight Programmers", 2021; in parallel over the length by the UT transform: Yang et al.,
// "Parallelizing Linear Transformers with the Delta Rule over Sequence Length", 2024.
//
// Per head, with β_t in [0, 1] ([0, 2] allows reflections):
//   (D1)  S_t = S_{t-1} + β_t k_tᵀ (v_t - k_t S_{t-1}) = (I - β_t k_tᵀ k_t) S_{t-1} + β_t k_tᵀ v_t,   o_t = q_t S_t
//   (D2)  (I + Diag(β) tril(K Kᵀ, -1)) U = Diag(β) (V - K S_0)     the UT transform: one solve gives the values
//   (D3)  O = Q S_0 + tril(Q Kᵀ) U,   S_T = S_0 + Kᵀ U             as if written additively
//   (D4)  dβ_t = dX_t·Y_t,   Y_t = v_t - k_t S_{t-1}               see (G9), (G10)
// (G1)-(R9) of nn/mixers/gated_recurrence.h at: no gate, delta write.
//
// Keys are used as given. The transition's eigenvalue along k is 1 - β |k|²: normalise keys (l2_normalize), or the
// state may grow without bound.
#pragma once

#include "nn/mixers/gated_recurrence.h"

namespace storytape {

// q, k [B, T, H, dk], v [B, T, H, dv], beta [B, T, H] in [0, 2], S_init [B, H, dk, dv] or undefined. Returns o [B, T, H,
// dv] and the state after the last token. All of it differentiable.
template <class T>
GatedResult<T> delta_rule(Var<T> q, Var<T> k, Var<T> v, Var<T> beta, Var<T> S_init = {},
                          const GatedOptions& options = {}) {
  internal::want_beta("delta_rule", beta);
  return gated_recurrence<T>("delta_rule", q, k, v, {}, beta, S_init, options);
}

}  // namespace storytape
