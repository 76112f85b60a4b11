// The decay of Mamba-2 and of the Gated DeltaNet layers, from a rate per head and a step width per token.
//
//   (M1) α = exp(-s),   s = exp(A_log) softplus(x + bias) = exp(l),   l = A_log + log softplus(x + bias)
//   (M2) dA_log = -dα exp(l - s),   dx = -dα exp(A_log + log sigmoid(x + bias) - s),   dbias = Σ dx
//
// All products are sums of logarithms: where one factor overflows and the other vanishes, neither is formed. Gu and Dao,
// "Mamba", 2023; Dao and Gu, "Transformers are SSMs", 2024.
#pragma once

#include "autograd/tape.h"

namespace storytape {

// x [..., H], A_log [H], bias [H] or undefined → α [..., H] in [0, 1]. Values and gradients are finite for all finite
// inputs.
template <class T>
Var<T> decay_gate(Var<T> x, Var<T> A_log, Var<T> bias = {});

// Its examples for the list that gradients are proven by.
void register_decay_gate();

}  // namespace storytape
