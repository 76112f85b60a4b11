#include "nn/layers/gated_deltaproduct.h"

#include "autograd/ops_shape.h"
#include "nn/decay_gate.h"
#include "nn/mixers/delta_product.h"

namespace storytape {
namespace {

constexpr const char* kName = "deltaproduct";

const GatedDeltaProductConfig& checked(const GatedDeltaProductConfig& c) {
  check_sizes(kName, {{"dim", c.dim},
                      {"key_heads", c.key_heads},
                      {"value_heads", c.value_heads},
                      {"key_dim", c.key_dim},
                      {"value_dim", c.value_dim},
                      {"steps", c.steps}});
  check_head_groups(kName, "value_heads", c.value_heads, "key_heads", c.key_heads);
  check_beta_scale(kName, c.beta_scale);
  return c;
}

// One [B, T, ...] per write, as the sequence of all writes [B, T n_h, ...].
template <class T>
Var<T> in_turn(const std::vector<Var<T>>& parts) {
  if (parts.size() == 1) return parts[0];
  const Shape s = parts[0].shape();
  Shape one{s[0], s[1], 1}, all{s[0], s[1] * parts.size()};
  for (size_t axis = 2; axis < s.rank(); ++axis) {
    one.push_back(s[axis]);
    all.push_back(s[axis]);
  }
  std::vector<Var<T>> apart;
  for (const Var<T>& part : parts) apart.push_back(reshape(part, one));
  return reshape(concat(apart, 2), all);
}

}  // namespace

template <class T>
GatedDeltaProduct<T>::GatedDeltaProduct(const GatedDeltaProductConfig& config, ParameterList<T>& parameters,
                                        const std::string& name)
    : config_(checked(config)),
      q_(parameters, name, "q", config.dim, config.key_heads * config.key_dim, config.convolution) {
  const size_t heads = config.value_heads, width = heads * config.value_dim;
  for (size_t j = 0; j < config.steps; ++j) {
    const std::string number = std::to_string(j);
    ConvolvedProjection<T> k(parameters, name, "k" + number, config.dim, config.key_heads * config.key_dim,
                             config.convolution);
    ConvolvedProjection<T> v(parameters, name, "v" + number, config.dim, width, config.convolution);
    Projection<T> b(parameters, name + ".b" + number, config.dim, heads);
    writes_.push_back({std::move(k), std::move(v), b});
  }
  if (config.forget) {
    a_ = Projection<T>(parameters, name + ".a", config.dim, heads);
    A_log_ = &parameters.add(name + ".A_log", {heads}, Init::log_of_uniform(0, 16));
    dt_bias_ = &parameters.add(name + ".dt_bias", {heads}, Init::step_bias());
  }
  if (config.gate != OutputGate::kNone) g_ = Projection<T>(parameters, name + ".g", config.dim, width);
  norm_ = &parameters.add(name + ".norm.weight", {config.value_dim}, Init::constant(1));
  out_ = Projection<T>(parameters, name + ".out", width, config.dim);
}

template <class T>
std::vector<StateTensor> GatedDeltaProduct<T>::state_tensors(size_t batch) const {
  std::vector<StateTensor> states;
  q_.add_state(batch, states);
  for (const Write& write : writes_) {
    write.k.add_state(batch, states);
    write.v.add_state(batch, states);
  }
  states.push_back({"S", {batch, config_.value_heads, config_.key_dim, config_.value_dim}});
  return states;
}

template <class T>
Pass<T> GatedDeltaProduct<T>::apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states,
                                    size_t, Face face) const {
  Carried<T> carried(states);
  const size_t heads = config_.value_heads;
  const Var<T> q = split_heads(q_(weights, x, carried), config_.key_heads);  // (GP1)
  std::vector<Var<T>> k, v, beta;
  for (const Write& write : writes_) {
    k.push_back(split_heads(write.k(weights, x, carried), config_.key_heads));
    v.push_back(split_heads(write.v(weights, x, carried), heads));
    beta.push_back(write_strength(weights, write.b, x, config_.beta_scale));
  }
  const Var<T> alpha =
      a_.weight ? decay_gate(a_(weights, x), weights(A_log_), weights(dt_bias_)) : Var<T>();  // (GP3)
  GatedOptions options;
  options.face = face;
  options.steps = config_.steps;
  const auto core =
      delta_product(repeat_heads(unit_queries(q), heads), repeat_heads(unit_keys(in_turn(k)), heads),
                    in_turn(v), alpha, in_turn(beta), carried.next(), options);  // (GP2), (GP4)
  carried.after.push_back(core.S);
  const Var<T> g = g_.weight ? g_(weights, x) : Var<T>();
  const Var<T> o = gated_head_norm(core.o, weights(norm_), g, config_.gate, config_.norm_eps);
  return {out_(weights, o), std::move(carried.after)};  // (GP5)
}

template class GatedDeltaProduct<float>;
template class GatedDeltaProduct<double>;

}  // namespace storytape
