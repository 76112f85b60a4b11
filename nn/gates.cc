#include "nn/gates.h"

#include <cmath>

#include "nn/kernels/swish_gate.h"

namespace storytape {

template <class T>
Tensor<T> swish_gate(const Tensor<T>& x, const Tensor<T>& g) {
  if (!(x.shape() == g.shape())) {
    fail("swish_gate: the gate is {}, wanted x's shape {}", to_string(g.shape()), to_string(x.shape()));
  }
  Tensor<T> y(x.shape());
  swish_gate_forward(x.data(), g.data(), y.data(), y.size());
  return y;
}

template <class T>
Var<T> swish_gate(Var<T> x, Var<T> g) {
  return x.tape().record("swish_gate", swish_gate(x.value(), g.value()), {x, g}, [x, g](const Grads<T>& dy) {
    // forward:  (U1)
    const size_t n = x.value().size();
    if (x.requires_grad()) {
      const GradSlot<T> dx = x.grad_slot();
      swish_gate_backward_x(g.value().data(), dy.data(), dx.data, n, !dx.fresh);
    }
    if (g.requires_grad()) {
      const GradSlot<T> dg = g.grad_slot();
      swish_gate_backward_g(x.value().data(), g.value().data(), dy.data(), dg.data, n, !dg.fresh);
    }
  });
}

template <class T>
Tensor<T> multiscale_decays(size_t heads) {
  Tensor<T> gamma(Shape{heads});
  for (size_t h = 0; h < heads; ++h) gamma[h] = static_cast<T>(1 - std::ldexp(1.0, -5 - static_cast<int>(h)));
  return gamma;
}

#define STORYTAPE_GATES(T)                                           \
  template Tensor<T> swish_gate(const Tensor<T>&, const Tensor<T>&); \
  template Var<T> swish_gate(Var<T>, Var<T>);                        \
  template Tensor<T> multiscale_decays(size_t);
STORYTAPE_GATES(float)
STORYTAPE_GATES(double)
#undef STORYTAPE_GATES

}  // namespace storytape
