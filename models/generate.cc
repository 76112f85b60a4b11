#include "models/generate.h"

#include <algorithm>

namespace storytape {

GenerateResult generate(const HybridLM<float>& model, std::span<const int32_t> prompt,
                        const GenerateOptions& options, const std::function<bool(int32_t)>& give) {
  options.sampler.check();
  if (prompt.empty()) fail("a prompt wants at least one token");
  const size_t capacity = model.config().context_limit();
  GenerateResult result;
  std::vector<int32_t> history(prompt.begin(), prompt.end());
  const auto last = [&](size_t n) {
    return std::span<const int32_t>(history).last(std::min(n, history.size()));
  };
  result.context_moved = prompt.size() > capacity;

  Random random(options.seed, /*stream=*/0x67656e);
  LMState<float> state = model.init_state();
  std::span<const int32_t> feed = last(capacity);
  while (result.tokens < options.tokens) {
    if (state.length + feed.size() > capacity) {
      state = model.init_state();
      feed = last(std::max<size_t>(1, capacity / 2));
      result.context_moved = true;
    }
    const Tensor<float> logits = model.extend(state, feed);
    const int32_t id = sample(logits.values(), history, options.sampler, random);
    if (options.stop && id == *options.stop) {
      result.stopped_by = StoppedBy::kEndOfText;
      break;
    }
    history.push_back(id);
    feed = last(1);
    ++result.tokens;
    if (!give(id)) {
      result.stopped_by = StoppedBy::kCaller;
      break;
    }
  }
  return result;
}

}  // namespace storytape
