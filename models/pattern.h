// Layer patterns as text: "full", "[L,L,L,F]", "3*gated_deltanet:heads=4,full", "window:size=64,kv_heads=2,gla".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace storytape {

// One block's mixer with its options. An option that is not given has the default of its kind.
struct LayerSpec {
  std::string kind;
  std::vector<std::pair<std::string, std::string>> options;  // in the order of the kind's table, each once

  // "gated_deltanet:heads=4,conv=4"
  std::string text() const;
  // The value given for an option, or null.
  const std::string* find(std::string_view option) const;
  bool operator==(const LayerSpec&) const = default;
};

// An option of a kind of layer.
struct LayerOption {
  enum class Type { kSize, kNumber, kFlag, kChoice };
  std::string name;
  Type type;
  std::string about;
  double low = 0, high = 0;               // of sizes and numbers
  std::vector<std::string> choices = {};  // of kChoice
};

// A kind of layer that patterns can name.
struct LayerKind {
  std::string name;
  std::string about;
  std::vector<LayerOption> options;
};

// All kinds, in the order of help texts (models/layers.cc).
const std::vector<LayerKind>& layer_kinds();

// Their names, "full, linear, ...".
std::string layer_names();

// One spec per entry of the text. Entries are separated by commas, an entry's options by commas too (what has a "=" and
// no ":" belongs to the entry before); N*entry repeats it; brackets around the whole and spaces are allowed; L and F
// stand for linear and full. A UsageError says which part can't be read and what there is, with the nearest known name.
std::vector<LayerSpec> parse_layers(std::string_view text);
// One entry, as LayerSpec::text writes it.
LayerSpec parse_layer(std::string_view text);

}  // namespace storytape
