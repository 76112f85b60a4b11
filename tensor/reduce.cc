#include "tensor/reduce.h"

#include <cmath>

#include "tensor/elementwise.h"

namespace storytape {
namespace {

template <class T>
void max_backward(const T* x, const T* dy, T* dx, size_t outer, size_t m, size_t inner, bool accumulate) {
  for (size_t o = 0; o < outer; ++o, x += m * inner, dy += inner, dx += m * inner) {
    if (!accumulate) std::fill_n(dx, m * inner, T{0});
    for (size_t j = 0; m > 0 && j < inner; ++j) {
      size_t best = 0;
      for (size_t k = 1; k < m && !std::isnan(x[best * inner + j]); ++k) {
        const T v = x[k * inner + j];
        if (v > x[best * inner + j] || std::isnan(v)) best = k;
      }
      dx[best * inner + j] += dy[j];
    }
  }
}

template <class T>
size_t first_of_largest(const T* x, size_t n) {
  T max = 0;
  max_middle(x, &max, 1, n, 1);
  size_t i = 0;
  if (std::isnan(max)) {
    while (!std::isnan(x[i])) ++i;
  } else {
    while (x[i] != max) ++i;
  }
  return i;
}

void check_axis(const char* op, const Shape& shape, size_t axis) {
  if (axis >= shape.rank()) fail("{} over axis {} of a tensor {}", op, axis, to_string(shape));
}

void check_not_empty(const char* op, size_t size, const Shape& shape) {
  if (size == 0) fail("{} of no values, in a tensor {}", op, to_string(shape));
}

Shape without(const Shape& shape, size_t axis, bool keepdims) {
  Shape result;
  for (size_t i = 0; i < shape.rank(); ++i) {
    if (i != axis) {
      result.push_back(shape[i]);
    } else if (keepdims) {
      result.push_back(1);
    }
  }
  return result;
}

template <class T>
void divide(Tensor<T>& x, size_t by) {
  const T divisor = static_cast<T>(by);
  const size_t n = x.size();
  binary_rows(Binary::kDiv, {1, n, n, 1, 0, 0}, x.data(), &divisor, x.data());
}

}  // namespace

void max_middle_backward(const float* x, const float* dy, float* dx, size_t outer, size_t m, size_t inner,
                         bool accumulate) {
  max_backward(x, dy, dx, outer, m, inner, accumulate);
}
void max_middle_backward(const double* x, const double* dy, double* dx, size_t outer, size_t m, size_t inner,
                         bool accumulate) {
  max_backward(x, dy, dx, outer, m, inner, accumulate);
}

size_t argmax(const float* x, size_t n) {
  return first_of_largest(x, n);
}
size_t argmax(const double* x, size_t n) {
  return first_of_largest(x, n);
}

template <class T>
Tensor<T> sum_axis(const Tensor<T>& x, size_t axis, bool keepdims) {
  const Shape& shape = x.shape();
  check_axis("sum", shape, axis);
  Tensor<T> y(without(shape, axis, keepdims));
  sum_middle(x.data(), y.data(), shape.product(0, axis), shape[axis], shape.product(axis + 1, shape.rank()));
  return y;
}

template <class T>
Tensor<T> mean_axis(const Tensor<T>& x, size_t axis, bool keepdims) {
  check_axis("mean", x.shape(), axis);
  check_not_empty("mean", x.size(axis), x.shape());
  Tensor<T> y = sum_axis(x, axis, keepdims);
  divide(y, x.size(axis));
  return y;
}

template <class T>
Tensor<T> max_axis(const Tensor<T>& x, size_t axis, bool keepdims) {
  const Shape& shape = x.shape();
  check_axis("max", shape, axis);
  check_not_empty("max", shape[axis], shape);
  Tensor<T> y(without(shape, axis, keepdims));
  max_middle(x.data(), y.data(), shape.product(0, axis), shape[axis], shape.product(axis + 1, shape.rank()));
  return y;
}

template <class T>
Tensor<T> sum_all(const Tensor<T>& x) {
  return Tensor<T>(Shape{}, sum(x.data(), x.size()));
}

template <class T>
Tensor<T> mean_all(const Tensor<T>& x) {
  check_not_empty("mean", x.size(), x.shape());
  return Tensor<T>(Shape{}, sum(x.data(), x.size()) / static_cast<T>(x.size()));
}

template <class T>
Tensor<T> max_all(const Tensor<T>& x) {
  check_not_empty("max", x.size(), x.shape());
  Tensor<T> y{Shape{}};
  max_middle(x.data(), y.data(), 1, x.size(), 1);
  return y;
}

template <class T>
Tensor<T> softmax(const Tensor<T>& x) {
  if (x.rank() == 0) fail("softmax wants at least one axis");
  Tensor<T> y(x.shape());
  const size_t n = x.shape().back();
  if (n > 0) softmax(x.data(), y.data(), x.size() / n, n);
  return y;
}

#define STORYTAPE_INSTANTIATE(T)                                \
  template Tensor<T> sum_axis(const Tensor<T>&, size_t, bool);  \
  template Tensor<T> mean_axis(const Tensor<T>&, size_t, bool); \
  template Tensor<T> max_axis(const Tensor<T>&, size_t, bool);  \
  template Tensor<T> sum_all(const Tensor<T>&);                 \
  template Tensor<T> mean_all(const Tensor<T>&);                \
  template Tensor<T> max_all(const Tensor<T>&);                 \
  template Tensor<T> softmax(const Tensor<T>&)
STORYTAPE_INSTANTIATE(float);
STORYTAPE_INSTANTIATE(double);
#undef STORYTAPE_INSTANTIATE

}  // namespace storytape
