// The weights of a model: named parameters in a fixed order, and how they start.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "autograd/parameter.h"
#include "tensor/random.h"

namespace storytape {

// How a parameter starts: element i from a draw of its random stream.
struct Init {
  std::function<double(Random& random, size_t i)> draw;

  static Init constant(double value) {
    return {[value](Random&, size_t) { return value; }};
  }
  // Uniform(±1/sqrt(fan)), the course's initialisation of matrices and tables (standard deviation
  // 1/sqrt(3·fan)), and PyTorch's of linear maps and convolutions.
  static Init uniform_fan(size_t fan) {
    const double half_width = 1 / std::sqrt(static_cast<double>(fan));
    return {[half_width](Random& random, size_t) { return random.uniform(-half_width, half_width); }};
  }
  static Init normal(double deviation) {
    return {[deviation](Random& random, size_t) { return deviation * random.normal(); }};
  }
  // log U, U uniform in (low, high], low ≥ 0: the rates A of decays, which are kept as logarithms.
  static Init log_of_uniform(double low, double high) {
    return {[=](Random& random, size_t) { return std::log(high - (high - low) * random.uniform()); }};
  }
  // log(i + 1)
  static Init log_of_position() {
    return {[](Random&, size_t i) { return std::log(static_cast<double>(i + 1)); }};
  }
  // softplus^-1 of step widths that are log-uniform in [low, high), but at least `floor`: the bias under a
  // softplus that makes such steps.
  static Init step_bias(double low = 1e-3, double high = 1e-1, double floor = 1e-4) {
    return {[=](Random& random, size_t) {
      const double step = std::max(std::exp(random.uniform(std::log(low), std::log(high))), floor);
      return step + std::log(-std::expm1(-step));
    }};
  }
};

// Owns the parameters of one model. Values are drawn from the parameter's own random stream (seed, position
// in the list), so they do not depend on thread count or compiler.
template <class T>
class ParameterList {
 public:
  explicit ParameterList(uint64_t seed) : seed_(seed) {}

  // Matrices are marked as decayed by AdamW's `default` recipe, vectors are not.
  Parameter<T>& add(std::string name, const Shape& shape, const Init& init) {
    Tensor<T> value(shape);
    Random random(seed_, parameters_.size());
    const std::span<T> values = value.values();
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(init.draw(random, i));
    auto& parameter =
        *parameters_.emplace_back(std::make_unique<Parameter<T>>(std::move(name), std::move(value)));
    parameter.index = parameters_.size() - 1;
    parameter.decays = shape.rank() >= 2;
    offsets_.push_back(elements_);
    elements_ += parameter.size();
    return parameter;
  }

  size_t size() const { return parameters_.size(); }
  Parameter<T>& operator[](size_t i) { return *parameters_[i]; }
  const Parameter<T>& operator[](size_t i) const { return *parameters_[i]; }
  // Where parameter i begins in a flat block of all parameters, in elements.
  const std::vector<size_t>& offsets() const { return offsets_; }
  // Number of weights.
  size_t elements() const { return elements_; }
  // The parameter of that name, or null.
  Parameter<T>* find(std::string_view name) const {
    for (const auto& parameter : parameters_) {
      if (parameter->name() == name) return parameter.get();
    }
    return nullptr;
  }

 private:
  uint64_t seed_;
  std::vector<std::unique_ptr<Parameter<T>>> parameters_;
  std::vector<size_t> offsets_;
  size_t elements_ = 0;
};

}  // namespace storytape
