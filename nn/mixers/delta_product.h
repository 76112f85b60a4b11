// DeltaProduct: n_h writes of the delta rule per token, so that a token's transition is a product of n_h
// generalised Householder matrices. Siems et al., "DeltaProduct: Improving State-Tracking in Linear RNNs via
// Householder Products", 2025.
//
// Per head, row vectors q, k, v, the writes j = 1..n_h of token t with rates β_j in [0, 2]; a gate α_t
// in [0, 1], or none, α_t = 1:
//
//   recurrence
//   (H1)  H_0 = α_t S_{t-1}                                   once per token, before its writes
//   (H2)  y_j = v_j - k_j H_{j-1},   H_j = H_{j-1} + β_j k_jᵀ y_j
//   (H3)  S_t = H_{n_h},   o_t = q_t S_t                      read after the last write
//   (H4)  S_t = α_t M_t S_{t-1} + ...,   M_t = (I - β_{n_h} k_{n_h}ᵀ k_{n_h}) ⋯ (I - β_1 k_1ᵀ k_1)
//
//   parallel and chunk: it is the (gated) delta rule on the n_h times longer sequence of writes, with gates
//   of 1 between, read at each n_h-th: (N5)-(N8) of nn/mixers/gated_delta_rule.h on writes; of O the rows
//   n_h, 2 n_h, ... A tile has as many tokens as fit in 16 writes, at least one; its reverse is (G8)-(G14)
//   of nn/mixers/gated_recurrence.h
//
//   reverse of the recurrence, from the last token; G, the gradient of S_t, starts as dS_T
//   (H5)  G += q_tᵀ do_t,   dq_t = do_t S_tᵀ                  then for j = n_h..1, G that of H_j:
//   (H6)  x = k_j G,   dβ_j = x·y_j,   dv_j = β_j x
//   (H7)  dk_j = β_j y_j Gᵀ - dv_j H_{j-1}ᵀ
//   (H8)  G -= k_jᵀ dv_j                                      that of H_{j-1}
//   (H9)  dα_t = ⟨G, S_{t-1}⟩,   G = α_t G                    that of S_{t-1}; after the first token dS_0
//
// (G1)-(G14), (R1)-(R9) of nn/mixers/gated_recurrence.h at: no gate or a scalar one, delta write, n_h
// steps. n_h = 1 is (gated) DeltaNet, bit for bit. Saved for the backward: the inputs and the state at each
// chunk's start. Recomputed inside the chunk: states, or the tiles' solves.
//
// Choices: keys as given. With unit keys det M_t = Π (1 - β_j): at β = 2 a factor is a reflection, two of
// them are a rotation; with β ≤ 1 no determinant is negative. No scale inside.
#pragma once

#include <vector>

#include "nn/mixers/gated_recurrence.h"

namespace storytape {

// q [B, T, H, dk], k [B, T·n_h, H, dk], v [B, T·n_h, H, dv], beta [B, T·n_h, H] in [0, 2]: the writes in
// their order; alpha undefined or [B, T, H] in [0, 1]; S_init [B, H, dk, dv] or undefined for zeros.
// options.steps is n_h. Returns o [B, T, H, dv] and the state after the last token. All of it
// differentiable. An Error names what doesn't fit. Decoding: gated_state and gated_extend.
template <class T>
GatedResult<T> delta_product(Var<T> q, Var<T> k, Var<T> v, Var<T> alpha, Var<T> beta, Var<T> S_init,
                             const GatedOptions& options) {
  const char* op = alpha.defined() ? "gated_delta_product" : "delta_product";
  if (alpha.defined()) internal::want_gate(op, alpha, GateShape::kScalar);
  internal::want_beta(op, beta);
  return gated_recurrence<T>(op, q, k, v, alpha, beta, S_init, options);
}

// [B, T, n_h, H, ...] as the sequence of its writes, [B, T·n_h, H, ...]: no value moves.
template <class T>
Tensor<T> flatten_micro_sequence(const Tensor<T>& x) {
  const Shape& shape = x.shape();
  if (shape.rank() < 4) fail("flatten_micro_sequence: got {}, wanted [B, T, n_h, H, ...]", to_string(shape));
  std::vector<size_t> flat{shape[0], shape[1] * shape[2]};
  for (size_t axis = 3; axis < shape.rank(); ++axis) flat.push_back(shape[axis]);
  return x.reshape(Shape(std::span<const size_t>(flat)));
}

// M_t of (H4) for one token: keys [n_h, dk], beta [n_h] → M [dk, dk], which acts on a state from the left.
template <class T>
Tensor<T> delta_product_transition(const Tensor<T>& keys, const Tensor<T>& beta) {
  if (keys.rank() != 2 || beta.shape() != Shape{keys.size(0)}) {
    fail("delta_product_transition: keys {} and beta {}, wanted [n_h, dk] and [n_h]", to_string(keys.shape()),
         to_string(beta.shape()));
  }
  const size_t dk = keys.size(1);
  Tensor<T> M({dk, dk}, T{0});
  for (size_t i = 0; i < dk; ++i) M[i * dk + i] = T{1};
  for (size_t j = 0; j < keys.size(0); ++j) {
    const T* k = keys.data() + j * dk;
    for (size_t c = 0; c < dk; ++c) {
      T sum = 0;
      for (size_t i = 0; i < dk; ++i) sum += k[i] * M[i * dk + c];
      for (size_t i = 0; i < dk; ++i) M[i * dk + c] -= beta[j] * k[i] * sum;
    }
  }
  return M;
}

}  // namespace storytape
