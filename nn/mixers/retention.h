// Retention: linear attention without features and without normaliser, whose state fades by one constant per
// head. Sun et al., "Retentive Network", 2023; seed chapter "Linear attention and recurrent memory". What its
// layer adds, group_norm per head and swish_gate, is in nn/normalize.h and nn/gates.h.
//
// Per head, row vectors q, k, v, a decay γ in [0, 1] and 0^0 = 1; tokens are counted from 1:
//
//   recurrence
//   (T1)  S_t = γ S_{t-1} + k_tᵀ v_t
//   (T2)  o_t = q_t S_t                                       read after the write
//
//   parallel, over T tokens from S_0; Λ = diag(γ^1, …, γ^T), R = diag(γ^(T-1), …, γ^0)
//   (T3)  P = (Q Kᵀ) ⊙ Γ,   Γ_ij = γ^(i-j) for j ≤ i, else 0
//   (T4)  O = P V + Λ Q S_0
//   (T5)  S_T = γ^T S_0 + (R K)ᵀ V
//
//   chunk: (T3)-(T5) over the tokens of a chunk, with S_0 the state at its start and T its length
//
//   reverse of a chunk, given dO and dS_T
//   (T6)  E = dO Vᵀ ⊙ Γ                                       the gradient of Q Kᵀ
//   (T7)  dQ = Λ dO S_0ᵀ + E K
//   (T8)  dK = R V dS_Tᵀ + Eᵀ Q
//   (T9)  dV = R K dS_T + Pᵀ dO
//   (T10) dS_0 = γ^T dS_T + (Λ Q)ᵀ dO
//
//   reverse of the recurrence, from the last token; G, the gradient of S_t, starts as dS_T
//   (T11) G += q_tᵀ do_t,   dq_t = do_t S_tᵀ
//   (T12) dk_t = v_t Gᵀ,   dv_t = k_t G
//   (T13) dγ += ⟨G, S_{t-1}⟩                                  made as (L14) chunkwise, as (L17) recurrent
//   (T14) G = γ G                                             that of S_{t-1}; after the first token dS_0
//
// (L1)-(L19) of nn/mixers/linear_attention.h at: identity features, no normaliser. As a point of the gated
// family it is `unified` with a_t = γ (nn/mixers/unified.h); its powers being a table, it runs on linear
// attention's kernels. Saved for the backward: the inputs and, chunkwise, the state at each chunk's start.
// Recomputed: P inside the chunk; recurrent, all states.
//
// Choices: none of the published layer's three rescalings of scores (by 1/√dk, by the rows' sums of Γ and
// of P), since the norm behind takes out any factor of a row, up to its ε. Only powers γ^n with n ≥ 0
// occur: γ = 0 and 1 are exact, and no length overflows.
#pragma once

#include "nn/gates.h"
#include "nn/mixers/linear_attention.h"

namespace storytape {

// What of linear_attention's options makes it retention; also for linear_attention_state and _extend, which
// decode it.
inline LinearAttentionOptions retention_options(Face face = Face::kChunkwise, size_t chunk = 64) {
  LinearAttentionOptions options;
  options.face = face;
  options.chunk = chunk;
  options.phi = FeatureMap::kIdentity;
  options.normalise = false;
  return options;
}

// q, k [B, T, H, dk], v [B, T, H, dv], gamma [H] in [0, 1] (multiscale_decays, or learned), S_init [B, H, dk,
// dv] or undefined for zeros. Returns o [B, T, H, dv] and the state after the last token. All of it
// differentiable. An Error names what doesn't fit.
template <class T>
LinearAttentionResult<T> retention(Var<T> q, Var<T> k, Var<T> v, Var<T> gamma, Var<T> S_init = {},
                                   const LinearAttentionOptions& options = retention_options()) {
  if (options.phi != FeatureMap::kIdentity || options.normalise) {
    fail("retention: the options ask for features or a normaliser, wanted those of retention_options()");
  }
  if (!gamma.defined()) fail("retention: no gamma is given, wanted one decay per head, [H]");
  return linear_attention(q, k, v, gamma, S_init, {}, options);
}

}  // namespace storytape
