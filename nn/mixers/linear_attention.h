// Linear attention with a decay per head: the course's LinearAttention core (`linear`), and without decay,
// without normaliser or with other features its relatives. Katharopoulos et al., "Transformers are RNNs",
// 2020; seed chapter "Linear attention and recurrent memory".
//
// Per head, with row vectors a_t = φ(q_t), b_t = φ(k_t), v_t, a decay γ in [0, 1] and 0^0 = 1:
//
//   recurrence
//   (L1)  S_t = γ S_{t-1} + b_tᵀ v_t                              state, written before it is read
//   (L2)  z_t = γ z_{t-1} + b_t                                   normaliser, the same decay
//   (L3)  o_t = n_t / d_t,   n_t = a_t S_t,   d_t = a_t·z_t + ε   unnormalised: d_t = 1, no z
//
//   parallel, over T tokens from S_0, z_0
//   (L4)  P = (A Bᵀ) ⊙ Γ,    Γ_ij = γ^(i-j) for j ≤ i, else 0
//   (L5)  N = P V + Λ A S_0,   d = P 1 + Λ A z_0 + ε              Λ = diag(γ^1, …, γ^T)
//   (L6)  S_T = γ^T S_0 + (R B)ᵀ V,   z_T = γ^T z_0 + (R B)ᵀ 1    R = diag(γ^(T-1), …, γ^0)
//
//   chunk: (L4)-(L6) over the tokens of a chunk, with S_0, z_0 the state at its start and T its length
//
//   reverse, given do and dS_T, dz_T
//   (L7)  dn_i = do_i / d_i,   dd_i = -(do_i·o_i) / d_i           unnormalised: dd_i = 0
//   (L8)  E_ij = dn_i·v_j + dd_i                                  the gradient of a_i·b_j, but for Γ
//   (L9)  U = dN S_0ᵀ + dd z_0,   W = V dS_Tᵀ + 1 dz_T
//   (L10) dA = Λ U + (E ⊙ Γ) B
//   (L11) dB = R W + (E ⊙ Γ)ᵀ A
//   (L12) dV = R B dS_T + Pᵀ dN
//   (L13) dS_0 = γ^T dS_T + (Λ A)ᵀ dN,   dz_0 = γ^T dz_T + (Λ A)ᵀ dd
//   (L14) dγ = Σ_{j<i} (i-j) γ^(i-j-1) (a_i·b_j) E_ij + Σ_i i γ^(i-1) a_i·U_i + Σ_j (T-j) γ^(T-j-1) b_j·W_j
//              + T γ^(T-1) (⟨S_0, dS_T⟩ + ⟨z_0, dz_T⟩)            tokens counted from 1
//   (L15) dq = dA ⊙ φ'(q),  dk = dB ⊙ φ'(k);                      φ = elu + 1: φ' = min(φ, 1)
//
//   reverse of the recurrence: forward once more with the derivative of the state by γ, then backward
//   (L16) S'_t = γ S'_{t-1} + S_{t-1},   z'_t = γ z'_{t-1} + z_{t-1}
//   (L17) da_t = dn_t S_tᵀ + dd_t z_t,
//         dγ = Σ_t dn_t·(a_t S'_t) + dd_t a_t·z'_t + ⟨S'_T, dS_T⟩ + ⟨z'_T, dz_T⟩
//   (L18) G_t = γ G_{t+1} + a_tᵀ dn_t,   g_t = γ g_{t+1} + dd_t a_t     from γ G_{T+1} = dS_T, γ g_{T+1} = dz_T
//   (L19) db_t = v_t G_tᵀ + g_t,   dv_t = b_t G_t;   dS_0 = γ G_1,   dz_0 = γ g_1
//
// Saved for the backward: d (one number per token and head) and, chunkwise, the state at each chunk's start.
// Recomputed: features and P inside the chunk; recurrent, the states. Nothing is divided by a power of γ, so
// γ = 0 and γ = 1 are exact.
//
// ε adds to d_t and pulls o_t towards 0 by the share ε / d_t: with ε = 1e-6 an output is right to 1e-6 where
// a_t·z_t ≥ 1, and fades where all features of the query or of every key are small (φ(-30)² ≈ 1e-26). With ε
// = 0, o_t is a weighted mean of values for any features whose products are normal numbers (float: q + k ≥
// -87 in every channel). Derivation: docs/derivations/linear_attention.md.
#pragma once

#include <cstddef>

#include "autograd/tape.h"
#include "nn/mixers/face.h"
#include "nn/mixers/state.h"

namespace storytape {

enum class FeatureMap {
  kEluPlusOne,  // elu(x) + 1
  kIdentity,
};

struct LinearAttentionOptions {
  Face face = Face::kChunkwise;
  size_t chunk =
      64;  // tokens per chunk of the chunkwise face, at least 1; any length is right, this one fast
  FeatureMap phi = FeatureMap::kEluPlusOne;
  bool normalise = true;
  double eps = 1e-6;  // of (L3), ≥ 0
};

template <class T>
struct LinearAttentionResult {
  Var<T> o;  // [B, T, H, dv]
  Var<T> S;  // [B, H, dk, dv], after the last token
  Var<T> z;  // [B, H, dk]; undefined where not normalised
};

// q, k [B, T, H, dk], v [B, T, H, dv], T ≥ 1; gamma [H] in [0, 1], undefined for 1; S_init [B, H, dk, dv] and
// z_init [B, H, dk], undefined for 0. All of it differentiable, the final state too. An Error names what
// doesn't fit.
template <class T>
LinearAttentionResult<T> linear_attention(Var<T> q, Var<T> k, Var<T> v, Var<T> gamma, Var<T> S_init,
                                          Var<T> z_init, const LinearAttentionOptions& options);

// The state before the first token: "S" and, where normalised, "z", zeros.
template <class T>
State<T> linear_attention_state(size_t batch, size_t heads, size_t dk, size_t dv,
                                const LinearAttentionOptions& options);

// The outputs [B, T, H, dv] of T ≥ 1 further tokens; the state moves on. No gradients. Several tokens go
// chunkwise, one by the recurrence. gamma may be undefined.
template <class T>
Tensor<T> linear_attention_extend(State<T>& state, const Tensor<T>& q, const Tensor<T>& k, const Tensor<T>& v,
                                  const Tensor<T>& gamma, const LinearAttentionOptions& options);

// Adds the examples of all faces to the list that gradients are proven by, and the variants to the face
// checks.
void register_linear_attention();

namespace internal {
// The parallel face, composed of primitive ops; arguments as linear_attention, already checked.
template <class T>
LinearAttentionResult<T> linear_attention_parallel(Var<T> q, Var<T> k, Var<T> v, Var<T> gamma, Var<T> S_init,
                                                   Var<T> z_init, const LinearAttentionOptions& options);
}  // namespace internal

}  // namespace storytape
