// Token and position embeddings.
#pragma once

#include <cstdint>
#include <span>

#include "autograd/tape.h"

namespace storytape {

// y[b, t] = table[tokens[b·T + t]] + positions[offset + t]:  table [V, D], positions [P, D] or undefined for 0 → [B, T, D].
// Rows of a token that occurs several times add up in the gradient. A token outside [0, V) is an Error that
// names its position; so is a context that reaches past P.
template <class T>
Var<T> embed(Var<T> table, Var<T> positions, std::span<const int32_t> tokens, size_t batch, size_t length,
             size_t offset = 0);

// The values alone.
template <class T>
Tensor<T> embed_values(const Tensor<T>& table, const Tensor<T>& positions, std::span<const int32_t> tokens,
                       size_t batch, size_t length, size_t offset);

}  // namespace storytape
