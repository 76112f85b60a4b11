// Numbers side by side, for the gradient checker. NaN passes nothing.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "tensor/tensor.h"

namespace storytape::internal {

// max|values|
template <class Values>
double largest(const Values& values) {
  double m = 0;
  for (size_t i = 0; i < values.size(); ++i) m = std::max(m, std::abs(static_cast<double>(values[i])));
  return m;
}

// max|a-b| / max(max|b|, floor); NaN if anything isn't finite. Tensors, vectors or spans of the same size.
template <class A, class B>
double relative_error(const A& a, const B& b, double floor) {
  double worst = 0;
  double scale = floor;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]);
    const double y = static_cast<double>(b[i]);
    if (!std::isfinite(x) || !std::isfinite(y)) return std::numeric_limits<double>::quiet_NaN();
    worst = std::max(worst, std::abs(x - y));
    scale = std::max(scale, std::abs(y));
  }
  return worst == 0 ? 0 : worst / scale;
}

template <class T>
const Tensor<T> zeros_if_undefined(const Tensor<T>& t, const Shape& shape) {
  return t.defined() ? t : Tensor<T>::zeros(shape);
}

template <class T>
std::vector<Tensor<T>> cast_all(const std::vector<Tensor<double>>& tensors) {
  std::vector<Tensor<T>> result;
  for (const Tensor<double>& t : tensors) result.push_back(t.defined() ? cast<T>(t) : Tensor<T>());
  return result;
}

}  // namespace storytape::internal
