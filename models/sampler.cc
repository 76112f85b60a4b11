#include "models/sampler.h"

#include <algorithm>
#include <cmath>

#include "tensor/error.h"

namespace storytape {

void SamplerOptions::check() const {
  if (!(temperature >= 0) || !std::isfinite(temperature)) {
    fail_usage("temperature must be at least 0 and finite, got {}", temperature);
  }
  if (top_k < 0) fail_usage("top-k must be at least 0 (0: off), got {}", top_k);
  if (!(top_p >= 0 && top_p <= 1)) fail_usage("top-p must be in [0, 1], got {}", top_p);
  if (!(min_p >= 0 && min_p <= 1)) fail_usage("min-p must be in [0, 1], got {}", min_p);
  if (!(repetition_penalty > 0) || !std::isfinite(repetition_penalty)) {
    fail_usage("repetition penalty must be above 0 and finite, got {}", repetition_penalty);
  }
}

std::vector<Candidate> distribution(std::span<const float> logits, std::span<const int32_t> history,
                                    const SamplerOptions& options) {
  options.check();
  // In the first steps `probability` holds a logit.
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    const double logit = static_cast<double>(logits[i]);
    if (std::isnan(logit) || logit == INFINITY) fail("the logit of token {} is {}", i, logit);
    candidates.push_back({static_cast<int32_t>(i), logit});
  }
  if (options.temperature > 0 && options.repetition_penalty != 1) {
    std::vector<bool> seen(logits.size(), false);
    for (const int32_t id : history) {
      if (id >= 0 && static_cast<size_t>(id) < seen.size()) seen[static_cast<size_t>(id)] = true;
    }
    for (Candidate& c : candidates) {
      if (!seen[static_cast<size_t>(c.id)]) continue;
      c.probability *= c.probability > 0 ? 1 / options.repetition_penalty : options.repetition_penalty;
    }
  }
  std::erase_if(candidates, [](const Candidate& c) { return c.probability == -INFINITY; });
  if (candidates.empty()) fail("no token can be drawn: every logit is -inf");

  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.probability > b.probability || (a.probability == b.probability && a.id < b.id);
  };
  if (options.temperature == 0) {
    return {{std::min_element(candidates.begin(), candidates.end(), better)->id, 1.0}};
  }
  if (options.top_k > 0 && static_cast<uint64_t>(options.top_k) < candidates.size()) {
    const auto k = candidates.begin() + options.top_k;
    std::nth_element(candidates.begin(), k - 1, candidates.end(), better);
    candidates.erase(k, candidates.end());
  }
  std::sort(candidates.begin(), candidates.end(), better);

  // Softmax of the logits over the temperature, the largest taken off first: no scaled logit can overflow.
  const auto normalise = [&] {
    double sum = 0;
    for (const Candidate& c : candidates) sum += c.probability;
    for (Candidate& c : candidates) c.probability /= sum;
  };
  const double top = candidates.front().probability;
  for (Candidate& c : candidates) c.probability = std::exp((c.probability - top) / options.temperature);
  normalise();
  if (options.top_p < 1) {
    // Probabilities are rounded; a sum that should reach p exactly may miss it by a few units in the last
    // place.
    constexpr double kRounding = 1e-12;
    double sum = 0;
    size_t keep = 0;
    do {
      sum += candidates[keep++].probability;
    } while (keep < candidates.size() && sum < options.top_p - kRounding);
    candidates.resize(keep);
    normalise();
  }
  if (options.min_p > 0) {
    const double least = options.min_p * candidates.front().probability;
    std::erase_if(candidates, [&](const Candidate& c) { return c.probability < least; });
    normalise();
  }
  return candidates;
}

int32_t sample(std::span<const float> logits, std::span<const int32_t> history, const SamplerOptions& options,
               Random& random) {
  const std::vector<Candidate> candidates = distribution(logits, history, options);
  if (options.temperature == 0) return candidates.front().id;
  double left = random.uniform();
  for (const Candidate& c : candidates) {
    left -= c.probability;
    if (left < 0) return c.id;
  }
  // The sum ended a rounding below 1: the last that can be drawn.
  for (size_t i = candidates.size(); i-- > 0;) {
    if (candidates[i].probability > 0) return candidates[i].id;
  }
  return candidates.front().id;
}

}  // namespace storytape
