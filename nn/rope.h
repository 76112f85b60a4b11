// Rotary position embedding: pairs of channels turned by an angle that grows with the token's position, so that the
// product of a query and a key depends on their distance alone. Su et al., "RoFormer", 2021. Channel i pairs with
// channel i + w/2, as in GPT-NeoX and Llama, or its neighbour, 2i with 2i + 1, as in RoFormer and DeepSeek's MLA.
//
// One head's row at position p, its first w channels, i < w/2; the channels from w on pass through:
//   (P1) θ_i       = p base^(-2i/w)
//   (P2) y_i       = x_i cos θ_i - x_{i+w/2} sin θ_i
//        y_{i+w/2} = x_{i+w/2} cos θ_i + x_i sin θ_i
// reverse, the rotation by -θ:
//   (P3) dx_i       = dy_i cos θ_i + dy_{i+w/2} sin θ_i
//        dx_{i+w/2} = dy_{i+w/2} cos θ_i - dy_i sin θ_i
//
// With neighbours read 2i for i and 2i + 1 for i + w/2 in (P2) and (P3).
//
// Angles, sines and cosines are computed in double and then rounded: a float knows p θ at p = 1e5 to 1e-2 only.
#pragma once

#include <cstddef>

#include "autograd/tape.h"

namespace storytape {

enum class RopePairs {
  kHalves,      // channels i and i + w/2
  kNeighbours,  // 2i and 2i + 1
};

struct RopeOptions {
  size_t width = 0;  // w, even; 0: the whole head
  double base = 10000;
  size_t offset = 0;  // position of the first token
  RopePairs pairs = RopePairs::kHalves;
};

// cos θ and sin θ of the positions [first, first + count). Made once for a model's longest sequence and given to
// every call, it saves them the sines. An Error for an odd or zero width and for a base that isn't positive.
template <class T>
class RopeTable {
 public:
  RopeTable(size_t width, size_t first, size_t count, double base = 10000,
            RopePairs pairs = RopePairs::kHalves);

  size_t width() const { return 2 * cosines_.size(1); }
  RopePairs pairs() const { return pairs_; }
  size_t first() const { return first_; }
  size_t count() const { return cosines_.size(0); }
  // [count, width/2]
  const Tensor<T>& cosines() const { return cosines_; }
  const Tensor<T>& sines() const { return sines_; }

 private:
  size_t first_;
  RopePairs pairs_;
  Tensor<T> cosines_, sines_;
};

// x [B, T, H, d] → the same shape, token t at position offset + t. An Error if the head is narrower than the
// table's width or a position lies outside the table.
template <class T>
Var<T> rope(Var<T> x, const RopeTable<T>& table, size_t offset = 0);
// Values alone, for decoding.
template <class T>
Tensor<T> rope(const Tensor<T>& x, const RopeTable<T>& table, size_t offset = 0);

// The same with a table for this call alone.
template <class T>
Var<T> rope(Var<T> x, const RopeOptions& options);

}  // namespace storytape
