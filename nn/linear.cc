#include "nn/linear.h"

#include "nn/products.h"

namespace storytape {

template <class T>
Var<T> linear(Var<T> x, Var<T> w, Var<T> b, Var<T> residual) {
  const size_t in = x.shape().back();
  if (w.value().rank() != 2 || w.shape()[0] != in) {
    fail("linear: x {} wants W [{}, out], got {}", to_string(x.shape()), in, to_string(w.shape()));
  }
  const size_t out = w.shape()[1];
  const size_t rows = in ? x.value().size() / in : 0;
  if (b.defined() && !(b.shape() == Shape{out}))
    fail("linear: bias wants [{}], got {}", out, to_string(b.shape()));
  Shape shape = x.shape();
  shape[shape.rank() - 1] = out;
  if (residual.defined() && !(residual.shape() == shape)) {
    fail("linear: residual wants {}, got {}", to_string(shape), to_string(residual.shape()));
  }

  Tensor<T> y(shape);
  Epilogue<T> epilogue;
  if (b.defined()) epilogue.bias = b.value().data();
  if (residual.defined()) {
    epilogue.residual = residual.value().data();
    epilogue.ld_residual = out;
  }
  // y = x·W + b + residual
  product(Trans::kNo, rows, x.value().data(), w, Trans::kNo, T{0}, y.data(), epilogue);

  const Var<T> inputs[] = {x, w, b, residual};
  return x.tape().record("linear", std::move(y), inputs, [=](const Grads<T>& grads) {
    const T* dy = grads.data();
    // from y = … + residual
    if (residual.requires_grad()) residual.accumulate(grads.one());
    // from y = … + b
    if (b.requires_grad()) add_column_sums(rows, out, dy, b.grad_slot());
    // from y = x·W
    if (w.requires_grad()) add_outer(rows, in, out, x.value().data(), dy, w.grad_slot());
    if (x.requires_grad()) {
      const GradSlot<T> dx = x.grad_slot();
      product(Trans::kNo, rows, dy, w, Trans::kYes, dx.beta(), dx.data);
    }
  });
}

template <class T>
Linear<T>::Linear(ParameterList<T>& parameters, const std::string& name, size_t in, size_t out,
                  bool with_bias)
    : weight(&parameters.add(name + ".weight", {in, out}, Init::uniform_fan(in))),
      bias(with_bias ? &parameters.add(name + ".bias", {out}, Init::constant(0)) : nullptr) {}

template <class T>
Tensor<T> Linear<T>::apply(const Tensor<T>& x, const Tensor<T>* residual) const {
  const size_t in = weight->shape()[0];
  const size_t out = weight->shape()[1];
  Shape shape = x.shape();
  shape[shape.rank() - 1] = out;
  Tensor<T> y(shape);
  Epilogue<T> epilogue;
  if (bias) epilogue.bias = std::as_const(*bias).value().data();
  if (residual) {
    epilogue.residual = residual->data();
    epilogue.ld_residual = out;
  }
  gemm_packed(Trans::kNo, x.size() / in, x.data(), in, weight->packed(Trans::kNo), T{0}, y.data(), out,
              epilogue);
  return y;
}

template Var<float> linear(Var<float>, Var<float>, Var<float>, Var<float>);
template Var<double> linear(Var<double>, Var<double>, Var<double>, Var<double>);
template struct Linear<float>;
template struct Linear<double>;

}  // namespace storytape
