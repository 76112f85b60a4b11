// The layers that a pattern can name, made from their specs: sizes that a spec leaves open come from the model.
#pragma once

#include <memory>
#include <string>

#include "models/config.h"
#include "models/pattern.h"
#include "nn/mixers/mixer.h"

namespace storytape {

// The layer of block `index`, its parameters added under `name` ("blocks.0.mixer").
template <class T>
std::unique_ptr<Mixer<T>> make_layer(const LayerSpec& spec, const ModelConfig& config, size_t index,
                                     ParameterList<T>& parameters, const std::string& name);

// An Error if the spec can't work in a model of these sizes; nothing large is allocated.
void check_layer(const LayerSpec& spec, const ModelConfig& config);

// Whether the block's norms stand behind mixer and MLP (option norm=output).
bool norms_output(const LayerSpec& spec);

// What a layer's products come to, by the project's count.
struct LayerWork {
  double matrix_weights = 0;  // of projections; 6 FLOP each per token
  double score_flops =
      0;  // 6 · (keys seen on average) · 2 · (query channels) / 2 of softmax layers, per token
};
LayerWork layer_work(const LayerSpec& spec, const ModelConfig& config, size_t context);

}  // namespace storytape
