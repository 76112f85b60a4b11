// What the demonstrations are made of: small inputs of one sequence and one head, values without gradients,
// and differences.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "autograd/tape.h"
#include "nn/normalize.h"
#include "tensor/random.h"

namespace storytape::demo {

// Makes variables of a tape that keeps nothing for a backward. An undefined tensor stays undefined.
class Values {
 public:
  Var<float> operator()(const Tensor<float>& tensor) {
    return tensor.defined() ? tape_.constant(tensor) : Var<float>();
  }

 private:
  Tape<float> tape_;
  NoGrad<float> no_grad_{tape_};
};

// Standard normal numbers.
inline Tensor<float> normal(const Shape& shape, uint64_t seed) {
  Random random(seed);
  Tensor<float> x(shape);
  for (float& value : x.values()) value = static_cast<float>(random.normal());
  return x;
}
inline Tensor<float> uniform(const Shape& shape, uint64_t seed, double low, double high) {
  Random random(seed);
  Tensor<float> x(shape);
  for (float& value : x.values()) value = static_cast<float>(random.uniform(low, high));
  return x;
}

// A vector's Euclidean norm.
inline double norm(std::span<const float> x) {
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

// Rows of the last axis to unit length: keys of the delta rule.
inline Tensor<float> unit_rows(const Tensor<float>& x) {
  return l2_normalize(x, L2Mode::kClamp);
}

// [1, T, 1, d]: row t is 1 at channel (first + t) mod d, else 0.
inline Tensor<float> one_hot(size_t tokens, size_t dim, size_t first = 0) {
  Tensor<float> x({1, tokens, 1, dim}, 0.0f);
  for (size_t t = 0; t < tokens; ++t) x[t * dim + (first + t) % dim] = 1;
  return x;
}

// Token t's row of [1, T, 1, d].
inline std::span<const float> row(const Tensor<float>& x, size_t t) {
  return x.values().subspan(t * x.shape().back(), x.shape().back());
}

// max|a - b|; infinite where a value is not finite.
inline double difference(std::span<const float> a, std::span<const float> b) {
  double worst = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double apart = std::abs(static_cast<double>(a[i]) - b[i]);
    if (!(apart <= worst)) worst = std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart;
  }
  return worst;
}
inline double difference(const Tensor<float>& a, const Tensor<float>& b) {
  return difference(a.values(), b.values());
}

// The same in units of the largest |b|, at least 1.
inline double relative_difference(const Tensor<float>& a, const Tensor<float>& b) {
  double scale = 1;
  for (const float value : b.values()) scale = std::max(scale, std::abs(static_cast<double>(value)));
  return difference(a, b) / scale;
}

inline bool any_nan(const Tensor<float>& x) {
  for (const float value : x.values()) {
    if (std::isnan(value)) return true;
  }
  return false;
}

inline nlohmann::json list(std::span<const float> x) {
  return std::vector<float>(x.begin(), x.end());
}

}  // namespace storytape::demo
