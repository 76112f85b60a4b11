// The row kernel of head_loss: see head_loss.h for the equations.
#pragma once

#include <cstddef>
#include <cstdint>

namespace storytape {

// What happens to one tile of logits.
template <class T>
struct HeadTile {
  size_t rows;
  size_t vocab;
  T* logits;  // [rows × vocab], rows ld apart: in h·Eᵀ, out dl where `gradient`
  size_t ld;
  const T* bias;           // [vocab] or null
  const int32_t* targets;  // [rows]
  T scale;
  bool gradient;
  T* db;  // [vocab] added to, or null
  // [rows]: log-sum-exp minus the target's logit, not scaled; 0 where ignored; +inf, with dl = 0, where every
  // logit is -inf
  double* loss;
};

template <class T>
void head_tile(const HeadTile<T>& tile);

}  // namespace storytape
