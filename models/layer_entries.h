// How the kinds of layers that patterns name are made: what models/layers*.cc share.
#pragma once

#include <charconv>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/layers.h"
#include "nn/layers/parts.h"
#include "tensor/error.h"

namespace storytape::layer_entries {

using Type = LayerOption::Type;

constexpr double kManyHeads = 4096, kManyChannels = 1 << 16, kLongContext = 1 << 24;

inline LayerOption size(const char* name, const char* about, double low, double high) {
  return {name, Type::kSize, about, low, high};
}
inline LayerOption flag(const char* name, const char* about) {
  return {name, Type::kFlag, about};
}
inline LayerOption choice(const char* name, const char* about, std::vector<std::string> choices) {
  return {name, Type::kChoice, about, 0, 0, std::move(choices)};
}

// Options that several kinds have.
inline LayerOption heads() {
  return size("heads", "heads (the model's)", 1, kManyHeads);
}
inline LayerOption key_heads() {
  return size("key_heads", "heads of queries and keys, a divisor of heads (heads)", 1, kManyHeads);
}
inline LayerOption kv_heads() {
  return size("kv_heads", "heads of keys and values, a divisor of heads (heads)", 1, kManyHeads);
}
inline LayerOption key_dim() {
  return size("key_dim", "channels of a head's keys", 1, kManyChannels);
}
inline LayerOption value_dim() {
  return size("value_dim", "channels of a head's values", 1, kManyChannels);
}
inline LayerOption conv() {
  return size("conv", "width of the short convolutions; 0: none", 0, 64);
}
inline LayerOption gate() {
  return choice("gate", "on the output", {"none", "silu", "sigmoid"});
}
inline LayerOption beta() {
  return {"beta", Type::kNumber, "largest strength of a write; 2 allows reflections", 0x1p-10, 2};
}

inline LayerOption norm_eps() {
  return {"eps", Type::kNumber, "of the norm behind the core (1e-5)", 1e-30, 1};
}

// The options of one spec, with the model's sizes behind them.
class Given {
 public:
  Given(const LayerSpec& spec, const ModelConfig& config, size_t index)
      : spec_(spec), config_(config), index_(index) {}

  size_t count(const char* name, size_t otherwise) const {
    const std::string* text = spec_.find(name);
    if (!text) return otherwise;
    double value = 0;
    std::from_chars(text->data(), text->data() + text->size(), value);
    return static_cast<size_t>(value);
  }
  double number(const char* name, double otherwise) const {
    const std::string* text = spec_.find(name);
    double value = otherwise;
    if (text) std::from_chars(text->data(), text->data() + text->size(), value);
    return value;
  }
  bool flag(const char* name, bool otherwise) const {
    const std::string* text = spec_.find(name);
    return text ? *text == "true" : otherwise;
  }
  bool is(const char* name, std::string_view value) const {
    const std::string* text = spec_.find(name);
    return text && *text == value;
  }
  OutputGate gate(OutputGate otherwise) const {
    const std::string* text = spec_.find("gate");
    if (!text) return otherwise;
    return *text == "none" ? OutputGate::kNone : *text == "silu" ? OutputGate::kSilu : OutputGate::kSigmoid;
  }
  size_t dim() const { return config_.dim; }
  // Of the block, of all blocks.
  size_t index() const { return index_; }
  size_t heads() const { return count("heads", config_.heads); }
  // Channels of a head that divides `width` among the heads; an Error if they don't divide it.
  size_t share(const char* name, size_t width) const {
    if (spec_.find(name)) return count(name, 0);
    if (width % heads() != 0) {
      fail("{}: {} channels can't be shared out over {} heads; give {}", spec_.kind, width, heads(), name);
    }
    return width / heads();
  }
  // The same where the heads share the model's width.
  size_t thin(const char* name) const { return share(name, config_.dim); }

 private:
  const LayerSpec& spec_;
  const ModelConfig& config_;
  size_t index_;
};

inline ConvolutionConfig convolution(const Given& g, ConvolutionConfig otherwise = {}) {
  otherwise.width = g.count("conv", otherwise.width);
  return otherwise;
}

// A kind with how its layer is made, for each type.
template <class T>
using Maker = std::function<std::unique_ptr<Mixer<T>>(const Given&, const ModelConfig&, ParameterList<T>&,
                                                      const std::string&)>;
struct Entry {
  LayerKind kind;
  Maker<float> make32;
  Maker<double> make64;
};

// From one generic callable.
template <class Make>
Entry entry(const char* name, const char* about, std::vector<LayerOption> options, Make make) {
  return {{name, about, std::move(options)},
          [make](const Given& g, const ModelConfig& c, ParameterList<float>& p, const std::string& n) {
            return make(g, c, p, n);
          },
          [make](const Given& g, const ModelConfig& c, ParameterList<double>& p, const std::string& n) {
            return make(g, c, p, n);
          }};
}

// What make_mixer gives, of any kind.
template <class T>
using Made = std::unique_ptr<Mixer<T>>;

std::vector<Entry> recurrent_entries();
std::vector<Entry> attention_entries();

}  // namespace storytape::layer_entries
