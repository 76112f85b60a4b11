#include "nn/layers/gated_deltanet.h"

#include "nn/decay_gate.h"
#include "nn/mixers/gated_delta_rule.h"

namespace storytape {
namespace {

constexpr const char* kName = "gated_deltanet";

const GatedDeltaNetConfig& checked(const GatedDeltaNetConfig& c) {
  check_sizes(kName, {{"dim", c.dim},
                      {"key_heads", c.key_heads},
                      {"value_heads", c.value_heads},
                      {"key_dim", c.key_dim},
                      {"value_dim", c.value_dim}});
  check_head_groups(kName, "value_heads", c.value_heads, "key_heads", c.key_heads);
  check_beta_scale(kName, c.beta_scale);
  return c;
}

}  // namespace

template <class T>
GatedDeltaNet<T>::GatedDeltaNet(const GatedDeltaNetConfig& config, ParameterList<T>& parameters,
                                const std::string& name)
    : config_(checked(config)),
      q_(parameters, name, "q", config.dim, config.key_heads * config.key_dim, config.convolution),
      k_(parameters, name, "k", config.dim, config.key_heads * config.key_dim, config.convolution),
      v_(parameters, name, "v", config.dim, config.value_heads * config.value_dim, config.convolution),
      a_(parameters, name + ".a", config.dim, config.value_heads),
      b_(parameters, name + ".b", config.dim, config.value_heads),
      A_log_(&parameters.add(name + ".A_log", {config.value_heads}, Init::log_of_uniform(0, 16))),
      dt_bias_(&parameters.add(name + ".dt_bias", {config.value_heads}, Init::step_bias())),
      norm_(&parameters.add(name + ".norm.weight", {config.value_dim}, Init::constant(1))) {
  const size_t width = config.value_heads * config.value_dim;
  if (config.gate != OutputGate::kNone) g_ = Projection<T>(parameters, name + ".g", config.dim, width);
  out_ = Projection<T>(parameters, name + ".out", width, config.dim);
}

template <class T>
std::vector<StateTensor> GatedDeltaNet<T>::state_tensors(size_t batch) const {
  std::vector<StateTensor> states;
  for (const auto* part : {&q_, &k_, &v_}) part->add_state(batch, states);
  states.push_back({"S", {batch, config_.value_heads, config_.key_dim, config_.value_dim}});
  return states;
}

template <class T>
Pass<T> GatedDeltaNet<T>::apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states, size_t,
                                Face face) const {
  Carried<T> carried(states);
  const size_t heads = config_.value_heads;
  const Var<T> q = split_heads(q_(weights, x, carried), config_.key_heads);  // (GD1)
  const Var<T> k = split_heads(k_(weights, x, carried), config_.key_heads);
  const Var<T> v = split_heads(v_(weights, x, carried), heads);
  const Var<T> alpha = decay_gate(a_(weights, x), weights(A_log_), weights(dt_bias_));  // (GD3)
  const Var<T> beta = write_strength(weights, b_, x, config_.beta_scale);
  GatedOptions options;
  options.face = face;
  const auto core = gated_delta_rule(repeat_heads(unit_queries(q), heads), repeat_heads(unit_keys(k), heads),
                                     v, alpha, beta, carried.next(), options);  // (GD2), (GD4)
  carried.after.push_back(core.S);
  const Var<T> g = g_.weight ? g_(weights, x) : Var<T>();
  const Var<T> o = gated_head_norm(core.o, weights(norm_), g, config_.gate, config_.norm_eps);
  return {out_(weights, o), std::move(carried.after)};  // (GD5)
}

template class GatedDeltaNet<float>;
template class GatedDeltaNet<double>;

}  // namespace storytape
