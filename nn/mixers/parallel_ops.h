// Two ops that the parallel faces are composed with: all products of gates over segments of a sequence, and
// the solution of unit lower-triangular systems. Plain loops: a parallel face is there to be read and to
// check others by.
#pragma once

#include "autograd/tape.h"

namespace storytape {

// gates [M, N, C] → D [M, N, N, C]: D_rj = Π_{j<l≤r} gates_l for j ≤ r (an empty product is 1), 0 for j > r.
// Exact for gates of 0.
template <class T>
Var<T> segment_products(Var<T> gates);

// (I + A) X = R for A [M, N, N], of which only what lies below the diagonal is read, and R [M, N, C]; X [M, N,
// C].
template <class T>
Var<T> solve_unit_lower(Var<T> A, Var<T> R);

// Their examples for the list that gradients are proven by.
void register_parallel_ops();

}  // namespace storytape
