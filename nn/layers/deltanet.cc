#include "nn/layers/deltanet.h"

#include "nn/mixers/delta_rule.h"

namespace storytape {
namespace {

constexpr const char* kName = "deltanet";

const DeltaNetConfig& checked(const DeltaNetConfig& c) {
  check_sizes(kName,
              {{"dim", c.dim}, {"heads", c.heads}, {"key_dim", c.key_dim}, {"value_dim", c.value_dim}});
  check_beta_scale(kName, c.beta_scale);
  return c;
}

}  // namespace

template <class T>
DeltaNet<T>::DeltaNet(const DeltaNetConfig& config, ParameterList<T>& parameters, const std::string& name)
    : config_(checked(config)),
      q_(parameters, name, "q", config.dim, config.heads * config.key_dim, config.convolution),
      k_(parameters, name, "k", config.dim, config.heads * config.key_dim, config.convolution),
      v_(parameters, name, "v", config.dim, config.heads * config.value_dim, config.convolution),
      b_(parameters, name + ".b", config.dim, config.heads),
      norm_(&parameters.add(name + ".norm.weight", {config.value_dim}, Init::constant(1))) {
  const size_t width = config.heads * config.value_dim;
  if (config.gate != OutputGate::kNone) g_ = Projection<T>(parameters, name + ".g", config.dim, width);
  out_ = Projection<T>(parameters, name + ".out", width, config.dim);
}

template <class T>
std::vector<StateTensor> DeltaNet<T>::state_tensors(size_t batch) const {
  std::vector<StateTensor> states;
  for (const auto* part : {&q_, &k_, &v_}) part->add_state(batch, states);
  states.push_back({"S", {batch, config_.heads, config_.key_dim, config_.value_dim}});
  return states;
}

template <class T>
Pass<T> DeltaNet<T>::apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states, size_t,
                           Face face) const {
  Carried<T> carried(states);
  const Var<T> q = split_heads(q_(weights, x, carried), config_.heads);  // (DN1)
  const Var<T> k = split_heads(k_(weights, x, carried), config_.heads);
  const Var<T> v = split_heads(v_(weights, x, carried), config_.heads);
  const Var<T> beta = write_strength(weights, b_, x, config_.beta_scale);  // (DN2)
  GatedOptions options;
  options.face = face;
  const auto core = delta_rule(unit_queries(q), unit_keys(k), v, beta, carried.next(), options);  // (DN3)
  carried.after.push_back(core.S);
  const Var<T> g = g_.weight ? g_(weights, x) : Var<T>();
  const Var<T> o = gated_head_norm(core.o, weights(norm_), g, config_.gate, config_.norm_eps);
  return {out_(weights, o), std::move(carried.after)};  // (DN4)
}

template class DeltaNet<float>;
template class DeltaNet<double>;

}  // namespace storytape
