// What a language model is made of, and the StoryLM presets.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace storytape {

// A pre-norm transformer whose blocks mix the sequence by one of the mixers each:
//   x = tok[id] + pos[t];  per block: x += mixer(norm(x)); x += mlp(norm(x));  logits = norm(x)·tokᵀ + head
//   bias
struct ModelConfig {
  size_t vocab = 4096;
  size_t dim = 128;
  size_t heads = 4;
  size_t ffn = 512;
  size_t max_seq = 256;              // rows of the position table: the longest context
  std::vector<std::string> pattern;  // the mixer of each block: "full" or "linear"
  bool bias = true;                  // of the linear maps in mixers and MLP
  bool head_bias = true;             // of the logits
  std::string gelu = "erf";          // or "tanh"
  double linear_eps = 1e-6;          // added to the normaliser of "linear"

  size_t layers() const { return pattern.size(); }
  size_t head_dim() const { return dim / heads; }
  // An Error names the first member that is out of range or does not fit another.
  void check() const;
  bool operator==(const ModelConfig&) const = default;
};

// The member "model" of a run's config.json. from_json refuses unknown, missing and mistyped members, naming
// them.
nlohmann::json to_json(const ModelConfig& config);
ModelConfig model_config_from_json(const nlohmann::json& json, const std::string& what);

// "storylm-1m", "storylm-5m", "storylm-30m" (facts of the course's StoryLM; all blocks "full").
std::vector<std::string> preset_names();
// The preset of that name; a UsageError names what there is.
ModelConfig preset(std::string_view name);

// Names of the mixers a pattern may use.
const std::vector<std::string>& mixer_names();
// A pattern over `layers` blocks from "full", "linear,linear,linear,full" or "[L,L,L,F]" (any case; L and F
// for short); a shorter one repeats, as [L,L,L,F] over six blocks is LLLFLL. A UsageError for unknown names,
// an empty pattern or one longer than the model.
std::vector<std::string> parse_pattern(std::string_view text, size_t layers);
// "linear,linear,linear,full"; one name alone where all blocks have it.
std::string pattern_text(const std::vector<std::string>& pattern);

// Training FLOPs per token by the project's count (design: 6 × weights used in matrix products, the tied head
// counted once, + 6 × T × D for each softmax layer: the causal half). Recomputation does not count.
double training_flops_per_token(const ModelConfig& config, size_t context);

}  // namespace storytape
