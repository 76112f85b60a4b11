#include "nn/layers/rotation.h"

#include <algorithm>
#include <cmath>

namespace storytape {
namespace {

// Further out, angles are computed for each call alone: a table of all positions would be larger than what is cached.
constexpr size_t kMostRows = 1 << 16;
constexpr size_t kFewestRows = 64;

}  // namespace

void check_rotation(const char* layer, size_t head_dim, size_t width, double base) {
  if (width == 0) return;
  if (width % 2 != 0) {
    fail("{}: {} rotated channels, and a rotation turns pairs of them: wanted an even number", layer, width);
  }
  if (width > head_dim) fail("{}: {} rotated channels, but the head has {}", layer, width, head_dim);
  if (!(base > 0) || std::isinf(base))
    fail("{}: the rotation's base is {}, wanted a positive number", layer, base);
}

template <class T>
std::shared_ptr<const RopeTable<T>> Rotation<T>::table(size_t count) const {
  const std::lock_guard lock(mutex_);
  if (!table_ || table_->count() < count) {
    const size_t rows = std::max(kFewestRows, std::min(2 * count, kMostRows));
    table_ = std::make_shared<const RopeTable<T>>(width_, 0, rows, base_, pairs_);
  }
  return table_;
}

template <class T>
Var<T> Rotation<T>::operator()(Var<T> x, size_t offset) const {
  if (width_ == 0) return x;
  const size_t end = offset + x.shape()[1];
  if (end <= kMostRows) return rope(x, *table(end), offset);
  return rope(x, RopeOptions{width_, base_, offset, pairs_});
}

template class Rotation<float>;
template class Rotation<double>;

}  // namespace storytape
