// The kernels of swish_gate: see nn/gates.h for the equations. Arrays of n values.
#pragma once

#include <cstddef>

namespace storytape {

template <class T>
void swish_gate_forward(const T* x, const T* g, T* y, size_t n);
// The gradients to x and g: set, or with `add` added to.
template <class T>
void swish_gate_backward_x(const T* g, const T* dy, T* dx, size_t n, bool add);
template <class T>
void swish_gate_backward_g(const T* x, const T* g, const T* dy, T* dg, size_t n, bool add);

}  // namespace storytape
