// Tensor<T>: contiguous row-major values over a shared buffer; T is float or double, or int32_t for ids.
//
// Value semantics: copies, reshapes and row ranges share a buffer until one of them is written through its
// non-const data(), which first takes a buffer of its own. So no write reaches a value that someone else has
// saved. A pointer from data() is good until the tensor is copied. Debug builds fill fresh buffers with NaN.
#pragma once

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <vector>

#include "tensor/buffer.h"
#include "tensor/error.h"
#include "tensor/shape.h"

namespace storytape {

template <class T>
class Tensor {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, int32_t>);

 public:
  // The undefined tensor: no shape, no values. Stands for "not given".
  Tensor() = default;
  // Values undefined.
  explicit Tensor(const Shape& shape) : shape_(shape), size_(shape.elements()), buffer_(size_ * sizeof(T)) {
    data_ = reinterpret_cast<T*>(buffer_.data());
    defined_ = true;
  }
  Tensor(const Shape& shape, T value) : Tensor(shape) { fill(value); }
  Tensor(const Shape& shape, std::initializer_list<T> values)
      : Tensor(shape, std::span<const T>(values.begin(), values.size())) {}
  Tensor(const Shape& shape, std::span<const T> values) : Tensor(shape) {
    if (values.size() != size_)
      fail("tensor {} wants {} values, got {}", to_string(shape), size_, values.size());
    std::copy(values.begin(), values.end(), data_);
  }

  static Tensor zeros(const Shape& shape) { return Tensor(shape, T{0}); }

  bool defined() const { return defined_; }
  const Shape& shape() const { return shape_; }
  size_t rank() const { return shape_.rank(); }
  size_t size() const { return size_; }
  size_t size(size_t axis) const { return shape_[axis]; }
  size_t bytes() const { return size_ * sizeof(T); }

  const T* data() const { return data_; }
  T* data() {
    if (!buffer_.unique()) *this = clone();
    return data_;
  }
  std::span<const T> values() const { return {data_, size_}; }
  std::span<T> values() { return {data(), size_}; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& operator[](size_t i) { return data()[i]; }
  // The only value. REQUIRES: size() == 1; an Error says so.
  T item() const {
    if (size_ != 1) fail("item() wants a tensor of one element, got {}", to_string(shape_));
    return data_[0];
  }

  // The same buffer under another shape of as many elements.
  Tensor reshape(const Shape& shape) const {
    if (shape.elements() != size_) fail("can't reshape {} to {}", to_string(shape_), to_string(shape));
    Tensor t = *this;
    t.shape_ = shape;
    return t;
  }
  // Rows [first, last) of the leading axis; shares the buffer.
  Tensor rows(size_t first, size_t last) const {
    if (rank() == 0 || first > last || last > shape_[0]) {
      fail("rows [{}, {}) lie outside a tensor {}", first, last, to_string(shape_));
    }
    const size_t stride = shape_.product(1, rank());
    Tensor t = *this;
    t.shape_[0] = last - first;
    t.size_ = (last - first) * stride;
    t.data_ = data_ + first * stride;
    return t;
  }
  // A tensor with a buffer of its own and the same values.
  Tensor clone() const {
    if (!defined_) return {};
    Tensor t(shape_);
    if (size_) std::memcpy(t.data_, data_, bytes());
    return t;
  }
  void fill(T value) { std::fill_n(data(), size_, value); }

  std::vector<T> to_vector() const { return {data_, data_ + size_}; }

 private:
  Shape shape_;
  size_t size_ = 0;
  Buffer buffer_;
  T* data_ = nullptr;
  bool defined_ = false;
};

// Values converted one by one.
template <class To, class From>
Tensor<To> cast(const Tensor<From>& from) {
  Tensor<To> to(from.shape());
  std::transform(from.values().begin(), from.values().end(), to.data(),
                 [](From x) { return static_cast<To>(x); });
  return to;
}

}  // namespace storytape
