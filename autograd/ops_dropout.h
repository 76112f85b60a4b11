// Dropout from counter-based random numbers: the mask is a function of the seed and the element's position,
// so backward makes it again instead of keeping it, and a resumed run makes the same one.
#pragma once

#include <cmath>

#include "autograd/tape.h"
#include "tensor/random.h"

namespace storytape {

// y[i] = x[i]/(1-p) with probability 1-p, else 0; 0 ≤ p < 1. Element i takes number random.position() + i of
// the stream, so the caller moves on by x's size: random.seek(random.position() + size). At p = 0 the result
// is x itself.
template <class T>
Var<T> dropout(Var<T> x, double p, Random random) {
  if (!(p >= 0 && p < 1)) fail("dropout wants a probability in [0, 1), got {}", p);
  if (p == 0) return x;
  const T factor = static_cast<T>(1 / (1 - p));
  const auto keeps = [p, random](size_t i) {
    return static_cast<double>(random.at(random.position() + i) >> 11) * 0x1.0p-53 >= p;
  };
  const Tensor<T>& values = x.value();
  Tensor<T> y(values.shape());
  T* out = y.data();
  for (size_t i = 0; i < values.size(); ++i) out[i] = keeps(i) ? values[i] * factor : T{0};
  return x.tape().record("dropout", std::move(y), {x}, [x, keeps, factor](const Grads<T>& dy) {
    const GradSlot<T> dx = x.grad_slot();
    for (size_t i = 0; i < x.value().size(); ++i) {
      // forward:  y[i] = keeps(i) ? x[i]·factor : 0
      const T d = keeps(i) ? dy.data()[i] * factor : T{0};
      dx.data[i] = dx.fresh ? d : dx.data[i] + d;
    }
  });
}

}  // namespace storytape
