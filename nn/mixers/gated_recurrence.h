// The recurrence of all mixers whose state, a matrix, forgets by gates of its own for every token: two axes,
// how it forgets (nothing, a scalar, a vector over the key channels) and how it writes (additively, or by the
// delta rule, n_h times per token). Each variant has a header of its own that names its point:
//
//                    gate α_t   write               header
//   unified          scalar     additive            nn/mixers/unified.h
//   GLA              vector     additive            nn/mixers/gla.h
//   DeltaNet         none       delta               nn/mixers/delta_rule.h
//   Gated DeltaNet   scalar     delta               nn/mixers/gated_delta_rule.h
//   KDA              vector     delta               nn/mixers/kda.h
//   DeltaProduct     none, scalar   delta, n_h ≥ 1  nn/mixers/delta_product.h
//
// (Retention, whose gate is one constant per head, shares the kernels of nn/mixers/linear_attention.h.)
//
// Per head, row vectors q, k, v. The writes of all tokens are counted on, r = 0, 1, ...: token i has the
// writes i·n_h to e(i) = (i+1)·n_h - 1. g_r is α_i at a token's first write, else 1. Decay comes first: a
// write reads the decayed state; the query reads after the token's last write.
//
//   recurrence
//   (G1)  S̃_r = Diag(g_r) S_{r-1}
//         S_r = S̃_r + k_rᵀ u_r,   u_r = β_r y_r,  y_r = v_r - k_r S̃_r     delta: S_r = (I - β_r k_rᵀ k_r) S̃_r + β_r k_rᵀ v_r
//                                 u_r = y_r = v_r                          additive
//   (G2)  o_i = q_i S_{e(i)}
//
//   over n writes from S_0: parallel, and chunkwise for each tile. With w_j^(r) = k_j ⊙ Π_{j<l≤r} g_l, the key
//   of write j as it has decayed by write r, and λ_r = Π_{l≤r} g_l:
//   (G3)  P_ij = q_i · w_j^(e(i)) for j ≤ e(i),   A_rj = k_r · w_j^(r) for j < r;   else 0
//   (G4)  Q̂_i = q_i ⊙ λ_{e(i)},   K̂_r = k_r ⊙ λ_r,   K̃_j = w_j^(n-1)
//   (G5)  (I + Diag(β) A) U = Diag(β) (V - K̂ S_0)                          additive: U = V
//   (G6)  O = Q̂ S_0 + P U
//   (G7)  S_n = Diag(λ_{n-1}) S_0 + K̃ᵀ U
//
//   reverse of a tile, given dO and dS_n; Y is U before its factor β
//   (G8)  dU = K̃ dS_n + Pᵀ dO
//   (G9)  X_r = dU_r - Σ_{i>r} A_ir dY_i,   dY_r = β_r X_r                 from the last write to the first
//   (G10) dβ_r = X_r · Y_r,   dV = dY                                      additive: dV = dU
//   (G11) dS_0 = Diag(λ_{n-1}) dS_n + Q̂ᵀ dO - K̂ᵀ dY
//   (G12) dP = dO Uᵀ, dA = -dY Uᵀ where P, A are not 0;  dQ̂ = dO S_0ᵀ, dK̂ = -dY S_0ᵀ, dK̃ = U dS_nᵀ,
//         dλ_{n-1} = rows' sums of S_0 ⊙ dS_n
//   scalar gates: P = (Q Kᵀ) ⊙ D, A = (K Kᵀ) ⊙ D with D_rj = Π_{j<l≤r} g_l, row by row D_r = g_r D_{r-1}
//   (G13) E_r = g_{r+1} E_{r+1} + [dP ⊙ Q Kᵀ]_r + [dA ⊙ K Kᵀ]_r,   from E_{n-1} with k_j·dK̃_j added;
//         dg_r = Σ_{j<r} E_rj D_{r-1,j} + ε_r λ_{r-1},   ε_r, the gradient of λ_r, gathers like E from q_i·dQ̂_i,
//         k_r·dK̂_r and dλ_{n-1}
//   (G14) dQ = (dP ⊙ D) K + λ dQ̂
//         dK = (dP ⊙ D)ᵀ Q + (dA ⊙ D + (dA ⊙ D)ᵀ) K + λ dK̂ + D_{n-1} dK̃
//   vector gates, channel by channel, from the last write to the first
//   (G15) G_j = dK̃_j at r = n-1;  at write r: G_j += dP_ij q_i + dA_rj k_r,  dq_i = Σ_j dP_ij w_j^(r) + λ_r dQ̂_i,
//         dk_r = G_r + Σ_j dA_rj w_j^(r) + λ_r dK̂_r,  dg_r = Σ_{j<r} G_j w_j^(r-1) + ε_r λ_{r-1},  G_j *= g_r
//
//   reverse of the recurrence, G the gradient of S_r
//   (R1)  G += q_iᵀ do_i   where write r is read        (R2)  dq_i = do_i S_rᵀ
//   (R3)  du = k_r G                                    (R4)  dk_r = u_r Gᵀ
//   (R5)  dβ_r = du·y_r,  dy = β_r du,  dv_r = dy       (R6)  dk_r -= dy S̃_rᵀ
//   (R7)  G -= k_rᵀ dy                                  (R8)  dg_r = rows' sums of G ⊙ S_{r-1}
//   (R9)  G = Diag(g_r) G
//
// Chunkwise, tiles of at most 16 writes follow each other within a chunk; the backward keeps the state at each
// chunk's start and makes the rest again. Only products of gates over a segment occur, never their quotient:
// all values in [0, 1] are exact, 0 and 1 too. Derivation: docs/derivations/gated_recurrence.md.
#pragma once

#include <cstddef>

#include "autograd/tape.h"
#include "nn/mixers/face.h"
#include "nn/mixers/state.h"

namespace storytape {

struct GatedOptions {
  Face face = Face::kChunkwise;
  size_t chunk = 64;  // tokens from one kept state to the next, at least 1; any length is right
  size_t steps = 1;   // n_h, writes per token
  // The parallel face as textbooks write it: divided by the running product of the gates from the start. It
  // holds for short spans alone: where the product leaves the normal numbers (α = 0.8: 392 tokens in float),
  // it gives NaN.
  bool rescale = false;
};

template <class T>
struct GatedResult {
  Var<T> o;  // [B, T, H, dv]
  Var<T> S;  // [B, H, dk, dv], after the last token
};

// q [B, T, H, dk], k [B, T·n_h, H, dk], v [B, T·n_h, H, dv], T ≥ 1. alpha: undefined for no gate, [B, T, H] or
// [B, T, H, dk], in [0, 1]. beta: undefined for additive writes, or [B, T·n_h, H], in [0, 2]. S_init [B, H, dk, dv],
// undefined for zeros. All of it differentiable, the final state too. An Error names what doesn't fit, under the name
// `op`.
template <class T>
GatedResult<T> gated_recurrence(const char* op, Var<T> q, Var<T> k, Var<T> v, Var<T> alpha, Var<T> beta,
                                Var<T> S_init, const GatedOptions& options);

// The state before the first token: "S", zeros.
template <class T>
State<T> gated_state(size_t batch, size_t heads, size_t dk, size_t dv);

// The outputs [B, T, H, dv] of T ≥ 1 further tokens; the state moves on. No gradients. Several tokens go
// chunkwise, one by the recurrence. alpha and beta may be undefined.
template <class T>
Tensor<T> gated_extend(const char* op, State<T>& state, const Tensor<T>& q, const Tensor<T>& k,
                       const Tensor<T>& v, const Tensor<T>& alpha, const Tensor<T>& beta,
                       const GatedOptions& options);

// Adds the examples of all variants and faces to the list that gradients are proven by, and the variants to
// the face checks.
void register_gated_recurrence();

enum class GateShape { kScalar, kVector };

namespace internal {
// An Error unless the gate is there, with one number per token and head, or one per channel too.
template <class T>
void want_gate(const char* op, const Var<T>& alpha, GateShape shape) {
  const size_t rank = shape == GateShape::kScalar ? 3 : 4;
  const char* wanted = shape == GateShape::kScalar ? "[B, T, H]" : "[B, T, H, dk]";
  if (!alpha.defined()) fail("{}: no gate is given, wanted {}", op, wanted);
  if (alpha.shape().rank() != rank)
    fail("{}: the gate is {}, wanted {}", op, to_string(alpha.shape()), wanted);
}
template <class T>
void want_beta(const char* op, const Var<T>& beta) {
  if (!beta.defined()) fail("{}: no beta is given, wanted one number per write and head", op);
}

// The parallel face, composed of primitive ops; arguments as gated_recurrence, already checked.
template <class T>
GatedResult<T> gated_parallel(Var<T> q, Var<T> k, Var<T> v, Var<T> alpha, Var<T> beta, Var<T> S_init,
                              const GatedOptions& options);
}  // namespace internal

}  // namespace storytape
