// Points at which the gradients of whole layers are proven: by x, every parameter and every carried state,
// from y and every state after.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autograd/registry.h"
#include "nn/layers/layer.h"

namespace storytape {

// What a layer's scalar reference reads: inputs by name, parameters without their layer's name ("q.weight").
class LayerInputs {
 public:
  LayerInputs(const std::vector<std::string>& names, const std::vector<ComplexTensor>& values)
      : names_(names), values_(values) {}
  bool has(std::string_view name) const;
  // An Error if there is none of that name.
  const ComplexTensor& operator[](std::string_view name) const;

 private:
  const std::vector<std::string>& names_;
  const std::vector<ComplexTensor>& values_;
};
// y, then the states after in the order of state_tensors. States before are named as there, with " before"
// behind.
using LayerReference = std::function<std::vector<ComplexTensor>(const LayerInputs& in)>;

// A layer with the list that owns its parameters, and these begin with "layer.".
template <class T>
struct OwnedLayer {
  std::shared_ptr<ParameterList<T>> parameters;
  std::shared_ptr<const Layer<T>> layer;
};
template <template <class> class L, class T, class Config>
OwnedLayer<T> own_layer(const Config& config, uint64_t seed = 0) {
  const auto parameters = std::make_shared<ParameterList<T>>(seed);
  return {parameters, std::make_shared<const L<T>>(config, *parameters, "layer")};
}

struct LayerExample {
  std::string name;
  Face face = Face::kChunkwise;
  size_t batch = 2, tokens = 5, dim = 6;
  size_t seen = 0;      // tokens before the first
  bool states = false;  // states before are inputs
  double float_multiple = 128;
  size_t samples = 6;
};
GradCase layer_case(const LayerExample& example, const OwnedLayer<float>& layer32,
                    const OwnedLayer<double>& layer64, const LayerReference& reference);
template <template <class> class L, class Config>
GradCase layer_case(const LayerExample& example, const Config& config, const LayerReference& reference) {
  return layer_case(example, own_layer<L, float>(config), own_layer<L, double>(config), reference);
}

// Adds the layers around the linear and recurrent cores, and repeat_heads.
void register_recurrent_layers();
// Adds those around softmax attention, and RWKV-4's.
void register_attention_layers();

}  // namespace storytape
