// The kernels of l2_normalize: see nn/normalize.h for the equations.
#pragma once

#include <cstddef>

namespace storytape {

template <class T>
struct L2Rows {
  size_t rows, n;
  bool clamp;  // eps is the least length; else it stands under the root
  T eps;       // > 0
};

// x, y [rows, n], r [rows].
template <class T>
void l2_normalize_forward(const L2Rows<T>& rows, const T* x, T* y, T* r);
// From the forward's y and r: dx, or dx += with `add`.
template <class T>
void l2_normalize_backward(const L2Rows<T>& rows, const T* y, const T* r, const T* dy, T* dx, bool add);

}  // namespace storytape
