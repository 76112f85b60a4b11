// The rotary embedding as attention layers use it: by position, with a table of angles that is made once.
#pragma once

#include <memory>
#include <mutex>

#include "nn/rope.h"

namespace storytape {

// An Error, which begins with the layer's name, for an odd width, one over the head's, or a base that isn't positive.
// width 0: no rotation.
void check_rotation(const char* layer, size_t head_dim, size_t width, double base);

template <class T>
class Rotation {
 public:
  // Of the first `width` channels of a head; 0: of none. REQUIRES: check_rotation.
  Rotation(size_t width, double base, RopePairs pairs) : width_(width), base_(base), pairs_(pairs) {}

  // x [B, T, H, d], token t at position offset + t. Safe from several threads.
  Var<T> operator()(Var<T> x, size_t offset) const;

 private:
  // Angles of positions [0, count) at least; made for twice as many as were wanted.
  std::shared_ptr<const RopeTable<T>> table(size_t count) const;

  size_t width_;
  double base_;
  RopePairs pairs_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const RopeTable<T>> table_;
};

}  // namespace storytape
