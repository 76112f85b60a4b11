// Loss on held-out text.
#pragma once

#include "models/hybrid_lm.h"
#include "tensor/threads.h"
#include "train/dataset.h"

namespace storytape {

struct Evaluation {
  double nats = 0;      // summed over the scored tokens
  uint64_t tokens = 0;  // scored
  uint64_t bytes = 0;   // of the true text that they stand for

  double loss() const { return tokens ? nats / static_cast<double>(tokens) : 0; }
  double perplexity() const;
  double bits_per_byte() const;
};

// Windows of `context` tokens, each token but the stream's first scored once; of `windows` (0: all) evenly
// spread ones. Every token counts alike, however windows are cut into passes or over threads.
Evaluation evaluate(const HybridLM<float>& model, const TokenStream& stream, const Tokenizer& tokenizer,
                    size_t context, size_t windows, ThreadPool& pool);

}  // namespace storytape
