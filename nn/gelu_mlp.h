// The feed-forward part of a block as one op:  y = gelu(x·W1 + b1)·W2 + b2 (+ residual), GELU with erf.
#pragma once

#include "autograd/tape.h"

namespace storytape {

// x [..., D], w1 [D, F], b1 [F] or undefined, w2 [F, D], b2 [D] or undefined, residual [..., D] or undefined.
// Saves h = x·W1 + b1 and a = gelu(h).
template <class T>
Var<T> gelu_mlp(Var<T> x, Var<T> w1, Var<T> b1, Var<T> w2, Var<T> b2, Var<T> residual = {});

}  // namespace storytape
