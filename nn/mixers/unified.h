// One recurrence for three ways to forget: nothing (linear attention), a constant per head (retention), a scalar that
// the input gives for each token (`gated`; the core of Mamba-2 in its scalar-gate form, Dao and Gu, "Transformers are
// SSMs", 2024). Seed chapter "Linear attention and recurrent memory", `unified_recurrence`.
//
// Per head, with a_t in [0, 1]:
//   (U1)  S_t = a_t S_{t-1} + k_tᵀ v_t,   o_t = q_t S_t
//   (U2)  O = ((Q Kᵀ) ⊙ D) V + Λ Q S_0,   D_ij = Π_{j<l≤i} a_l for j ≤ i, else 0,   Λ_i = Π_{l≤i} a_l
//   (U3)  S_T = Λ_T S_0 + (D_T ⊙ K)ᵀ V
//   (U4)  da_t = ⟨G_t, S_{t-1}⟩,   G_t = a_{t+1} G_{t+1} + q_tᵀ do_t, the gradient of S_t
// (G1)-(R9) of nn/mixers/gated_recurrence.h at: scalar gate, additive write.
#pragma once

#include "autograd/ops_arithmetic.h"
#include "nn/mixers/gated_recurrence.h"

namespace storytape {

// q, k [B, T, H, dk], v [B, T, H, dv], a [B, T, H] in [0, 1], S_init [B, H, dk, dv] or undefined. Returns o [B, T, H, dv]
// and the state after the last token. All of it differentiable.
template <class T>
GatedResult<T> unified(Var<T> q, Var<T> k, Var<T> v, Var<T> a, Var<T> S_init = {},
                       const GatedOptions& options = {}) {
  internal::want_gate("unified", a, GateShape::kScalar);
  return gated_recurrence<T>("unified", q, k, v, a, {}, S_init, options);
}

enum class ForgetMode {
  kLinear,     // a_t = 1
  kRetention,  // a_t = gate[h], one number in [0, 1] per head
  kGated,      // a_t = gate[b, t, h]
};

// The same by mode; gate is undefined, [H], or [B, T, H].
template <class T>
GatedResult<T> unified_recurrence(ForgetMode mode, Var<T> q, Var<T> k, Var<T> v, Var<T> gate = {},
                                  Var<T> S_init = {}, const GatedOptions& options = {}) {
  if (mode == ForgetMode::kLinear && gate.defined())
    fail("unified_recurrence: mode linear forgets nothing, got a gate");
  if (mode == ForgetMode::kLinear) return gated_recurrence<T>("unified", q, k, v, {}, {}, S_init, options);
  if (mode == ForgetMode::kGated) return unified(q, k, v, gate, S_init, options);
  const Shape shape = q.shape();
  if (!gate.defined() || shape.rank() != 4 || gate.shape() != Shape{shape[2]}) {
    fail("unified_recurrence: mode retention wants a gate of one number per head");
  }
  const Var<T> ones = q.tape().constant(Tensor<T>({shape[0], shape[1], shape[2]}, T{1}));
  return unified(q, k, v, mul(ones, gate), S_init, options);
}

}  // namespace storytape
