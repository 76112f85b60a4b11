#include "nn/layers/examples.h"

#include <algorithm>
#include <cmath>

namespace storytape {
namespace {

constexpr std::string_view kPrefix = "layer.";

// Values at which nothing saturates and no term is lost beside another.
Tensor<double> draw(const std::string& name, const Shape& shape, uint64_t seed) {
  if (name.ends_with("norm.weight") || name == "D") return example_normal(shape, seed, 1, 0.3);
  if (name.ends_with("_conv.weight")) return example_normal(shape, seed, 0, 0.6);
  if (shape.rank() == 2) return example_normal(shape, seed, 0, 1 / std::sqrt(static_cast<double>(shape[0])));
  return example_normal(shape, seed, 0, 0.5);
}

template <class T>
std::vector<Var<T>> run(const OwnedLayer<T>& owned, const LayerExample& e, Tape<T>& tape,
                        const std::vector<Var<T>>& in) {
  const std::span<const Var<T>> all(in);
  const size_t parameters = owned.parameters->size();
  const Weights<T> weights(tape, all.subspan(1, parameters));
  Pass<T> pass = owned.layer->apply(weights, in[0], all.subspan(1 + parameters), e.seen, e.face);
  std::vector<Var<T>> outputs{pass.y};
  outputs.insert(outputs.end(), pass.states.begin(), pass.states.end());
  return outputs;
}

}  // namespace

bool LayerInputs::has(std::string_view name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

const ComplexTensor& LayerInputs::operator[](std::string_view name) const {
  const auto place = std::find(names_.begin(), names_.end(), name);
  if (place == names_.end()) fail("the layer's reference has no input \"{}\"", name);
  return values_[static_cast<size_t>(place - names_.begin())];
}

GradCase layer_case(const LayerExample& e, const OwnedLayer<float>& layer32,
                    const OwnedLayer<double>& layer64, const LayerReference& reference) {
  uint64_t seed = 2000;
  std::vector<NamedInput> inputs{{"x", example_normal({e.batch, e.tokens, e.dim}, seed++)}};
  for (size_t i = 0; i < layer64.parameters->size(); ++i) {
    const Parameter<double>& parameter = (*layer64.parameters)[i];
    const std::string name = parameter.name().substr(kPrefix.size());
    inputs.push_back({name, draw(name, parameter.shape(), seed++)});
  }
  std::vector<std::string> outputs{"y"}, names;
  for (const StateTensor& state : layer64.layer->state_tensors(e.batch)) {
    if (e.states) inputs.push_back({state.name + " before", example_normal(state.shape, seed++, 0, 0.5)});
    outputs.push_back(state.name);
  }
  for (const NamedInput& input : inputs) names.push_back(input.name);

  GradCase c;
  c.example = e.name;
  c.face = to_string(e.face);
  c.inputs = std::move(inputs);
  c.outputs = std::move(outputs);
  c.run32 = [=](Tape<float>& tape, const std::vector<Var<float>>& in) { return run(layer32, e, tape, in); };
  c.run64 = [=](Tape<double>& tape, const std::vector<Var<double>>& in) { return run(layer64, e, tape, in); };
  c.reference = [=](const std::vector<ComplexTensor>& in) { return reference(LayerInputs(names, in)); };
  c.samples = e.samples;
  c.float_multiple = e.float_multiple;
  return c;
}

}  // namespace storytape
