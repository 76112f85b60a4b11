// Sizes of a tensor's axes, row-major: the last axis is contiguous. Held inline, so that making one allocates
// nothing.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>

#include "tensor/error.h"

namespace storytape {

class Shape {
 public:
  static constexpr size_t kMaxRank = 8;

  Shape() = default;
  Shape(std::initializer_list<size_t> sizes) : Shape(std::span<const size_t>(sizes.begin(), sizes.size())) {}
  explicit Shape(std::span<const size_t> sizes) : rank_(sizes.size()) {
    if (rank_ > kMaxRank) fail("a tensor has at most {} axes, got {}", kMaxRank, rank_);
    for (size_t i = 0; i < rank_; ++i) sizes_[i] = sizes[i];
  }

  size_t rank() const { return rank_; }
  size_t operator[](size_t axis) const { return sizes_[axis]; }
  size_t& operator[](size_t axis) { return sizes_[axis]; }
  // The i-th axis from the end: back(0) is the contiguous one. REQUIRES: i < rank().
  size_t back(size_t i = 0) const { return sizes_[rank_ - 1 - i]; }

  // Number of elements; a rank-0 shape has one.
  size_t elements() const { return product(0, rank_); }
  // Product of the sizes of the axes [first, last).
  size_t product(size_t first, size_t last) const {
    size_t n = 1;
    for (size_t i = first; i < last; ++i) n *= sizes_[i];
    return n;
  }

  void push_back(size_t size) {
    if (rank_ == kMaxRank) fail("a tensor has at most {} axes", kMaxRank);
    sizes_[rank_++] = size;
  }

  std::span<const size_t> sizes() const { return {sizes_.data(), rank_}; }
  const size_t* begin() const { return sizes_.data(); }
  const size_t* end() const { return sizes_.data() + rank_; }
  bool operator==(const Shape& other) const {
    if (rank_ != other.rank_) return false;
    for (size_t i = 0; i < rank_; ++i) {
      if (sizes_[i] != other.sizes_[i]) return false;
    }
    return true;
  }

 private:
  std::array<size_t, kMaxRank> sizes_{};
  size_t rank_ = 0;
};

// "[2, 3]", for messages.
inline std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.rank(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

// The shape that a and b broadcast to (numpy's rule: aligned at the last axis, sizes equal or 1).
Shape broadcast(const Shape& a, const Shape& b);

}  // namespace storytape
