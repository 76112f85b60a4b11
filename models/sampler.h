// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/random.h"

namespace storytape {

struct SamplerOptions {
  double temperature =
      0.8;  // ≥ 0 and finite; 0 is greedy: the largest logit, lowest id first, nothing else applies
  int64_t top_k = 0;   // ≥ 0; keeps the k largest; 0 or ≥ vocabulary: off
  double top_p = 1.0;  // in [0, 1]; keeps the smallest set whose probability reaches p (at least one); 1: off
  double min_p = 0.0;  // in [0, 1]; keeps what has at least min_p times the largest probability; 0: off
  double repetition_penalty =
      1.0;  // > 0; logits of tokens seen before are divided by it (multiplied where negative)

  // A UsageError names the first option that is out of range.
  void check() const;
};

struct Candidate {
  int32_t id;
  double probability;
};

// What can be drawn, most probable first (equal ones by id), probabilities summing to 1, after, in this
// order: repetition penalty, temperature, top-k, top-p, min-p, softmax. A logit of -inf is never drawn; NaN
// or +inf, or no finite logit at all, is an Error. `history` are the tokens seen before.
std::vector<Candidate> distribution(std::span<const float> logits, std::span<const int32_t> history,
                                    const SamplerOptions& options);

// Draws by the options; takes one number from `random` unless greedy.
int32_t sample(std::span<const float> logits, std::span<const int32_t> history, const SamplerOptions& options,
               Random& random);

}  // namespace storytape
