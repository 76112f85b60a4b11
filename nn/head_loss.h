// The language-model head and its cross-entropy as one op: logits are made, reduced and turned into gradients
// a tile of rows at a time, so no [rows, V] array of all rows ever exists.
//
//   forward:  (H1) l_r = h_r·Eᵀ + b          logits of row r; E is the (tied) embedding table [V, D]
//             (H2) loss = scale · Σ_r (log Σ_v exp l_rv − l_r,target)
//   backward: (H3) dl_rv = scale · (softmax(l_r)_v − [v = target_r])
//             (H4) dh = dl·E    (H5) dE += dlᵀ·h    (H6) db += Σ_r dl_r
//
// A tile's dl is at hand in the forward pass, while nothing needs the logits later: (H3) to (H6) are formed
// there for dL/dloss = 1 and scaled by dL/dloss in backward. Rows whose target is `kIgnoreTarget` count as
// absent. A row of -inf alone has loss +inf and no gradient.
#pragma once

#include <cstdint>
#include <vector>

#include "autograd/ops_loss.h"
#include "autograd/tape.h"

namespace storytape {

// h [rows, D], table [V, D], bias [V] or undefined, targets [rows] → loss [1]. A target that is neither in
// [0, V) nor kIgnoreTarget is an Error that names its position.
template <class T>
Var<T> head_loss(Var<T> h, Var<T> table, Var<T> bias, std::span<const int32_t> targets, T scale);

// The loss of each row in nats (0 where ignored), without gradients, for evaluation; sums are the caller's.
template <class T>
std::vector<double> head_losses(const Tensor<T>& h, const Parameter<T>& table, const Parameter<T>* bias,
                                std::span<const int32_t> targets);

}  // namespace storytape
