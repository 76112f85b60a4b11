// Gates of the mixers' layers: on the output, and the decays that a recurrence forgets by.
//
//   swish gate (Sun et al., "Retentive Network", 2023)
//   (U1) y  = silu(g) ⊙ x
//   (U2) dx = dy ⊙ silu(g)
//   (U3) dg = dy ⊙ x ⊙ silu'(g)
//
//   gated linear attention's forget gate, of low rank and with a temperature (Yang et al., "Gated Linear Attention
//   Transformers with Hardware-Efficient Training", 2024, eq. 6)
//   (U4) α  = sigmoid(z)^(1/τ) = exp(log sigmoid(z) / τ),   z = x W1 W2 (+ b)
//
// A gated norm is swish_gate of group_norm (nn/normalize.h) or of rms_norm.
#pragma once

#include "autograd/ops_arithmetic.h"
#include "nn/linear.h"

namespace storytape {

// x and g of one shape.
template <class T>
Var<T> swish_gate(Var<T> x, Var<T> g);
// Values alone, for decoding.
template <class T>
Tensor<T> swish_gate(const Tensor<T>& x, const Tensor<T>& g);

// log α of (U4), ≤ 0: x [..., D], w1 [D, r], w2 [r, n], b [n] or undefined → [..., n]. Finite for every z.
template <class T>
Var<T> gla_log_gate(Var<T> x, Var<T> w1, Var<T> w2, double tau = 16, Var<T> b = {}) {
  if (!(tau > 0)) fail("gla_gate: the temperature is {}, wanted a positive number", tau);
  return scale(log_sigmoid(linear(linear(x, w1), w2, b)), 1 / tau);
}

// α of (U4), in [0, 1]; through the logarithm, so that no power is taken of a sigmoid that has vanished.
template <class T>
Var<T> gla_gate(Var<T> x, Var<T> w1, Var<T> w2, double tau = 16, Var<T> b = {}) {
  return exp(gla_log_gate(x, w1, w2, tau, b));
}

// γ_h = 1 - 2^(-5-h), h < heads: retention's fixed decays, one time scale per head. float holds the first 19.
template <class T>
Tensor<T> multiscale_decays(size_t heads);

}  // namespace storytape
