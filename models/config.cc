#include "models/config.h"

#include <algorithm>
#include <cctype>
#include <cmath>

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

const std::vector<std::string>& mixer_names() {
  static const std::vector<std::string> names = {"full", "linear"};
  return names;
}

void ModelConfig::check() const {
  const auto positive = [](const char* name, size_t value) {
    if (value == 0 || value > kLargest) fail("model: {} must be in 1..{}, got {}", name, kLargest, value);
  };
  positive("vocab", vocab);
  positive("dim", dim);
  positive("heads", heads);
  positive("ffn", ffn);
  positive("max_seq", max_seq);
  if (pattern.empty())
    fail("model: the layer pattern is empty; it wants at least one of {}", list(mixer_names()));
  if (layers() > 10000) fail("model: {} layers; at most 10000 are supported", layers());
  for (const std::string& name : pattern) {
    if (std::find(mixer_names().begin(), mixer_names().end(), name) == mixer_names().end()) {
      fail("model: unknown mixer \"{}\"; there are {}", name, list(mixer_names()));
    }
  }
  if (dim % heads != 0) fail("model: dim {} is not divisible by {} heads", dim, heads);
  if (gelu != "erf" && gelu != "tanh") fail("model: gelu is \"erf\" or \"tanh\", got \"{}\"", gelu);
  if (!(linear_eps >= 0) || !std::isfinite(linear_eps))
    fail("model: linear_eps must be at least 0, got {}", linear_eps);
  const double weights =
      static_cast<double>(vocab) * static_cast<double>(dim) +
      static_cast<double>(layers()) * static_cast<double>(dim) * static_cast<double>(dim + ffn);
  if (weights > 1e11) fail("model: about {:.0f} weights; at most 1e11 are supported", weights);
}

nlohmann::json to_json(const ModelConfig& c) {
  return {{"vocab", c.vocab},     {"dim", c.dim},
          {"heads", c.heads},     {"ffn", c.ffn},
          {"max_seq", c.max_seq}, {"pattern", c.pattern},
          {"bias", c.bias},       {"head_bias", c.head_bias},
          {"gelu", c.gelu},       {"linear_eps", c.linear_eps}};
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
  if (!member("gelu").is_string()) fail("{}: \"model.gelu\" wants a string", what);
  config.gelu = json["gelu"].get<std::string>();
  if (!member("linear_eps").is_number()) fail("{}: \"model.linear_eps\" wants a number", what);
  config.linear_eps = json["linear_eps"].get<double>();
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
  const std::string original(text);
  if (!text.empty() && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string name;
    for (const char c : text.substr(begin, end - begin)) {
      if (c != ' ') name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    if (name == "l") name = "linear";
    if (name == "f") name = "full";
    if (std::find(mixer_names().begin(), mixer_names().end(), name) == mixer_names().end()) {
      fail_usage("pattern \"{}\": unknown mixer \"{}\"; there are {} (L and F for short)", original, name,
                 list(mixer_names()));
    }
    names.push_back(name);
    begin = end + 1;
  }
  if (names.size() > layers) {
    fail_usage("pattern \"{}\" has {} entries, the model {} layers", original, names.size(), layers);
  }
  std::vector<std::string> pattern(layers);
  for (size_t i = 0; i < layers; ++i) pattern[i] = names[i % names.size()];
  return pattern;
}

std::string pattern_text(const std::vector<std::string>& pattern) {
  if (std::all_of(pattern.begin(), pattern.end(), [&](const auto& name) { return name == pattern[0]; })) {
    return pattern.empty() ? "" : pattern[0];
  }
  return fmt::format("{}", fmt::join(pattern, ","));
}

double training_flops_per_token(const ModelConfig& c, size_t context) {
  const double d = static_cast<double>(c.dim);
  const double products = static_cast<double>(c.layers()) * (4 * d * d + 2 * d * static_cast<double>(c.ffn)) +
                          d * static_cast<double>(c.vocab);
  const auto softmax_layers = static_cast<double>(std::count(c.pattern.begin(), c.pattern.end(), "full"));
  return 6 * products + 6 * softmax_layers * static_cast<double>(context) * d;
}

}  // namespace storytape
