// What a mixer carries from one token to the next: named tensors that can be copied (rollback), saved,
// restored and measured. Copies share memory until one of them is written.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace storytape {

template <class T>
class State {
 public:
  void add(std::string name, Tensor<T> tensor) { tensors_.emplace_back(std::move(name), std::move(tensor)); }

  // The tensor of that name; an Error names it if there is none.
  Tensor<T>& operator[](std::string_view name) { return const_cast<Tensor<T>&>(std::as_const(*this)[name]); }
  const Tensor<T>& operator[](std::string_view name) const {
    for (const auto& [key, tensor] : tensors_) {
      if (key == name) return tensor;
    }
    fail("the state has no tensor \"{}\"", name);
  }

  const std::vector<std::pair<std::string, Tensor<T>>>& tensors() const { return tensors_; }
  // Memory that the tokens seen so far need.
  size_t bytes() const {
    size_t sum = 0;
    for (const auto& [name, tensor] : tensors_) sum += tensor.bytes();
    return sum;
  }

  // Tokens seen so far.
  size_t length = 0;

 private:
  std::vector<std::pair<std::string, Tensor<T>>> tensors_;
};

}  // namespace storytape
