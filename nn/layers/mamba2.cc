#include "nn/layers/mamba2.h"

#include "autograd/ops_arithmetic.h"
#include "autograd/ops_norm.h"
#include "autograd/ops_shape.h"
#include "nn/decay_gate.h"
#include "nn/gates.h"
#include "nn/mixers/unified.h"

namespace storytape {
namespace {

constexpr const char* kName = "mamba2";
constexpr double kInputDeviation = 0.1;

const Mamba2Config& checked(const Mamba2Config& c) {
  check_sizes(kName, {{"dim", c.dim},
                      {"heads", c.heads},
                      {"head_dim", c.head_dim},
                      {"state_dim", c.state_dim},
                      {"groups", c.groups}});
  check_head_groups(kName, "heads", c.heads, "groups", c.groups);
  if (!(c.dt_min >= 0 && c.dt_max > c.dt_min)) {
    fail("{}: dt_min and dt_max are {} and {}, wanted 0 <= dt_min < dt_max", kName, c.dt_min, c.dt_max);
  }
  return c;
}

// x moved into [low, high]; where it was outside, no gradient.
template <class T>
Var<T> clamp(Var<T> x, T low, T high) {
  Tensor<T> inside(x.shape()), edge(x.shape());
  T *mask = inside.data(), *to = edge.data();
  const T* in = x.value().data();
  for (size_t i = 0; i < inside.size(); ++i) {
    mask[i] = in[i] < low || in[i] > high ? T{0} : T{1};
    to[i] = in[i] < low ? low : high;
  }
  return select(inside, x, x.tape().constant(std::move(edge)));
}

}  // namespace

template <class T>
Mamba2<T>::Mamba2(const Mamba2Config& config, ParameterList<T>& parameters, const std::string& name)
    : config_(checked(config)),
      z_(parameters, name + ".z", config.dim, config.heads * config.head_dim, config.bias,
         Init::normal(kInputDeviation)),
      x_(parameters, name, "x", config.dim, config.heads * config.head_dim, config.convolution, config.bias,
         Init::normal(kInputDeviation)),
      B_(parameters, name, "B", config.dim, config.groups * config.state_dim, config.convolution, config.bias,
         Init::normal(kInputDeviation)),
      C_(parameters, name, "C", config.dim, config.groups * config.state_dim, config.convolution, config.bias,
         Init::normal(kInputDeviation)),
      dt_(parameters, name + ".dt", config.dim, config.heads, config.bias, Init::normal(kInputDeviation)),
      out_(parameters, name + ".out", config.heads * config.head_dim, config.dim, config.bias),
      A_log_(&parameters.add(name + ".A_log", {config.heads}, Init::log_of_position())),
      D_(&parameters.add(name + ".D", {config.heads}, Init::constant(1))),
      dt_bias_(&parameters.add(name + ".dt_bias", {config.heads}, Init::step_bias())),
      norm_(&parameters.add(name + ".norm.weight", {config.heads * config.head_dim}, Init::constant(1))) {}

template <class T>
std::vector<StateTensor> Mamba2<T>::state_tensors(size_t batch) const {
  std::vector<StateTensor> states;
  for (const auto* part : {&x_, &B_, &C_}) part->add_state(batch, states);
  states.push_back({"S", {batch, config_.heads, config_.state_dim, config_.head_dim}});
  return states;
}

template <class T>
Pass<T> Mamba2<T>::apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states, size_t,
                         Face face) const {
  Carried<T> carried(states);
  const size_t batch = x.shape()[0], tokens = x.shape()[1], heads = config_.heads, groups = config_.groups;
  const Var<T> z = z_(weights, x);  // (MB1)
  const Var<T> u = split_heads(x_(weights, x, carried), heads);
  const Var<T> B = repeat_heads(split_heads(B_(weights, x, carried), groups), heads);
  const Var<T> C = repeat_heads(split_heads(C_(weights, x, carried), groups), heads);

  const Var<T> rate = dt_(weights, x);  // (MB2)
  const bool limited = config_.dt_min > 0 || config_.dt_max < std::numeric_limits<T>::max();
  Var<T> dt = softplus(add(rate, weights(dt_bias_)));
  if (limited) dt = clamp(dt, static_cast<T>(config_.dt_min), static_cast<T>(config_.dt_max));
  const Var<T> alpha = limited ? exp(neg(mul(dt, exp(weights(A_log_)))))
                               : decay_gate(rate, weights(A_log_), weights(dt_bias_));

  GatedOptions options;
  options.face = face;
  const Var<T> k = mul(B, reshape(dt, {batch, tokens, heads, 1}));
  const auto core = unified(C, k, u, alpha, carried.next(), options);  // (MB3)
  carried.after.push_back(core.S);
  const Var<T> o = add(core.o, mul(u, reshape(weights(D_), {heads, 1})));

  const Var<T> g = swish_gate(merge_heads(o), z);  // (MB4)
  Var<T> n;
  if (groups == 1) {
    n = rms_norm(g, weights(norm_), config_.norm_eps);
  } else {
    n = mul(merge_heads(rms_norm(split_heads(g, groups), Var<T>(), config_.norm_eps)), weights(norm_));
  }
  return {out_(weights, n), std::move(carried.after)};
}

template class Mamba2<float>;
template class Mamba2<double>;

}  // namespace storytape
