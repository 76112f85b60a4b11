// The weights of a model: named parameters in a fixed order, and how they start.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "autograd/parameter.h"
#include "tensor/random.h"

namespace storytape {

// How a parameter starts.
struct Init {
  enum class Kind { kConstant, kUniform } kind = Kind::kConstant;
  double value = 0;  // the constant, or the half-width of the uniform range

  static Init constant(double value) { return {Kind::kConstant, value}; }
  // Uniform(±1/sqrt(fan)), the course's initialisation of matrices and tables (standard deviation
  // 1/sqrt(3·fan)).
  static Init uniform_fan(size_t fan) { return {Kind::kUniform, 1 / std::sqrt(static_cast<double>(fan))}; }
};

// Owns the parameters of one model. Values are drawn from the parameter's own random stream (seed, position
// in the list), so they do not depend on thread count or compiler.
template <class T>
class ParameterList {
 public:
  explicit ParameterList(uint64_t seed) : seed_(seed) {}

  // Matrices are marked as decayed by AdamW's `default` recipe, vectors are not.
  Parameter<T>& add(std::string name, const Shape& shape, Init init) {
    Tensor<T> value(shape);
    Random random(seed_, parameters_.size());
    for (T& x : value.values()) {
      x = static_cast<T>(init.kind == Init::Kind::kConstant ? init.value
                                                            : random.uniform(-init.value, init.value));
    }
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
