// Kimi delta attention (KDA): Gated DeltaNet with a vector gate, one factor per key channel. Kimi Team, "Kimi Linear", 2025,
// equation 1.
//
// Per head, with α_t in [0, 1]^dk, β_t in [0, 1]; the state decays first, the write reads the decayed state:
//   (K1)  S_t = (I - β_t k_tᵀ k_t) Diag(α_t) S_{t-1} + β_t k_tᵀ v_t,   o_t = q_t S_t
//   (K2)  A_ij = Σ_c k_ic k_jc Π_{j<l≤i} α_lc for j < i;   (I + Diag(β) A) U = Diag(β) (V - (K ⊙ Λ) S_0)
//   (K3)  O = (Q ⊙ Λ) S_0 + P U with P of (A2) in nn/mixers/gla.h;   S_T = Diag(Λ_T) S_0 + K̃ᵀ U
//   (K4)  dα_t = rows' sums of G̃_t ⊙ S_{t-1}, G̃_t the gradient of the decayed state: (R7), (R8)
// (G1)-(R9) of nn/mixers/gated_recurrence.h at: vector gate, delta write. α equal in all channels is Gated DeltaNet.
#pragma once

#include "nn/mixers/gated_recurrence.h"

namespace storytape {

// q, k, alpha [B, T, H, dk], v [B, T, H, dv], beta [B, T, H] in [0, 2], S_init [B, H, dk, dv] or undefined. Returns o [B, T,
// H, dv] and the state after the last token. All of it differentiable.
template <class T>
GatedResult<T> kda(Var<T> q, Var<T> k, Var<T> v, Var<T> alpha, Var<T> beta, Var<T> S_init = {},
                   const GatedOptions& options = {}) {
  internal::want_gate("kda", alpha, GateShape::kVector);
  internal::want_beta("kda", beta);
  return gated_recurrence<T>("kda", q, k, v, alpha, beta, S_init, options);
}

}  // namespace storytape
