// The kernels of the short convolution: see short_convolution.h for the equations.
#pragma once

#include <cstddef>

namespace storytape {

// One problem. REQUIRES: width >= 1.
template <class T>
struct ShortConvolutionArgs {
  size_t batch, tokens, channels;
  size_t width;  // K
  bool silu;
  const T* x;      // [batch, tokens, channels]
  const T* w;      // [width, channels]
  const T* bias;   // [channels] or null
  const T* state;  // [batch, width - 1, channels] or null: zeros
};

// y [batch, tokens, channels], next_state like state; it may be state.
template <class T>
void short_convolution_forward(const ShortConvolutionArgs<T>& args, T* y, T* next_state);

// Where a gradient goes: set, or with `add` added to; null where it isn't wanted.
template <class T>
struct ShortConvolutionGrad {
  T* data = nullptr;
  bool add = false;
};

template <class T>
struct ShortConvolutionGrads {
  ShortConvolutionGrad<T> x, state;
  T* w;     // [width, channels] added to, or null
  T* bias;  // [channels] added to, or null
};

// dy or d_state may be null: zeros. dz [tokens, channels] is scratch.
template <class T>
void short_convolution_backward(const ShortConvolutionArgs<T>& args, const T* dy, const T* d_state, T* dz,
                                const ShortConvolutionGrads<T>& grads);

}  // namespace storytape
