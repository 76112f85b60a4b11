// Text generation, token by token, from a KV cache or recurrent state.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "models/hybrid_lm.h"
#include "models/sampler.h"

namespace storytape {

struct GenerateOptions {
  size_t tokens = 120;          // most tokens to draw
  std::optional<int32_t> stop;  // drawing this token ends the text; it is not given out
  SamplerOptions sampler;
  uint64_t seed = 0;
};

enum class StoppedBy { kEndOfText, kTokens, kCaller };

struct GenerateResult {
  StoppedBy stopped_by = StoppedBy::kTokens;
  size_t tokens = 0;           // drawn and given out
  bool context_moved = false;  // the position table was full at some time; see below
};

// Feeds `prompt` (at least one token) and draws. Each drawn token goes to `give`; if that returns false the
// text ends. The position table holds max_seq tokens: of a longer prompt the last max_seq are used, and when
// it is full while drawing, the last half of them is read in again from position 0, so a text of any length
// takes the same memory.
GenerateResult generate(const HybridLM<float>& model, std::span<const int32_t> prompt,
                        const GenerateOptions& options, const std::function<bool(int32_t)>& give);

}  // namespace storytape
