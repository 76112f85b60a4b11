// Losses of logits against token ids.
#pragma once

#include <cstdint>
#include <span>

#include "autograd/tape.h"

namespace storytape {

// Targets that count for nothing, as PyTorch numbers them.
inline constexpr int32_t kIgnoreTarget = -100;

// Mean of -log softmax(logits)[target] in nats over the rows whose target isn't `ignore`; a single value. If
// every row is ignored the loss and its gradient are 0. logits [..., classes], one target for each row, in
// [0, classes); another one is an Error that names its position. Safe for logits of any finite size; -inf
// masks a class out. A row with every class masked out has loss +inf and no gradient.
template <class T>
Var<T> cross_entropy(Var<T> logits, std::span<const int32_t> targets, int32_t ignore = kIgnoreTarget);

extern template Var<float> cross_entropy(Var<float>, std::span<const int32_t>, int32_t);
extern template Var<double> cross_entropy(Var<double>, std::span<const int32_t>, int32_t);

}  // namespace storytape
