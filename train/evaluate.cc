#include "train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace storytape {

double Evaluation::perplexity() const {
  return std::exp(loss());
}

double Evaluation::bits_per_byte() const {
  return bytes ? nats / std::numbers::ln2 / static_cast<double>(bytes) : 0;
}

Evaluation evaluate(const HybridLM<float>& model, const TokenStream& stream, const Tokenizer& tokenizer,
                    size_t context, size_t windows, ThreadPool& pool) {
  const EvalWindows all(stream, context);
  const size_t count = windows == 0 ? all.size() : std::min(windows, all.size());
  std::vector<double> nats(count);
  std::vector<uint64_t> bytes(count);
  const auto chosen = [&](size_t i) { return all[i * all.size() / count]; };
  pool.parallel_for(count, [&](size_t i) {
    const EvalWindows::Window window = chosen(i);
    std::vector<int32_t> x(window.targets), y(window.targets);
    all.window(i * all.size() / count, x, y);
    Tape<float> tape;
    for (const double loss : model.token_losses(tape, x, y, 1, window.targets)) nats[i] += loss;
    bytes[i] = text_bytes(stream, tokenizer, window.begin + 1, window.begin + 1 + window.targets);
  });
  Evaluation result;
  for (size_t i = 0; i < count; ++i) {
    result.nats += nats[i];
    result.bytes += bytes[i];
    result.tokens += chosen(i).targets;
  }
  return result;
}

}  // namespace storytape
