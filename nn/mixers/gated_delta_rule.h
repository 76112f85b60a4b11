// The gated delta rule (Gated DeltaNet): a scalar gate that forgets everything a little, and the delta rule that overwrites
// one key. Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024, equation 10.
//
// Per head, with α_t in [0, 1], β_t in [0, 1]; the state decays first, the write reads the decayed state:
//   (N1)  S_t = α_t (I - β_t k_tᵀ k_t) S_{t-1} + β_t k_tᵀ v_t,   o_t = q_t S_t
//   (N2)  (I + Diag(β) (K Kᵀ ⊙ D below the diagonal)) U = Diag(β) (V - Λ K S_0),   D_ij = Π_{j<l≤i} α_l, Λ_i = Π_{l≤i} α_l
//   (N3)  O = Λ Q S_0 + (Q Kᵀ ⊙ D) U,   S_T = Λ_T S_0 + (D_T ⊙ K)ᵀ U
//   (N4)  dα_t = ⟨G̃_t, S_{t-1}⟩, G̃_t the gradient of the decayed state: (R7), (R8)
// (G1)-(R9) of nn/mixers/gated_recurrence.h at: scalar gate, delta write. α = 1 is the delta rule.
//
// The textbook's parallel form (options.rescale) is b ⊙ delta_rule(Q, K, V / b) with b the running product of the gates:
// in float it ends where b leaves the normal numbers, for α = 0.8 after 391 tokens.
#pragma once

#include "nn/mixers/gated_recurrence.h"

namespace storytape {

// q, k [B, T, H, dk], v [B, T, H, dv], alpha [B, T, H] in [0, 1], beta [B, T, H] in [0, 2], S_init [B, H, dk, dv] or
// undefined. Returns o [B, T, H, dv] and the state after the last token. All of it differentiable.
template <class T>
GatedResult<T> gated_delta_rule(Var<T> q, Var<T> k, Var<T> v, Var<T> alpha, Var<T> beta, Var<T> S_init = {},
                                const GatedOptions& options = {}) {
  internal::want_gate("gated_delta_rule", alpha, GateShape::kScalar);
  internal::want_beta("gated_delta_rule", beta);
  return gated_recurrence<T>("gated_delta_rule", q, k, v, alpha, beta, S_init, options);
}

}  // namespace storytape
