// The kernels of the token shift: see nn/token_shift.h for the equations.
#pragma once

#include <cstddef>

namespace storytape {

template <class T>
struct TokenShiftInputs {
  size_t batch, tokens, channels;
  const T* x;       // [batch, tokens, channels]
  const T* mu;      // [channels]
  const T* x_prev;  // [batch, channels] or null: zeros
};

// y [batch, tokens, channels].
template <class T>
void token_shift_forward(const TokenShiftInputs<T>& in, T* y);

// d_x is set, or added to where add_x; the others are set. All of them may be null.
template <class T>
struct TokenShiftBackward {
  TokenShiftInputs<T> in;
  const T* d_y;     // [batch, tokens, channels]
  const T* d_last;  // [batch, channels] or null: zeros
  T* d_x;
  T* d_mu;
  T* d_x_prev;
  bool add_x;
};
template <class T>
void token_shift_backward(const TokenShiftBackward<T>& args);

}  // namespace storytape
