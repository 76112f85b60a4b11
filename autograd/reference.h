// The definitions of the basic ops, scalar by scalar: the witness that the kernels and their gradients are
// held against.
//
// S is double or std::complex<double>. With x + ih for an input, h = 1e-30, Im f / h is df/dx to rounding:
// nothing is subtracted, so nothing cancels ("complex step"; Squire and Trapp, SIAM Review 40, 1998). For
// that every function here is analytic: it branches on real parts, never takes an absolute value or a
// conjugate, and is written so that the imaginary part, which is first order in h throughout, keeps all its
// digits.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <numbers>
#include <vector>

#include "autograd/registry.h"

namespace storytape::reference {

inline double real(double x) {
  return x;
}
inline double real(const std::complex<double>& x) {
  return x.real();
}

// f(a + ib) = f(a) + ib f'(a): exact where b² is below rounding, as in a complex step. For functions that the
// standard library has for real arguments only, and where the complex ones lose digits.
template <class F, class D>
double first_order(double x, F f, D) {
  return f(x);
}
template <class F, class D>
std::complex<double> first_order(const std::complex<double>& x, F f, D derivative) {
  return {f(x.real()), x.imag() * derivative(x.real())};
}

// 1 - erf(x), with all digits for large x; its derivative is -2/√π exp(-x²).
template <class S>
S erfc(const S& x) {
  return first_order(
      x, [](double a) { return std::erfc(a); },
      [](double a) { return -2 / std::sqrt(std::numbers::pi) * std::exp(-a * a); });
}

template <class S>
S log1p(const S& x) {
  return first_order(
      x, [](double a) { return std::log1p(a); }, [](double a) { return 1 / (1 + a); });
}

template <class S>
S square(const S& x) {
  return x * x;
}

// 1/(1+e^-x), by the side on which e^x is small.
template <class S>
S sigmoid(const S& x) {
  using std::exp;
  if (real(x) >= 0) return 1.0 / (1.0 + exp(-x));
  const S e = exp(x);
  return e / (1.0 + e);
}

// log(1+e^x)
template <class S>
S softplus(const S& x) {
  using std::exp;
  return real(x) > 0 ? x + log1p(S(exp(-x))) : log1p(S(exp(x)));
}

template <class S>
S log_sigmoid(const S& x) {
  return -softplus(S(-x));
}

// x·sigmoid(x), also called swish.
template <class S>
S silu(const S& x) {
  return x * sigmoid(x);
}

// x·Φ(x); Φ from erfc, which keeps its digits for x far below zero.
template <class S>
S gelu_erf(const S& x) {
  return x * (0.5 * erfc(S(-x / std::numbers::sqrt2)));
}

// x/2·(1 + tanh(u)) = x·sigmoid(2u), u = √(2/π)(x + 0.044715 x³)
template <class S>
S gelu_tanh(const S& x) {
  const S u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * (x * x * x));
  return x * sigmoid(S(2.0 * u));
}

// elu(x) + 1 = x+1 for x > 0, e^x else
template <class S>
S elu_plus_one(const S& x) {
  using std::exp;
  return real(x) > 0 ? x + 1.0 : exp(x);
}

// log Σ e^x over n values, `stride` apart.
template <class S>
S log_sum_exp(const S* x, size_t n, size_t stride = 1) {
  using std::exp;
  using std::log;
  double largest = real(x[0]);
  for (size_t i = 1; i < n; ++i) largest = std::max(largest, real(x[i * stride]));
  S sum{0};
  for (size_t i = 0; i < n; ++i) sum += exp(x[i * stride] - largest);
  return largest + log(sum);
}

// Where element i of a tensor `big` lies in a tensor `small` that broadcasts to it.
inline size_t broadcast_index(size_t i, const Shape& big, const Shape& small) {
  size_t index = 0;
  size_t stride = 1;
  for (size_t axis = 0; axis < big.rank(); ++axis) {
    const size_t position = i % big.back(axis);
    i /= big.back(axis);
    if (axis >= small.rank()) continue;
    if (small.back(axis) != 1) index += position * stride;
    stride *= small.back(axis);
  }
  return index;
}

template <class S, class F>
ScalarTensor<S> binary(const ScalarTensor<S>& a, const ScalarTensor<S>& b, F&& f) {
  ScalarTensor<S> y(broadcast(a.shape, b.shape));
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] = f(a[broadcast_index(i, y.shape, a.shape)], b[broadcast_index(i, y.shape, b.shape)]);
  }
  return y;
}

// One axis of a tensor: element (o, i, j) lies at (o·size + i)·inner + j.
struct Axis {
  size_t outer, size, inner;
  Axis(const Shape& shape, size_t axis)
      : outer(shape.product(0, axis)), size(shape[axis]), inner(shape.product(axis + 1, shape.rank())) {}
};

// f(first element, stride, n) -> S for every line along the axis, which the result lacks.
template <class S, class F>
ScalarTensor<S> reduce(const ScalarTensor<S>& x, size_t axis, bool keep, F&& f) {
  const Axis a(x.shape, axis);
  Shape shape;
  for (size_t k = 0; k < x.shape.rank(); ++k) {
    if (k != axis) shape.push_back(x.shape[k]);
    if (k == axis && keep) shape.push_back(1);
  }
  ScalarTensor<S> y(shape);
  for (size_t o = 0; o < a.outer; ++o) {
    for (size_t j = 0; j < a.inner; ++j) {
      y[o * a.inner + j] = f(x.data() + o * a.size * a.inner + j, a.inner, a.size);
    }
  }
  return y;
}

template <class S>
S sum(const S* x, size_t stride, size_t n) {
  S sum{0};
  for (size_t i = 0; i < n; ++i) sum += x[i * stride];
  return sum;
}

// The first of the elements with the largest real part.
template <class S>
S max(const S* x, size_t stride, size_t n) {
  S largest = x[0];
  for (size_t i = 1; i < n; ++i) {
    if (real(x[i * stride]) > real(largest)) largest = x[i * stride];
  }
  return largest;
}

// f(x row, y row, n) for every row of the last axis.
template <class S, class F>
ScalarTensor<S> by_rows(const ScalarTensor<S>& x, F&& f) {
  ScalarTensor<S> y(x.shape);
  const size_t n = x.shape.back();
  for (size_t i = 0; i < x.size(); i += n) f(x.data() + i, y.data() + i, n);
  return y;
}

template <class S>
void softmax(const S* x, S* y, size_t n) {
  using std::exp;
  const S total = log_sum_exp(x, n);
  for (size_t i = 0; i < n; ++i) y[i] = exp(x[i] - total);
}

template <class S>
void log_softmax(const S* x, S* y, size_t n) {
  const S total = log_sum_exp(x, n);
  for (size_t i = 0; i < n; ++i) y[i] = x[i] - total;
}

// y = (x - mean)/√(var + ε)·γ + β, the variance over n; γ or β may be null.
template <class S>
void layer_norm(const S* x, const S* gamma, const S* beta, double epsilon, S* y, size_t n) {
  using std::sqrt;
  const double count = static_cast<double>(n);
  const S mean = sum(x, 1, n) / count;
  S variance{0};
  for (size_t i = 0; i < n; ++i) variance += square(S(x[i] - mean));
  const S rstd = 1.0 / sqrt(variance / count + epsilon);
  for (size_t i = 0; i < n; ++i) {
    y[i] = (x[i] - mean) * rstd;
    if (gamma) y[i] *= gamma[i];
    if (beta) y[i] += beta[i];
  }
}

// y = x/√(mean of x² + ε)·γ; γ may be null.
template <class S>
void rms_norm(const S* x, const S* gamma, double epsilon, S* y, size_t n) {
  using std::sqrt;
  S squares{0};
  for (size_t i = 0; i < n; ++i) squares += square(x[i]);
  const S rstd = 1.0 / sqrt(squares / static_cast<double>(n) + epsilon);
  for (size_t i = 0; i < n; ++i) y[i] = x[i] * rstd * (gamma ? gamma[i] : S{1});
}

// c[m×n] = op(a)·op(b), op transposing if told so.
template <class S>
void matmul(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, const S* a, const S* b, S* c) {
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) {
      S sum{0};
      for (size_t l = 0; l < k; ++l) {
        sum += (transpose_a ? a[l * m + i] : a[i * k + l]) * (transpose_b ? b[j * k + l] : b[l * n + j]);
      }
      c[i * n + j] = sum;
    }
  }
}

// Mean of -log softmax(logits)[target] over the rows whose target isn't `ignore`; 0 if there is none.
template <class S>
S cross_entropy(const S* logits, const std::vector<int32_t>& targets, size_t classes, int32_t ignore) {
  S sum{0};
  size_t count = 0;
  for (size_t row = 0; row < targets.size(); ++row) {
    if (targets[row] == ignore) continue;
    const S* x = logits + row * classes;
    sum += log_sum_exp(x, classes) - x[targets[row]];
    ++count;
  }
  return count ? sum / static_cast<double>(count) : S{0};
}

}  // namespace storytape::reference
