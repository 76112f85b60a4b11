// Functions of whole rows (the last axis): softmax, its logarithm, layer norm, RMS norm.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "tensor/elementwise.h"
#include "tensor/norm.h"
#include "tensor/reduce.h"

namespace storytape {

namespace internal {

// A tensor seen as rows of its last axis.
struct Rows {
  size_t rows, n;
  Rows(const char* op, const Shape& shape) {
    if (shape.rank() == 0) fail("{} wants an axis, got a single value", op);
    n = shape.back();
    rows = shape.product(0, shape.rank() - 1);
  }
};

// An absent scale or shift is an undefined variable.
template <class T>
void check_row_parameter(const char* op, const char* what, Var<T> p, const Shape& x) {
  if (p.defined() && !(p.shape() == Shape{x.back()})) {
    fail("{}: {} has shape {}, rows of {} want [{}]", op, what, to_string(p.shape()), to_string(x), x.back());
  }
}

template <class T>
const T* data_or_null(Var<T> x) {
  return x.defined() ? x.value().data() : nullptr;
}

// Where to add a row parameter's gradient: zeroed if fresh; null where none is wanted.
template <class T>
T* row_parameter_grad(Var<T> p) {
  if (!p.defined() || !p.requires_grad()) return nullptr;
  const GradSlot<T> slot = p.grad_slot();
  if (slot.fresh) std::fill_n(slot.data, p.value().size(), T{0});
  return slot.data;
}

template <class T>
void clear_rows(const std::vector<size_t>& rows, size_t n, Tensor<T>& x) {
  for (const size_t row : rows) std::fill_n(x.data() + row * n, n, T{0});
}

}  // namespace internal

template <class T>
Var<T> softmax(Var<T> x) {
  const internal::Rows r("softmax", x.shape());
  Tensor<T> y = softmax(x.value());
  return x.tape().record("softmax", y, {x}, [x, y, r](const Grads<T>& dy) {
    // forward:  y = e^x / Σ e^x,  so  dx = y ⊙ (dy - ⟨y, dy⟩)
    const GradSlot<T> dx = x.grad_slot();
    softmax_backward(y.data(), dy.data(), dx.data, r.rows, r.n, !dx.fresh);
  });
}

// log softmax(x) = x - log Σ e^x. A row of -inf alone stays as it is, the log of softmax's zeros, and has no
// gradient.
template <class T>
Var<T> log_softmax(Var<T> x) {
  const internal::Rows r("log_softmax", x.shape());
  // The row's largest m goes first: large logits cost no digits.
  Tensor<T> m({r.rows, 1}), total({r.rows, 1});
  max_middle(x.value().data(), m.data(), r.rows, r.n, 1);
  for (T& largest : m.values()) largest = std::isfinite(largest) ? largest : T{0};
  const Tensor<T> shifted = sub(x.value().reshape({r.rows, r.n}), m);
  log_sum_exp(shifted.data(), total.data(), r.rows, r.n);
  std::vector<size_t> masked;
  for (size_t row = 0; row < r.rows; ++row) {
    if (std::as_const(total)[row] != -std::numeric_limits<T>::infinity()) continue;
    masked.push_back(row);
    total[row] = 0;
  }
  Tensor<T> y = sub(shifted, total).reshape(x.shape());
  return x.tape().record("log_softmax", y, {x}, [x, y, r, masked = std::move(masked)](const Grads<T>& dy) {
    // forward:  y = (x-m) - log Σ e^(x-m),  so  dx = dy - e^y·Σ dy
    Tensor<T> sums({r.rows, 1});
    sum_middle(dy.data(), sums.data(), r.rows, r.n, 1);
    const Tensor<T> p = mul(unary(Unary::kExp, y).reshape({r.rows, r.n}), sums);
    Tensor<T> dx = sub(dy.one(), p.reshape(x.shape()));
    internal::clear_rows(masked, r.n, dx);
    x.accumulate(dx);
  });
}

// y = (x - mean)/√(variance + epsilon)·gamma + beta over the last axis, variance over n. gamma and beta [n]
// may be undefined: 1 and 0.
template <class T>
Var<T> layer_norm(Var<T> x, Var<T> gamma = {}, Var<T> beta = {}, double epsilon = 1e-5) {
  const internal::Rows r("layer_norm", x.shape());
  internal::check_row_parameter("layer_norm", "gamma", gamma, x.shape());
  internal::check_row_parameter("layer_norm", "beta", beta, x.shape());
  Tensor<T> y(x.shape()), mean({r.rows}), rstd({r.rows});
  layer_norm(x.value().data(), internal::data_or_null(gamma), internal::data_or_null(beta),
             static_cast<T>(epsilon), y.data(), mean.data(), rstd.data(), r.rows, r.n);
  return x.tape().record(
      "layer_norm", std::move(y), {x, gamma, beta}, [x, gamma, beta, mean, rstd, r](const Grads<T>& dy) {
        // forward:  (N1)
        T* dgamma = internal::row_parameter_grad(gamma);
        T* dbeta = internal::row_parameter_grad(beta);
        const GradSlot<T> dx = x.requires_grad() ? x.grad_slot() : GradSlot<T>{nullptr, false};
        layer_norm_backward(x.value().data(), internal::data_or_null(gamma), mean.data(), rstd.data(),
                            dy.data(), dx.data, !dx.fresh, dgamma, dbeta, r.rows, r.n);
      });
}

// y = x/√(mean of x² + epsilon)·gamma over the last axis. gamma [n] may be undefined: 1.
template <class T>
Var<T> rms_norm(Var<T> x, Var<T> gamma = {}, double epsilon = 1e-5) {
  const internal::Rows r("rms_norm", x.shape());
  internal::check_row_parameter("rms_norm", "gamma", gamma, x.shape());
  Tensor<T> y(x.shape()), rstd({r.rows});
  rms_norm(x.value().data(), internal::data_or_null(gamma), static_cast<T>(epsilon), y.data(), rstd.data(),
           r.rows, r.n);
  return x.tape().record("rms_norm", std::move(y), {x, gamma}, [x, gamma, rstd, r](const Grads<T>& dy) {
    // forward:  (R1)
    T* dgamma = internal::row_parameter_grad(gamma);
    const GradSlot<T> dx = x.requires_grad() ? x.grad_slot() : GradSlot<T>{nullptr, false};
    rms_norm_backward(x.value().data(), internal::data_or_null(gamma), rstd.data(), dy.data(), dx.data,
                      !dx.fresh, dgamma, r.rows, r.n);
  });
}

}  // namespace storytape
