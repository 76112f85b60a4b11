// A named weight of a model. Used in several places (tied embeddings), it is one parameter: one value, one
// gradient, one entry in every list, norm, optimizer and file.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "tensor/gemm.h"
#include "tensor/tensor.h"

namespace storytape {

template <class T>
class Parameter {
 public:
  Parameter(std::string name, Tensor<T> value) : name_(std::move(name)), value_(std::move(value)) {}
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  // As in files: "blocks.0.mixer.q.weight".
  const std::string& name() const { return name_; }
  void rename(std::string name) { name_ = std::move(name); }
  const Tensor<T>& value() const { return value_; }
  const Shape& shape() const { return value_.shape(); }
  size_t size() const { return value_.size(); }

  // For whoever changes the weights (optimizer, loading): packed forms made before are then out of date.
  Tensor<T>& mutable_value() {
    version_.fetch_add(1, std::memory_order_release);
    return value_;
  }

  // The gradient that backward adds to when the tape has no sink of its own; undefined until then.
  Tensor<T>& grad() { return grad_; }
  const Tensor<T>& grad() const { return grad_; }
  void zero_grad() { grad_ = Tensor<T>(); }

  // The value as the right operand of a product, packed for the kernel: op(W) with W as [rows, columns] over
  // the last axis. Packed once per change of the value and shared by all threads.
  const PackedB<T>& packed(Trans trans) const;

  // Position in its model's list of parameters; tells a gradient sink where to add.
  size_t index = 0;
  // Whether AdamW's `default` recipe decays it: matrices yes; biases, norms and gate logits no.
  bool decays = true;

 private:
  struct Packing {
    std::mutex mutex;
    std::atomic<uint64_t> version{0};
    PackedB<T> packed;
  };

  std::string name_;
  Tensor<T> value_;
  Tensor<T> grad_;
  std::atomic<uint64_t> version_{1};
  mutable Packing packing_[2];
};

template <class T>
const PackedB<T>& Parameter<T>::packed(Trans trans) const {
  Packing& packing = packing_[trans == Trans::kYes];
  const uint64_t version = version_.load(std::memory_order_acquire);
  if (packing.version.load(std::memory_order_acquire) != version) {
    std::lock_guard lock(packing.mutex);
    if (packing.version.load(std::memory_order_relaxed) != version) {
      const size_t columns = value_.shape().back();
      const size_t rows = columns ? value_.size() / columns : 0;
      packing.packed.pack(trans, rows, columns, value_.data());
      packing.version.store(version, std::memory_order_release);
    }
  }
  return packing.packed;
}

}  // namespace storytape
