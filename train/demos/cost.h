// What a token mixer costs, counted in the recurrences that define it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace storytape {

// Multiplications of one head of size `dim` over `length` tokens.
//
// Softmax attention: scores and their sum over values. `causal`: the half of the pairs that is needed, as our
// definition visits it, L (L + 1) d; else all pairs, 2 L² d, as the chapter counts.
uint64_t softmax_multiplications(size_t length, size_t dim, bool causal);
// Linear attention without normaliser: write and read of the state, 2 L d².
uint64_t linear_multiplications(size_t length, size_t dim);
// DeltaProduct with `steps` writes per token, without its read: L n_h (2 d² + d).
uint64_t delta_product_multiplications(size_t length, size_t dim, size_t steps);

// The first of the lengths from which on `a` costs at least as much as `b`; nothing if there is none among them.
std::optional<size_t> crossover(std::span<const size_t> lengths, std::span<const uint64_t> a,
                                std::span<const uint64_t> b);

}  // namespace storytape
