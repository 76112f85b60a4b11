// DeltaProduct: n_h writes of the delta rule per token, so that a token's transition is a product of n_h generalised
// Householder matrices. Siems et al., "DeltaProduct: Improving State-Tracking in Linear RNNs via Householder Products",
// 2025.
//
// Per head, for the writes j = 1..n_h of token t, β in [0, 2]; gated, α_t in [0, 1] before the first of them:
//   (H1)  H_0 = α_t S_{t-1},   H_j = (I - β_j k_jᵀ k_j) H_{j-1} + β_j k_jᵀ v_j,   S_t = H_{n_h},   o_t = q_t S_t
//   (H2)  transition  M_t = (I - β_{n_h} k_{n_h}ᵀ k_{n_h}) ⋯ (I - β_1 k_1ᵀ k_1)     unit keys: det = Π (1 - β_j)
// It is the delta rule on the n_h times longer sequence of writes, read at each n_h-th: (G1)-(R9) of
// nn/mixers/gated_recurrence.h at: no gate or a scalar one, delta write, n_h steps. With β = 2 a factor is a reflection,
// two of them a rotation; with β ≤ 1 no determinant is negative.
#pragma once

#include <vector>
#include "nn/mixers/gated_recurrence.h"

namespace storytape {

// q [B, T, H, dk], k [B, T·n_h, H, dk], v [B, T·n_h, H, dv], beta [B, T·n_h, H] in [0, 2]: the writes in their order;
// alpha undefined or [B, T, H] in [0, 1]; S_init [B, H, dk, dv] or undefined. Returns o [B, T, H, dv] and the state after the
// last token. All of it differentiable. options.steps is n_h.
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

// (H2) for one token: keys [n_h, dk], beta [n_h] → M [dk, dk], which acts on a state from the left.
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
