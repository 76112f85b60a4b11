// What the golden cases of all mixers share: the order of axes, the faces, and decoding.
#pragma once

#include "nn/mixers/face.h"
#include "tensor/index.h"
#include "train/verify_operations_run.h"

namespace storytape {

// [B, H, T, d] → [B, T, H, d], and back.
template <class T>
Var<T> tokens_first(Var<T> x) {
  return transpose(x, {0, 2, 1, 3});
}
template <class T>
Tensor<T> tokens_first(const Tensor<T>& x) {
  constexpr size_t kSwap[] = {0, 2, 1, 3};
  return transpose(x, std::span<const size_t>(kSwap));
}

struct FaceOf {
  const char* name;
  Face face;
  size_t chunk;  // 0: the default
};
constexpr FaceOf kFaces[] = {{"recurrent", Face::kRecurrent, 0},
                             {"parallel", Face::kParallel, 0},
                             {"chunkwise", Face::kChunkwise, 0},
                             {"chunkwise, chunks of 7", Face::kChunkwise, 7}};

// o by a state that is carried on: the first half of the tokens at once, the rest one by one.
// extend(first, last) → [B, last - first, H, dv]; returns [B, H, T, dv].
template <class T, class Extend>
Tensor<T> decoded(size_t tokens, Extend extend) {
  std::vector<Tensor<T>> parts;
  if (tokens / 2) parts.push_back(extend(size_t{0}, tokens / 2));
  for (size_t t = tokens / 2; t < tokens; ++t) parts.push_back(extend(t, t + 1));
  return tokens_first(concat(std::span<const Tensor<T>>(parts), 1));
}

}  // namespace storytape
