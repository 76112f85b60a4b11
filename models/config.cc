#include "models/config.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "models/layers.h"
#include "models/pattern.h"
#include "tensor/error.h"

namespace storytape {
namespace {

struct Preset {
  const char* name;
  size_t dim, layers, heads, ffn;
};
constexpr Preset kPresets[] = {
    {"storylm-1m", 128, 4, 4, 512},
    {"storylm-5m", 256, 6, 8, 1024},
    {"storylm-30m", 512, 9, 8, 2048},
};

std::string list(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

// Sizes beyond this are refused before anything is allocated.
constexpr size_t kLargest = size_t{1} << 24;

}  // namespace

void ModelConfig::check() const {
  const auto positive = [](const char* name, size_t value) {
    if (value == 0 || value > kLargest) fail("model: {} must be in 1..{}, got {}", name, kLargest, value);
  };
  positive("vocab", vocab);
  positive("dim", dim);
  positive("heads", heads);
  positive("ffn", ffn);
  positive("max_seq", max_seq);
  if (pattern.empty()) fail("model: the layer pattern is empty");
  if (layers() > 10000) fail("model: {} layers; at most 10000 are supported", layers());
  if (block != "course" && block != "modern")
    fail("model: block is \"course\" or \"modern\", got \"{}\"", block);
  if (positions != "learned" && positions != "rope" && positions != "none") {
    fail("model: positions are \"learned\", \"rope\" or \"none\", got \"{}\"", positions);
  }
  if (!(norm_eps > 0) || !std::isfinite(norm_eps)) fail("model: norm_eps must be positive, got {}", norm_eps);
  if (!std::isfinite(norm_offset)) fail("model: norm_offset must be a number, got {}", norm_offset);
  if (gelu != "erf" && gelu != "tanh") fail("model: gelu is \"erf\" or \"tanh\", got \"{}\"", gelu);
  if (!(linear_eps >= 0) || !std::isfinite(linear_eps))
    fail("model: linear_eps must be at least 0, got {}", linear_eps);
  const double weights =
      static_cast<double>(vocab) * static_cast<double>(dim) +
      static_cast<double>(layers()) * static_cast<double>(dim) * static_cast<double>(dim + ffn);
  if (weights > 1e11) fail("model: about {:.0f} weights; at most 1e11 are supported", weights);
  for (size_t i = 0; i < layers(); ++i) {
    // A kind that has passed passes again.
    if (std::find(pattern.begin(), pattern.begin() + static_cast<ptrdiff_t>(i), pattern[i]) ==
        pattern.begin() + static_cast<ptrdiff_t>(i)) {
      check_layer(parse_layer(pattern[i]), *this);
    }
  }
}

nlohmann::json to_json(const ModelConfig& c) {
  return {{"vocab", c.vocab},
          {"dim", c.dim},
          {"heads", c.heads},
          {"ffn", c.ffn},
          {"max_seq", c.max_seq},
          {"pattern", c.pattern},
          {"bias", c.bias},
          {"head_bias", c.head_bias},
          {"gelu", c.gelu},
          {"linear_eps", c.linear_eps},
          {"block", c.block},
          {"positions", c.positions},
          {"tied", c.tied},
          {"norm_eps", c.norm_eps},
          {"norm_offset", c.norm_offset}};
}

ModelConfig model_config_from_json(const nlohmann::json& json, const std::string& what) {
  if (!json.is_object()) fail("{}: \"model\" wants an object", what);
  ModelConfig config;
  const nlohmann::json known = to_json(config);
  for (const auto& [key, value] : json.items()) {
    if (!known.contains(key)) fail("{}: unknown member \"model.{}\"", what, key);
  }
  const auto member = [&](const char* name) -> const nlohmann::json& {
    if (!json.contains(name)) fail("{}: member \"model.{}\" is missing", what, name);
    return json[name];
  };
  const auto size = [&](const char* name) {
    const nlohmann::json& value = member(name);
    if (!value.is_number_unsigned())
      fail("{}: \"model.{}\" wants a whole number, got {}", what, name, value.dump());
    return value.get<size_t>();
  };
  const auto flag = [&](const char* name) {
    const nlohmann::json& value = member(name);
    if (!value.is_boolean()) fail("{}: \"model.{}\" wants true or false, got {}", what, name, value.dump());
    return value.get<bool>();
  };
  config.vocab = size("vocab");
  config.dim = size("dim");
  config.heads = size("heads");
  config.ffn = size("ffn");
  config.max_seq = size("max_seq");
  config.bias = flag("bias");
  config.head_bias = flag("head_bias");
  const auto text = [&](const char* name) {
    if (!member(name).is_string()) fail("{}: \"model.{}\" wants a string", what, name);
    return json[name].get<std::string>();
  };
  const auto number = [&](const char* name) {
    if (!member(name).is_number()) fail("{}: \"model.{}\" wants a number", what, name);
    return json[name].get<double>();
  };
  config.gelu = text("gelu");
  config.linear_eps = number("linear_eps");
  // Runs of versions that had the course's block alone don't name these.
  if (json.contains("block")) config.block = text("block");
  if (json.contains("positions")) config.positions = text("positions");
  if (json.contains("tied")) config.tied = flag("tied");
  if (json.contains("norm_eps")) config.norm_eps = number("norm_eps");
  if (json.contains("norm_offset")) config.norm_offset = number("norm_offset");
  const nlohmann::json& pattern = member("pattern");
  if (!pattern.is_array()) fail("{}: \"model.pattern\" wants a list of mixers", what);
  for (const nlohmann::json& entry : pattern) {
    if (!entry.is_string()) fail("{}: \"model.pattern\" wants names, got {}", what, entry.dump());
    config.pattern.push_back(entry.get<std::string>());
  }
  try {
    config.check();
  } catch (const Error& error) {
    fail("{}: {}", what, error.what());
  }
  return config;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& p : kPresets) names.push_back(p.name);
  return names;
}

ModelConfig preset(std::string_view name) {
  for (const Preset& p : kPresets) {
    if (name != p.name) continue;
    ModelConfig config;
    config.dim = p.dim;
    config.heads = p.heads;
    config.ffn = p.ffn;
    config.pattern.assign(p.layers, "full");
    return config;
  }
  fail_usage("unknown model \"{}\"; there are {}", name, list(preset_names()));
}

std::vector<std::string> parse_pattern(std::string_view text, size_t layers) {
  const std::vector<LayerSpec> entries = parse_layers(text);
  if (entries.size() > layers) {
    fail_usage("pattern \"{}\" has {} entries, the model {} layers", text, entries.size(), layers);
  }
  std::vector<std::string> pattern(layers);
  for (size_t i = 0; i < layers; ++i) pattern[i] = entries[i % entries.size()].text();
  return pattern;
}

std::string pattern_text(const std::vector<std::string>& pattern) {
  if (std::all_of(pattern.begin(), pattern.end(), [&](const auto& name) { return name == pattern[0]; })) {
    return pattern.empty() ? "" : pattern[0];
  }
  return fmt::format("{}", fmt::join(pattern, ","));
}

double training_flops_per_token(const ModelConfig& c, size_t context) {
  const double d = static_cast<double>(c.dim),
               mlp = (c.block == "modern" ? 3 : 2) * d * static_cast<double>(c.ffn);
  double products = static_cast<double>(c.layers()) * mlp + d * static_cast<double>(c.vocab);
  double scores = 0;
  for (const std::string& text : c.pattern) {
    const LayerWork work = layer_work(parse_layer(text), c, context);
    products += work.matrix_weights;
    scores += work.score_flops;
  }
  return 6 * products + scores;
}

}  // namespace storytape
