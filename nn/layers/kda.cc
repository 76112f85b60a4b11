#include "nn/layers/kda.h"

#include "autograd/ops_arithmetic.h"
#include "autograd/ops_shape.h"
#include "nn/mixers/kda.h"

namespace storytape {
namespace {

constexpr const char* kName = "kda";

KdaConfig checked(KdaConfig c) {
  check_sizes(kName, {{"dim", c.dim},
                      {"key_heads", c.key_heads},
                      {"value_heads", c.value_heads},
                      {"key_dim", c.key_dim},
                      {"value_dim", c.value_dim}});
  check_head_groups(kName, "value_heads", c.value_heads, "key_heads", c.key_heads);
  check_beta_scale(kName, c.beta_scale);
  if (!(c.lower_bound <= 0))
    fail("{}: lower_bound is {}, wanted a negative number or 0", kName, c.lower_bound);
  if (c.rank == 0) c.rank = c.value_dim;
  return c;
}

}  // namespace

template <class T>
KimiDeltaAttention<T>::KimiDeltaAttention(const KdaConfig& config, ParameterList<T>& parameters,
                                          const std::string& name)
    : config_(checked(config)),
      q_(parameters, name, "q", config.dim, config.key_heads * config.key_dim, config.convolution),
      k_(parameters, name, "k", config.dim, config.key_heads * config.key_dim, config.convolution),
      v_(parameters, name, "v", config.dim, config.value_heads * config.value_dim, config.convolution),
      f1_(parameters, name + ".f1", config.dim, config_.rank),
      f2_(parameters, name + ".f2", config_.rank, config.value_heads * config.key_dim),
      b_(parameters, name + ".b", config.dim, config.value_heads),
      g1_(parameters, name + ".g1", config.dim, config_.rank),
      g2_(parameters, name + ".g2", config_.rank, config.value_heads * config.value_dim, config.gate_bias),
      out_(parameters, name + ".out", config.value_heads * config.value_dim, config.dim),
      A_log_(&parameters.add(name + ".A_log", {config.value_heads},
                             config.lower_bound < 0 ? Init::constant(0) : Init::log_of_uniform(1, 16))),
      dt_bias_(&parameters.add(name + ".dt_bias", {config.value_heads, config.key_dim}, Init::step_bias())),
      norm_(&parameters.add(name + ".norm.weight", {config.value_dim}, Init::constant(1))) {
  dt_bias_->decays = false;
}

template <class T>
std::vector<StateTensor> KimiDeltaAttention<T>::state_tensors(size_t batch) const {
  std::vector<StateTensor> states;
  for (const auto* part : {&q_, &k_, &v_}) part->add_state(batch, states);
  states.push_back({"S", {batch, config_.value_heads, config_.key_dim, config_.value_dim}});
  return states;
}

template <class T>
Var<T> KimiDeltaAttention<T>::decay(const Weights<T>& weights, Var<T> x) const {
  const size_t heads = config_.value_heads, channels = heads * config_.key_dim;
  const Var<T> f = f2_(weights, f1_(weights, x));
  const Var<T> bias = reshape(weights(dt_bias_), {channels});
  // One rate per head, for all its channels.
  const Var<T> rates = reshape(repeat_heads(reshape(weights(A_log_), {heads, 1}), channels), {channels});
  // In place of decay_gate, which goes number by number: for a gate per channel it would take longer than the
  // rest of the layer. What it guards against, exp(A_log) beyond the numbers, no rate between 1 and 16 comes
  // near.
  const Var<T> z = add(f, bias), rate = exp(rates);
  const Var<T> log_decay = config_.lower_bound < 0 ? scale(sigmoid(mul(z, rate)), config_.lower_bound)
                                                   : neg(mul(softplus(z), rate));
  return split_heads(exp(log_decay), heads);
}

template <class T>
Pass<T> KimiDeltaAttention<T>::apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states,
                                     size_t, Face face) const {
  Carried<T> carried(states);
  const size_t heads = config_.value_heads;
  const Var<T> q = split_heads(q_(weights, x, carried), config_.key_heads);  // (KL1)
  const Var<T> k = split_heads(k_(weights, x, carried), config_.key_heads);
  const Var<T> v = split_heads(v_(weights, x, carried), heads);
  const Var<T> beta = write_strength(weights, b_, x, config_.beta_scale);
  GatedOptions options;
  options.face = face;
  const auto core = kda(repeat_heads(unit_queries(q), heads), repeat_heads(unit_keys(k), heads), v,
                        decay(weights, x), beta, carried.next(), options);  // (KL2), (KL3)
  carried.after.push_back(core.S);
  const Var<T> g = g2_(weights, g1_(weights, x));
  const Var<T> o = gated_head_norm(core.o, weights(norm_), g, OutputGate::kSigmoid, config_.norm_eps);
  return {out_(weights, o), std::move(carried.after)};  // (KL4)
}

template class KimiDeltaAttention<float>;
template class KimiDeltaAttention<double>;

}  // namespace storytape
