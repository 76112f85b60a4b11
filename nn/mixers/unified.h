// One recurrence for three ways to forget: nothing (linear attention), a constant per head (retention), a
// scalar that the input gives for each token (`gated`; the core of Mamba-2 in its scalar-gate form, Dao and
// Gu, "Transformers are SSMs", 2024). Seed chapter "Linear attention and recurrent memory",
// `unified_recurrence`.
//
// Per head, row vectors q, k, v, a gate a_t in [0, 1]; tokens are counted from 1:
//
//   recurrence
//   (U1)  S_t = a_t S_{t-1} + k_tᵀ v_t
//   (U2)  o_t = q_t S_t                                       read after the write
//
//   parallel, over T tokens from S_0
//   (U3)  D_ij = Π_{j<l≤i} a_l for j ≤ i, else 0;   λ_i = Π_{l≤i} a_l
//   (U4)  O = (Q Kᵀ ⊙ D) V + Diag(λ) Q S_0
//   (U5)  S_T = λ_T S_0 + (Diag(D_T) K)ᵀ V                    D_T: the last row of D
//
//   chunk: (U3)-(U5) tile after tile of at most 16 tokens, S_0 the state at the tile's start; the reverse
//   of a tile is (G8)-(G14) of nn/mixers/gated_recurrence.h
//
//   reverse of the recurrence, from the last token; G, the gradient of S_t, starts as dS_T
//   (U6)  G += q_tᵀ do_t,   dq_t = do_t S_tᵀ
//   (U7)  dk_t = v_t Gᵀ,   dv_t = k_t G
//   (U8)  da_t = ⟨G, S_{t-1}⟩
//   (U9)  G = a_t G                                           that of S_{t-1}; after the first token dS_0
//
// (G1)-(G14), (R1)-(R9) of nn/mixers/gated_recurrence.h at: scalar gate, additive write. Saved for the
// backward: the inputs and the state at each chunk's start. Recomputed inside the chunk: states, or scores
// and D.
//
// Choices: the gate fades what was there before the token, not the token's own write; no scale, feature map
// or normaliser inside. D is multiplied up, never divided, so that a_t = 0, a hard reset, and 1 are exact.
#pragma once

#include "autograd/ops_arithmetic.h"
#include "nn/mixers/gated_recurrence.h"

namespace storytape {

// q, k [B, T, H, dk], v [B, T, H, dv], a [B, T, H] in [0, 1], S_init [B, H, dk, dv] or undefined for zeros.
// Returns o [B, T, H, dv] and the state after the last token. All of it differentiable. An Error names what
// doesn't fit. Decoding: gated_state and gated_extend.
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
