// Sums, means, maxima. Axes count from 0; `keepdims` leaves the axis with size 1.
#pragma once

#include <utility>

#include "autograd/tape.h"
#include "tensor/elementwise.h"
#include "tensor/reduce.h"

namespace storytape {

namespace internal {

// A tensor seen as [outer, m, inner] around an axis.
struct Middle {
  size_t outer, m, inner;
  Middle(const Shape& shape, size_t axis)
      : outer(shape.product(0, axis)), m(shape[axis]), inner(shape.product(axis + 1, shape.rank())) {}
};

// dx[o, i, j] = or += factor·dy[o, j]: the gradient of a sum over the middle axis.
template <class T>
void spread(const Middle& s, const T* dy, T factor, const GradSlot<T>& dx) {
  for (size_t o = 0; o < s.outer; ++o) {
    for (size_t i = 0; i < s.m; ++i) {
      T* row = dx.data + (o * s.m + i) * s.inner;
      if (dx.fresh) {
        scale(factor, dy + o * s.inner, row, s.inner);
      } else {
        axpy(factor, dy + o * s.inner, row, s.inner);
      }
    }
  }
}

}  // namespace internal

template <class T>
Var<T> sum(Var<T> x, size_t axis, bool keepdims = false) {
  return x.tape().record("sum", sum_axis(x.value(), axis, keepdims), {x}, [x, axis](const Grads<T>& dy) {
    // forward:  y[o, j] = Σ_i x[o, i, j]
    internal::spread(internal::Middle(x.shape(), axis), dy.data(), T{1}, x.grad_slot());
  });
}

// Over all elements; the result has shape [].
template <class T>
Var<T> sum(Var<T> x) {
  return x.tape().record("sum", sum_all(x.value()), {x}, [x](const Grads<T>& dy) {
    // forward:  y = Σ x[i]
    x.accumulate(broadcast_to(dy.one(), x.shape()));
  });
}

template <class T>
Var<T> mean(Var<T> x, size_t axis, bool keepdims = false) {
  return x.tape().record("mean", mean_axis(x.value(), axis, keepdims), {x}, [x, axis](const Grads<T>& dy) {
    // forward:  y[o, j] = Σ_i x[o, i, j] / m
    const internal::Middle s(x.shape(), axis);
    internal::spread(s, dy.data(), T{1} / static_cast<T>(s.m), x.grad_slot());
  });
}

template <class T>
Var<T> mean(Var<T> x) {
  return x.tape().record("mean", mean_all(x.value()), {x}, [x](const Grads<T>& dy) {
    // forward:  y = Σ x[i] / n
    const size_t n = x.value().size();
    x.accumulate(Tensor<T>(x.shape(), dy.one().item() / static_cast<T>(n)));
  });
}

// Of equal maxima the first gets the whole gradient.
template <class T>
Var<T> max(Var<T> x, size_t axis, bool keepdims = false) {
  return x.tape().record("max", max_axis(x.value(), axis, keepdims), {x}, [x, axis](const Grads<T>& dy) {
    // forward:  y[o, j] = max_i x[o, i, j]
    const internal::Middle s(x.shape(), axis);
    const GradSlot<T> dx = x.grad_slot();
    max_middle_backward(x.value().data(), dy.data(), dx.data, s.outer, s.m, s.inner, !dx.fresh);
  });
}

template <class T>
Var<T> max(Var<T> x) {
  return x.tape().record("max", max_all(x.value()), {x}, [x](const Grads<T>& dy) {
    const GradSlot<T> dx = x.grad_slot();
    max_middle_backward(x.value().data(), dy.data(), dx.data, 1, x.value().size(), 1, !dx.fresh);
  });
}

// y[t] = x[0] + … + x[t] along an axis.
template <class T>
Var<T> cumsum(Var<T> x, size_t axis) {
  if (axis >= x.shape().rank()) fail("cumsum along axis {} of a tensor {}", axis, to_string(x.shape()));
  const internal::Middle s(x.shape(), axis);
  Tensor<T> y = x.value().clone();
  T* out = y.data();
  for (size_t o = 0; o < s.outer; ++o) {
    for (size_t t = 1; t < s.m; ++t) {
      T* row = out + (o * s.m + t) * s.inner;
      add_into(row, row - s.inner, s.inner);
    }
  }
  return x.tape().record("cumsum", std::move(y), {x}, [x, s](const Grads<T>& dy) {
    // forward:  y[t] = y[t-1] + x[t],  so  dx[t] = dy[t] + dx[t+1]
    Tensor<T> dx = dy.one().clone();
    T* data = dx.data();
    for (size_t o = 0; o < s.outer; ++o) {
      for (size_t t = s.m; t-- > 1;) {
        T* row = data + (o * s.m + t) * s.inner;
        add_into(row - s.inner, row, s.inner);
      }
    }
    x.accumulate(std::move(dx));
  });
}

// log Σ e^x over the last axis. -inf for a row of -inf alone, which gets no gradient.
template <class T>
Var<T> log_sum_exp(Var<T> x) {
  const Shape& shape = x.shape();
  if (shape.rank() == 0) fail("log_sum_exp wants an axis, got a single value");
  const size_t n = shape.back();
  const size_t rows = shape.product(0, shape.rank() - 1);
  Tensor<T> y(Shape(shape.sizes().first(shape.rank() - 1)));
  log_sum_exp(x.value().data(), y.data(), rows, n);
  return x.tape().record("log_sum_exp", std::move(y), {x}, [x, rows, n](const Grads<T>& dy) {
    // forward:  y = log Σ e^x,  so  dx = dy·softmax(x);  not dy·e^(x - y), which loses digits where y is
    // large
    const Tensor<T> p = softmax(x.value()).reshape({rows, n});
    x.accumulate(mul(p, dy.one().reshape({rows, 1})).reshape(x.shape()));
  });
}

}  // namespace storytape
