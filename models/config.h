// What a language model is made of, and the StoryLM presets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace storytape {

// A residual model whose blocks mix the sequence by one of the layers each:
//   x = tok[id] (+ pos[t]);  per block: x += mixer(norm(x)); x += mlp(norm(x));  logits = norm(x) W_head (+ head bias)
// The course's block has layer norms and a GELU MLP with biases; the modern one RMS norms and SwiGLU, (silu(x W_gate) ⊙
// (x W_up)) W_down, without biases. A layer with the option norm=output has its block's norms behind mixer and MLP, as
// OLMo's attention blocks do: x += norm(mixer(x)); x += norm(mlp(x)).
struct ModelConfig {
  size_t vocab = 4096;
  size_t dim = 128;
  size_t heads = 4;
  size_t ffn = 512;
  size_t max_seq = 256;  // rows of the position table, where there is one: the longest context
  std::vector<std::string>
      pattern;                   // the layer of each block, as LayerSpec::text writes it (models/pattern.h)
  bool bias = true;              // of the linear maps in mixers and MLP
  bool head_bias = true;         // of the logits
  std::string gelu = "erf";      // or "tanh"
  double linear_eps = 1e-6;      // added to the normaliser of "linear"
  std::string block = "course";  // or "modern"
  std::string positions = "learned";  // a table; or "rope": attention layers rotate; or "none"
  bool tied = true;                   // W_head = tokᵀ, else a matrix of its own
  double norm_eps = 1e-5;             // of the blocks' norms
  double norm_offset = 0;  // modern: norms multiply by offset + weight; 1: weights are zero-centred

  size_t layers() const { return pattern.size(); }
  size_t head_dim() const { return dim / heads; }
  // Tokens that a sequence may have: the position table's rows, or any number without one.
  size_t context_limit() const { return positions == "learned" ? max_seq : SIZE_MAX; }
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

// A pattern over `layers` blocks (parse_layers of models/pattern.h: "full", "[L,L,L,F]", "3*gla:rank=8,full"); a
// shorter one repeats, as [L,L,L,F] over six blocks is LLLFLL. A UsageError for what can't be read, an empty pattern or
// one longer than the model.
std::vector<std::string> parse_pattern(std::string_view text, size_t layers);
// "linear,linear,linear,full"; one entry alone where all blocks have it.
std::string pattern_text(const std::vector<std::string>& pattern);

// Training FLOPs per token by the project's count (design: 6 × weights used in matrix products, the tied head
// counted once, + 6 × T × D for each softmax layer: the causal half). Recomputation does not count.
double training_flops_per_token(const ModelConfig& config, size_t context);

}  // namespace storytape
