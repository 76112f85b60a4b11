#include "nn/layers/gla.h"

#include <cmath>

#include "nn/gates.h"
#include "nn/mixers/gla.h"

namespace storytape {
namespace {

constexpr const char* kName = "gla";

GlaConfig checked(GlaConfig c) {
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  check_sizes(kName, {{"dim", c.dim},
                      {"heads", c.heads},
                      {"key_dim", c.key_dim},
                      {"value_dim", c.value_dim},
                      {"rank", c.rank}});
  check_head_groups(kName, "heads", c.heads, "kv_heads", c.kv_heads);
  if (!(c.tau > 0)) fail("{}: tau is {}, wanted a positive number", kName, c.tau);
  return c;
}

}  // namespace

template <class T>
GatedLinearAttention<T>::GatedLinearAttention(const GlaConfig& config, ParameterList<T>& parameters,
                                              const std::string& name)
    : config_(checked(config)),
      q_(parameters, name, "q", config.dim, config.heads * config.key_dim, config.convolution),
      k_(parameters, name, "k", config.dim, config_.kv_heads * config.key_dim, config.convolution),
      v_(parameters, name, "v", config.dim, config_.kv_heads * config.value_dim, config.convolution),
      gk1_(parameters, name + ".gk1", config.dim, config.rank),
      gk2_(parameters, name + ".gk2", config.rank, config_.kv_heads * config.key_dim, true),
      norm_(&parameters.add(name + ".norm.weight", {config.value_dim}, Init::constant(1))) {
  const size_t width = config.heads * config.value_dim;
  if (config.gate != OutputGate::kNone) g_ = Projection<T>(parameters, name + ".g", config.dim, width);
  out_ = Projection<T>(parameters, name + ".out", width, config.dim);
}

template <class T>
std::vector<StateTensor> GatedLinearAttention<T>::state_tensors(size_t batch) const {
  std::vector<StateTensor> states;
  for (const auto* part : {&q_, &k_, &v_}) part->add_state(batch, states);
  states.push_back({"S", {batch, config_.heads, config_.key_dim, config_.value_dim}});
  return states;
}

template <class T>
Pass<T> GatedLinearAttention<T>::apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states,
                                       size_t, Face face) const {
  Carried<T> carried(states);
  const size_t heads = config_.heads;
  const Var<T> q = split_heads(q_(weights, x, carried), heads);  // (GL1)
  const Var<T> k = split_heads(k_(weights, x, carried), config_.kv_heads);
  const Var<T> v = split_heads(v_(weights, x, carried), config_.kv_heads);
  const Var<T> alpha =
      split_heads(gla_gate(x, weights(gk1_.weight), weights(gk2_.weight), config_.tau, weights(gk2_.bias)),
                  config_.kv_heads);  // (GL2)
  GatedOptions options;
  options.face = face;
  const double root = std::sqrt(static_cast<double>(config_.key_dim));
  const auto core = gla(scale(q, 1 / root), repeat_heads(k, heads), repeat_heads(v, heads),
                        repeat_heads(alpha, heads), carried.next(), options);  // (GL3)
  carried.after.push_back(core.S);
  const Var<T> g = g_.weight ? g_(weights, x) : Var<T>();
  const Var<T> o = gated_head_norm(core.o, weights(norm_), g, config_.gate, config_.norm_eps);
  return {out_(weights, o), std::move(carried.after)};  // (GL4)
}

template class GatedLinearAttention<float>;
template class GatedLinearAttention<double>;

}  // namespace storytape
