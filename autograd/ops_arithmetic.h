// Arithmetic of variables. Two operands broadcast to each other (numpy's rule); the gradient of one that was
// repeated is summed back to its own shape.
#pragma once

#include "autograd/ops_unary.h"
#include "autograd/tape.h"
#include "tensor/elementwise.h"

namespace storytape {

template <class T>
Var<T> add(Var<T> a, Var<T> b) {
  return a.tape().record("add", add(a.value(), b.value()), {a, b}, [a, b](const Grads<T>& dy) {
    // forward:  y = a + b
    if (a.requires_grad()) a.accumulate(reduce_to(dy.one(), a.shape()));
    if (b.requires_grad()) b.accumulate(reduce_to(dy.one(), b.shape()));
  });
}

template <class T>
Var<T> sub(Var<T> a, Var<T> b) {
  return a.tape().record("sub", sub(a.value(), b.value()), {a, b}, [a, b](const Grads<T>& dy) {
    // forward:  y = a - b
    if (a.requires_grad()) a.accumulate(reduce_to(dy.one(), a.shape()));
    if (b.requires_grad()) b.accumulate(unary(Unary::kNeg, reduce_to(dy.one(), b.shape())));
  });
}

namespace internal {

// dy ⊙ factor; 0 where dy is.
template <class T>
Tensor<T> chain(const Tensor<T>& dy, const Tensor<T>& factor) {
  Tensor<T> dx = mul(dy, factor);
  keep_zeros(dy.data(), dx.data(), dx.size());
  return dx;
}

}  // namespace internal

template <class T>
Var<T> mul(Var<T> a, Var<T> b) {
  return a.tape().record("mul", mul(a.value(), b.value()), {a, b}, [a, b](const Grads<T>& dy) {
    // forward:  y = a·b
    if (a.requires_grad()) a.accumulate(reduce_to(internal::chain(dy.one(), b.value()), a.shape()));
    if (b.requires_grad()) b.accumulate(reduce_to(internal::chain(dy.one(), a.value()), b.shape()));
  });
}

template <class T>
Var<T> div(Var<T> a, Var<T> b) {
  Tensor<T> y = div(a.value(), b.value());
  return a.tape().record("div", y, {a, b}, [a, b, y](const Grads<T>& dy) {
    // forward:  y = a/b;  dy/db = -a/b² = -y/b, which overflows no earlier than y itself
    Tensor<T> scaled = div(dy.one(), b.value());
    internal::keep_zeros(dy.data(), scaled.data(), scaled.size());
    if (a.requires_grad()) a.accumulate(reduce_to(scaled, a.shape()));
    if (b.requires_grad()) b.accumulate(unary(Unary::kNeg, reduce_to(internal::chain(scaled, y), b.shape())));
  });
}

// y = factor·x
template <class T>
Var<T> scale(Var<T> x, double factor) {
  const T f = static_cast<T>(factor);
  Tensor<T> y(x.shape());
  scale(f, x.value().data(), y.data(), y.size());
  return x.tape().record("scale", std::move(y), {x}, [x, f](const Grads<T>& dy) {
    const GradSlot<T> dx = x.grad_slot();
    const size_t n = dy.one().size();
    dx.fresh ? scale(f, dy.data(), dx.data, n) : axpy(f, dy.data(), dx.data, n);
  });
}

// y = x + constant
template <class T>
Var<T> add_constant(Var<T> x, double constant) {
  return x.tape().record("add_constant", add(x.value(), Tensor<T>(Shape(), static_cast<T>(constant))), {x},
                         [x](const Grads<T>& dy) { x.accumulate(dy.one()); });
}

// y = mask ? a : b, element by element; all of one shape. The gradient of the side that was not chosen is
// exactly 0, whatever overflowed there.
template <class T>
Var<T> select(const Tensor<T>& mask, Var<T> a, Var<T> b) {
  if (!(mask.shape() == a.shape()) || !(mask.shape() == b.shape())) {
    fail("select wants one shape, got mask {}, {} and {}", to_string(mask.shape()), to_string(a.shape()),
         to_string(b.shape()));
  }
  Tensor<T> y(mask.shape());
  const T* m = mask.data();
  const T* from_a = a.value().data();
  const T* from_b = b.value().data();
  T* out = y.data();
  for (size_t i = 0; i < y.size(); ++i) out[i] = m[i] != T{0} ? from_a[i] : from_b[i];
  return a.tape().record("select", std::move(y), {a, b}, [a, b, mask](const Grads<T>& dy) {
    // forward:  y[i] = mask[i] ? a[i] : b[i]
    const auto give = [&](Var<T> x, bool side) {
      const GradSlot<T> dx = x.grad_slot();
      for (size_t i = 0; i < mask.size(); ++i) {
        const T d = (mask[i] != T{0}) == side ? dy.data()[i] : T{0};
        dx.data[i] = dx.fresh ? d : dx.data[i] + d;
      }
    };
    if (a.requires_grad()) give(a, true);
    if (b.requires_grad()) give(b, false);
  });
}

template <class T>
Var<T> operator+(Var<T> a, Var<T> b) {
  return add(a, b);
}
template <class T>
Var<T> operator-(Var<T> a, Var<T> b) {
  return sub(a, b);
}
template <class T>
Var<T> operator*(Var<T> a, Var<T> b) {
  return mul(a, b);
}
template <class T>
Var<T> operator/(Var<T> a, Var<T> b) {
  return div(a, b);
}

}  // namespace storytape
