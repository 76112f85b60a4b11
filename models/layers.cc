#include "models/layers.h"

#include <algorithm>
#include <type_traits>

#include "models/layer_entries.h"
#include "tensor/error.h"

namespace storytape {
namespace {

using layer_entries::Entry;
using layer_entries::Given;

// The course's layers, which have no options.
Entry course_entry(const char* name, const char* about) {
  return layer_entries::entry(
      name, about, {},
      [name]<class T>(const Given&, const ModelConfig& c, ParameterList<T>& parameters,
                      const std::string& where) -> std::unique_ptr<Mixer<T>> {
        return make_mixer<T>(name, {c.dim, c.heads, c.bias, c.linear_eps}, parameters, where);
      });
}

std::vector<Entry> make_entries() {
  std::vector<Entry> all = {
      course_entry("full", "softmax attention as in the course"),
      course_entry("linear", "linear attention with a decay per head, as in the course")};
  for (const auto& more : {layer_entries::attention_entries(), layer_entries::recurrent_entries()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = make_entries();
  return all;
}

const Entry& entry_of(const LayerSpec& spec) {
  for (const Entry& each : entries()) {
    if (each.kind.name == spec.kind) return each;
  }
  fail("unknown mixer \"{}\"", spec.kind);
}

}  // namespace

const std::vector<LayerKind>& layer_kinds() {
  static const std::vector<LayerKind> kinds = [] {
    std::vector<LayerKind> all;
    for (const Entry& each : entries()) all.push_back(each.kind);
    return all;
  }();
  return kinds;
}

template <class T>
std::unique_ptr<Mixer<T>> make_layer(const LayerSpec& spec, const ModelConfig& config, size_t index,
                                     ParameterList<T>& parameters, const std::string& name) {
  const Given given(spec, config, index);
  const Entry& of = entry_of(spec);
  if constexpr (std::is_same_v<T, float>) {
    return of.make32(given, config, parameters, name);
  } else {
    return of.make64(given, config, parameters, name);
  }
}

void check_layer(const LayerSpec& spec, const ModelConfig& config) {
  if (spec.options.empty() && (spec.kind == "full" || spec.kind == "linear")) {
    if (config.dim % config.heads != 0)
      fail("model: dim {} is not divisible by {} heads", config.dim, config.heads);
    return;
  }
  ParameterList<float> scratch(0);
  make_layer(spec, config, 0, scratch, "layer");
}

bool norms_output(const LayerSpec& spec) {
  const std::string* place = spec.find("place");
  return place && *place == "output";
}

LayerWork layer_work(const LayerSpec& spec, const ModelConfig& config, size_t context) {
  LayerWork work;
  ParameterList<float> scratch(0);
  make_layer(spec, config, 0, scratch, "layer");
  for (size_t i = 0; i < scratch.size(); ++i) {
    const Parameter<float>& parameter = scratch[i];
    const bool taps = parameter.name().ends_with("_conv.weight");
    if (parameter.shape().rank() == 2 && !taps) work.matrix_weights += static_cast<double>(parameter.size());
  }
  if (spec.kind == "full")
    work.score_flops = 6 * static_cast<double>(context) * static_cast<double>(config.dim);
  return work;
}

template std::unique_ptr<Mixer<float>> make_layer(const LayerSpec&, const ModelConfig&, size_t,
                                                  ParameterList<float>&, const std::string&);
template std::unique_ptr<Mixer<double>> make_layer(const LayerSpec&, const ModelConfig&, size_t,
                                                   ParameterList<double>&, const std::string&);

}  // namespace storytape
