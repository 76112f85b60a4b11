#include "nn/layers/forgetting_attention.h"

#include "autograd/ops_arithmetic.h"
#include "autograd/ops_norm.h"
#include "autograd/ops_shape.h"
#include "nn/layers/attention.h"

namespace storytape {
namespace {

constexpr const char* kName = "forgetting";

ForgettingAttentionConfig checked(ForgettingAttentionConfig c) {
  check_sizes(kName, {{"dim", c.dim}, {"heads", c.heads}});
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  check_head_groups(kName, "heads", c.heads, "kv_heads", c.kv_heads);
  if (c.head_dim == 0) {
    check_head_groups(kName, "dim", c.dim, "heads", c.heads);
    c.head_dim = c.dim / c.heads;
  }
  if (!(c.norm_eps > 0)) fail("{}: norm_eps is {}, wanted a positive number", kName, c.norm_eps);
  return c;
}

}  // namespace

template <class T>
ForgettingAttention<T>::ForgettingAttention(const ForgettingAttentionConfig& config,
                                            ParameterList<T>& parameters, const std::string& name)
    : config_(checked(config)),
      q_(parameters, name + ".q", config.dim, config.heads * config_.head_dim, config.bias),
      k_(parameters, name + ".k", config.dim, config_.kv_heads * config_.head_dim, config.bias),
      v_(parameters, name + ".v", config.dim, config_.kv_heads * config_.head_dim, config.bias),
      f_(parameters, name + ".f", config.dim, config.heads, true),
      out_(parameters, name + ".out", config.heads * config_.head_dim, config.dim) {
  const size_t d = config_.head_dim;
  if (config.gate) g_ = Projection<T>(parameters, name + ".g", config.dim, config.heads * d);
  if (!config.qk_norm) return;
  q_norm_ = &parameters.add(name + ".q_norm.weight", {config.heads * d}, Init::constant(1));
  k_norm_ = &parameters.add(name + ".k_norm.weight", {config_.kv_heads * d}, Init::constant(1));
}

template <class T>
std::vector<StateTensor> ForgettingAttention<T>::state_tensors(size_t batch) const {
  const Shape shape{batch, 0, config_.kv_heads, config_.head_dim};
  return {{"k", shape}, {"v", shape}, {"log_f", {batch, 0, config_.heads, 1}}};
}

template <class T>
Var<T> ForgettingAttention<T>::normed(const Weights<T>& weights, Var<T> x, Parameter<T>* norm,
                                      size_t heads) const {
  const Var<T> rows = split_heads(x, heads);
  if (!norm) return rows;
  const Var<T> weight = reshape(weights(norm), {heads, config_.head_dim});
  return mul(rms_norm(rows, Var<T>(), config_.norm_eps), weight);
}

template <class T>
typename ForgettingAttention<T>::Heads ForgettingAttention<T>::heads(const Weights<T>& weights,
                                                                     Var<T> x) const {
  return {normed(weights, q_(weights, x), q_norm_, config_.heads),
          normed(weights, k_(weights, x), k_norm_, config_.kv_heads),
          split_heads(v_(weights, x), config_.kv_heads), log_sigmoid(f_(weights, x))};
}

template <class T>
Var<T> ForgettingAttention<T>::output(const Weights<T>& weights, Var<T> x, Var<T> o, Var<T> residual) const {
  Var<T> y = merge_heads(o);
  if (g_.weight) y = output_gate(y, g_(weights, x), OutputGate::kSigmoid);
  return linear(y, weights(out_.weight), Var<T>(), residual);
}

template <class T>
Pass<T> ForgettingAttention<T>::apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states,
                                      size_t, Face face) const {
  const Heads fresh = heads(weights, x);
  const Var<T> k = with_cached(this->state_or_none(states, 0), fresh.k);
  const Var<T> v = with_cached(this->state_or_none(states, 1), fresh.v);
  const Shape s = fresh.log_f.shape();
  const Var<T> log_f =
      with_cached(this->state_or_none(states, 2), reshape(fresh.log_f, {s[0], s[1], s[2], 1}));
  SoftmaxAttentionOptions options;
  options.face = face;
  const Var<T> gates = reshape(log_f, {s[0], log_f.shape()[1], s[2]});
  return {output(weights, x, softmax_attention(fresh.q, k, v, options, gates), {}), {k, v, log_f}};  // (FO4)
}

template <class T>
Tensor<T> ForgettingAttention<T>::extend(State<T>& state, const Tensor<T>& x,
                                         const Tensor<T>& residual) const {
  Tape<T> tape;
  const NoGrad<T> no_grad(tape);
  const Var<T> in = tape.constant(x);
  const Var<T> rest = residual_on(tape, x, residual);
  const Heads fresh = heads(tape, in);
  const Tensor<T> o = softmax_attention_extend(state, fresh.q.value(), fresh.k.value(), fresh.v.value(),
                                               SoftmaxAttentionOptions(), fresh.log_f.value());
  return output(tape, in, tape.constant(o), rest).value();
}

template class ForgettingAttention<float>;
template class ForgettingAttention<double>;

}  // namespace storytape
