#include "nn/gelu_mlp.h"

#include "nn/products.h"

namespace storytape {

template <class T>
Var<T> gelu_mlp(Var<T> x, Var<T> w1, Var<T> b1, Var<T> w2, Var<T> b2, Var<T> residual) {
  const size_t in = x.shape().back();
  if (w1.value().rank() != 2 || w1.shape()[0] != in || w2.value().rank() != 2 ||
      w2.shape()[0] != w1.shape()[1]) {
    fail("gelu_mlp: x {} wants W1 [{}, F] and W2 [F, out], got {} and {}", to_string(x.shape()), in,
         to_string(w1.shape()), to_string(w2.shape()));
  }
  const size_t hidden = w1.shape()[1];
  const size_t out = w2.shape()[1];
  const size_t rows = in ? x.value().size() / in : 0;
  Shape shape = x.shape();
  shape[shape.rank() - 1] = out;
  if (residual.defined() && !(residual.shape() == shape)) {
    fail("gelu_mlp: residual wants {}, got {}", to_string(shape), to_string(residual.shape()));
  }

  // (M1) h = x·W1 + b1    (M2) a = gelu(h)
  Tensor<T> h({rows, hidden});
  Tensor<T> a({rows, hidden});
  Epilogue<T> first;
  if (b1.defined()) first.bias = b1.value().data();
  first.gelu_pre = h.data();
  product(Trans::kNo, rows, x.value().data(), w1, Trans::kNo, T{0}, a.data(), first);
  // (M3) y = a·W2 + b2 + residual
  Tensor<T> y(shape);
  Epilogue<T> second;
  if (b2.defined()) second.bias = b2.value().data();
  if (residual.defined()) {
    second.residual = residual.value().data();
    second.ld_residual = out;
  }
  product(Trans::kNo, rows, std::as_const(a).data(), w2, Trans::kNo, T{0}, y.data(), second);

  const Var<T> inputs[] = {x, w1, b1, w2, b2, residual};
  return x.tape().record("gelu_mlp", std::move(y), inputs, [=](const Grads<T>& grads) {
    const T* dy = grads.data();
    // reverses (M3)
    if (residual.requires_grad()) residual.accumulate(grads.one());
    if (b2.requires_grad()) add_column_sums(rows, out, dy, b2.grad_slot());
    if (w2.requires_grad()) add_outer(rows, hidden, out, a.data(), dy, w2.grad_slot());
    // reverses (M3) and (M2): dh = (dy·W2ᵀ) ⊙ gelu'(h)
    Tensor<T> dh({rows, hidden});
    Epilogue<T> reverse;
    reverse.gelu_grad_pre = h.data();
    product(Trans::kNo, rows, dy, w2, Trans::kYes, T{0}, dh.data(), reverse);
    // reverses (M1)
    const T* d = std::as_const(dh).data();
    if (b1.requires_grad()) add_column_sums(rows, hidden, d, b1.grad_slot());
    if (w1.requires_grad()) add_outer(rows, in, hidden, x.value().data(), d, w1.grad_slot());
    if (x.requires_grad()) {
      const GradSlot<T> dx = x.grad_slot();
      product(Trans::kNo, rows, d, w1, Trans::kYes, dx.beta(), dx.data);
    }
  });
}

template Var<float> gelu_mlp(Var<float>, Var<float>, Var<float>, Var<float>, Var<float>, Var<float>);
template Var<double> gelu_mlp(Var<double>, Var<double>, Var<double>, Var<double>, Var<double>, Var<double>);

}  // namespace storytape
