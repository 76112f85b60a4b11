// Functions of one variable, element by element. The functions and their derivatives:
// tensor/kernels/math-inl.h.
#pragma once

#include <utility>

#include "autograd/tape.h"
#include "tensor/elementwise.h"
#include "tensor/reduce.h"

namespace storytape {

namespace internal {

// Gradients that are 0 on the way in stay 0, however steep the op is there: a branch that was not selected
// must not spoil the one that was with 0·∞. dx = (what the chain rule gave for dy), n values.
template <class T>
void keep_zeros(const T* dy, T* dx, size_t n) {
  if (all_finite(dx, n)) return;
  for (size_t i = 0; i < n; ++i) dx[i] = dy[i] == T{0} ? T{0} : dx[i];
}

template <class T>
Var<T> unary_op(const char* name, Unary op, Var<T> x) {
  Tensor<T> y = unary(op, x.value());
  return x.tape().record(name, y, {x}, [op, x, y](const Grads<T>& dy) {
    // forward:  y = f(x)
    const GradSlot<T> dx = x.grad_slot();
    unary_backward(op, x.value().data(), y.data(), dy.data(), dx.data, y.size(), !dx.fresh);
  });
}

// The same for a function whose derivative may be infinite.
template <class T>
Var<T> steep_unary_op(const char* name, Unary op, Var<T> x) {
  Tensor<T> y = unary(op, x.value());
  return x.tape().record(name, y, {x}, [op, x, y](const Grads<T>& dy) {
    // forward:  y = f(x)
    Tensor<T> dx(x.shape());
    unary_backward(op, x.value().data(), y.data(), dy.data(), dx.data(), y.size(), false);
    keep_zeros(dy.data(), dx.data(), y.size());
    x.accumulate(std::move(dx));
  });
}

}  // namespace internal

template <class T>
Var<T> exp(Var<T> x) {
  return internal::steep_unary_op("exp", Unary::kExp, x);
}
// Natural logarithm.
template <class T>
Var<T> log(Var<T> x) {
  return internal::steep_unary_op("log", Unary::kLog, x);
}
template <class T>
Var<T> sqrt(Var<T> x) {
  return internal::steep_unary_op("sqrt", Unary::kSqrt, x);
}
template <class T>
Var<T> square(Var<T> x) {
  return internal::unary_op("square", Unary::kSquare, x);
}
// 1/x
template <class T>
Var<T> reciprocal(Var<T> x) {
  return internal::steep_unary_op("reciprocal", Unary::kReciprocal, x);
}
template <class T>
Var<T> neg(Var<T> x) {
  return internal::unary_op("neg", Unary::kNeg, x);
}
template <class T>
Var<T> tanh(Var<T> x) {
  return internal::unary_op("tanh", Unary::kTanh, x);
}
// 1/(1+e^-x)
template <class T>
Var<T> sigmoid(Var<T> x) {
  return internal::unary_op("sigmoid", Unary::kSigmoid, x);
}
// log(1+e^x)
template <class T>
Var<T> softplus(Var<T> x) {
  return internal::unary_op("softplus", Unary::kSoftplus, x);
}
// log sigmoid(x) = -softplus(-x)
template <class T>
Var<T> log_sigmoid(Var<T> x) {
  return internal::unary_op("log_sigmoid", Unary::kLogSigmoid, x);
}
// x·sigmoid(x), also called swish.
template <class T>
Var<T> silu(Var<T> x) {
  return internal::unary_op("silu", Unary::kSilu, x);
}
// x·Φ(x)
template <class T>
Var<T> gelu_erf(Var<T> x) {
  return internal::unary_op("gelu_erf", Unary::kGeluErf, x);
}
// x/2·(1 + tanh(√(2/π)(x + 0.044715 x³)))
template <class T>
Var<T> gelu_tanh(Var<T> x) {
  return internal::unary_op("gelu_tanh", Unary::kGeluTanh, x);
}
// elu(x) + 1 = x + 1 for x > 0, e^x else: the feature map of linear attention. Its derivative is continuous.
template <class T>
Var<T> elu_plus_one(Var<T> x) {
  return internal::unary_op("elu_plus_one", Unary::kEluPlusOne, x);
}

template <class T>
Var<T> operator-(Var<T> x) {
  return neg(x);
}

}  // namespace storytape
