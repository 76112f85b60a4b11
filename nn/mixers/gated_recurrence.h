// The recurrence of all mixers whose state, a matrix, forgets by gates of its own for every token: two axes,
// how it forgets (nothing, a scalar, a vector over the key channels) and how it writes (additively, or by the
// delta rule, n_h times per token). Each variant has a header of its own that names its point:
//
//                    gate α_t        write           header
//   unified          scalar          additive        nn/mixers/unified.h
//   GLA              vector          additive        nn/mixers/gla.h
//   DeltaNet         none            delta           nn/mixers/delta_rule.h
//   Gated DeltaNet   scalar          delta           nn/mixers/gated_delta_rule.h
//   KDA              vector          delta           nn/mixers/kda.h
//   DeltaProduct     none, scalar    delta, n_h ≥ 1  nn/mixers/delta_product.h
//
// (Retention, nn/mixers/retention.h, whose gate is one constant per head, runs on linear attention's
// kernels.)
//
// Per head, row vectors q, k, v. The writes of all tokens are counted through, r = 1, 2, ...: token i = 1,
// 2, ... has the writes (i-1)·n_h + 1 to e(i) = i·n_h. g_r is α_i at a token's first write and 1 at its
// others; a scalar gate is the same number in every channel. ⊙ multiplies channel by channel; [r = e(i)] is
// 1 where r is the last write of a token, i, else 0.
//
//   recurrence, S_0 given or 0
//   (G1)  S̃_r = Diag(g_r) S_{r-1},   S_r = S̃_r + k_rᵀ u_r
//         delta:    u_r = β_r y_r,   y_r = v_r - k_r S̃_r     so S_r = (I - β_r k_rᵀ k_r) S̃_r + β_r k_rᵀ v_r
//         additive: u_r = y_r = v_r
//   (G2)  o_i = q_i S_{e(i)}
//
//   n writes at once from S_0: the parallel face, and each tile of the chunkwise one. λ_r = Π_{l≤r} g_l, and
//   w_j^(r) = k_j ⊙ Π_{j<l≤r} g_l is the key of write j as it has decayed by write r ≥ j
//   (G3)  P_ij = q_i · w_j^(e(i)) for j ≤ e(i),   A_rj = k_r · w_j^(r) for j < r;   else 0
//   (G4)  Q̂_i = q_i ⊙ λ_{e(i)},   K̂_r = k_r ⊙ λ_r,   K̃_j = w_j^(n)           row by row
//   (G5)  U solves (I + Diag(β) A) U = Diag(β) (V - K̂ S_0)                   additive: U = V
//   (G6)  O = Q̂ S_0 + P U
//   (G7)  S_n = Diag(λ_n) S_0 + K̃ᵀ U
//
//   its reverse, given dO and dS_n. Y = V - K̂ S_0 - A U, so U = Diag(β) Y. Additive: no Y, A, K̂ and β
//   (G8)  dU = K̃ dS_n + Pᵀ dO                                    but for what passes through later writes
//   (G9)  X_r = dU_r - Σ_{i>r} A_ir dY_i,   dY_r = β_r X_r       from the last write to the first
//   (G10) dβ_r = X_r · Y_r,   dV = dY                            additive: dV = dU
//   (G11) dS_0 = Diag(λ_n) dS_n + Q̂ᵀ dO - K̂ᵀ dY
//   (G12) dP = dO Uᵀ where P may differ from 0, dA = -dY Uᵀ where A may; dQ̂ = dO S_0ᵀ, dK̂ = -dY S_0ᵀ,
//         dK̃ = U dS_nᵀ,   dλ_n = rows' sums of S_0 ⊙ dS_n
//
//   scalar gates: P_ij = q_i·k_j D_{e(i),j}, A_rj = k_r·k_j D_rj with D_rr = 1, D_rj = g_r D_{r-1,j} for j < r
//   (G13) E_rj = g_{r+1} E_{r+1,j} + [r = e(i)] dP_ij q_i·k_j + dA_rj k_r·k_j  the gradient of D_rj,
//         ε_r = g_{r+1} ε_{r+1} + [r = e(i)] q_i·dQ̂_i + k_r·dK̂_r               that of λ_r = g_r λ_{r-1};
//         at r = n, in place of the first terms, k_j·dK̃_j and the sum of dλ_n;
//         dg_r = Σ_{j<r} E_rj D_{r-1,j} + ε_r λ_{r-1}
//   (G14) dq_i = Σ_j dP_ij D_{e(i),j} k_j + λ_{e(i)} dQ̂_i,
//         dk_j = Σ_i dP_ij D_{e(i),j} q_i + Σ_r dA_rj D_rj k_r + Σ_l dA_jl D_jl k_l + λ_j dK̂_j + D_nj dK̃_j
//
//   vector gates, from the last write to the first. G_j is the gradient of w_j^(r), ε that of λ_r
//   (G15) G_j = dK̃_j, ε = dλ_n before the last write; then at each write r
//         G_j += [r = e(i)] dP_ij q_i + dA_rj k_r for j ≤ r,   ε += [r = e(i)] q_i ⊙ dQ̂_i + k_r ⊙ dK̂_r,
//         dq_i = Σ_{j≤r} dP_ij w_j^(r) + λ_r ⊙ dQ̂_i where r = e(i),
//         dk_r = G_r + Σ_{j<r} dA_rj w_j^(r) + λ_r ⊙ dK̂_r,
//         dg_r = Σ_{j<r} G_j ⊙ w_j^(r-1) + ε ⊙ λ_{r-1},
//         G_j = g_r ⊙ G_j for j < r,   ε = g_r ⊙ ε
//
//   reverse of the recurrence, write by write from the last; G, the gradient of S_r, starts as dS_n
//   (R1)  G += q_iᵀ do_i where r = e(i)                 (R2)  dq_i = do_i S_rᵀ where r = e(i)
//   (R3)  du = k_r G                                    (R4)  dk_r = u_r Gᵀ
//   (R5)  dβ_r = du·y_r,  dy = β_r du,  dv_r = dy       additive: dv_r = du, and neither (R6) nor (R7)
//   (R6)  dk_r -= dy S̃_rᵀ                               (R7)  G -= k_rᵀ dy, now the gradient of S̃_r
//   (R8)  dg_r = rows' sums of G ⊙ S_{r-1}              (R9)  G = Diag(g_r) G, that of S_{r-1}; at last dS_0
//   A scalar gate gets the sum of its channels; dα_i is dg_r of the token's first write.
//
// Saved for the backward: the inputs and the state at each chunk's start. Recomputed: recurrent, the states
// inside the chunk; chunkwise, its tiles' (G3)-(G5) and the states between them. A tile has as many tokens as
// fit in 16 writes, at least one; tiles follow each other within a chunk.
//
// Choices: the decay comes first, and a delta write reads the decayed state; a query reads after its token's
// last write; no scale, feature map or normaliser inside, and keys as they are given. Only products of gates
// over a segment occur, never their quotient: all gates in [0, 1] are exact, 0 and 1 too. Derivation:
// docs/derivations/gated_recurrence.md.
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
  // holds for short spans alone: where the product leaves the normal numbers (α = 0.8: at 392 tokens in
  // float), it loses its digits, then gives NaN; a gate of 0 gives NaN at once.
  bool rescale = false;
};

template <class T>
struct GatedResult {
  Var<T> o;  // [B, T, H, dv]
  Var<T> S;  // [B, H, dk, dv], after the last token
};

// q [B, T, H, dk], k [B, T·n_h, H, dk], v [B, T·n_h, H, dv], T ≥ 1. alpha: undefined for no gate, [B, T, H]
// or [B, T, H, dk], in [0, 1]. beta: undefined for additive writes, or [B, T·n_h, H], in [0, 2]. S_init [B,
// H, dk, dv], undefined for zeros. All of it differentiable, the final state too. An Error names what
// doesn't fit, under the name `op`.
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
