// The kernels of the rotary embedding: see rope.h for the equations.
#pragma once

#include <cstddef>

namespace storytape {

// Arrays of [batch, tokens, heads, size], of which the first 2·half channels of each head are turned.
// REQUIRES: 2·half <= size.
template <class T>
struct RopeRows {
  size_t batch, tokens, heads, size;
  size_t half;
  bool neighbours;   // channels 2i and 2i + 1 are a pair; else i and half + i
  const T* cosines;  // [tokens, half]
  const T* sines;    // [tokens, half]
};

// y = x turned. y isn't x.
template <class T>
void rope_rotate(const RopeRows<T>& rows, const T* x, T* y);
// dx = dy turned back, or dx += with `add`.
template <class T>
void rope_rotate_back(const RopeRows<T>& rows, const T* dy, T* dx, bool add);

}  // namespace storytape
