#include "nn/layers/attention.h"

#include <cmath>

#include "autograd/ops_arithmetic.h"
#include "autograd/ops_norm.h"
#include "autograd/ops_shape.h"

namespace storytape {
namespace {

constexpr const char* kName = "attention";

AttentionConfig checked(AttentionConfig c) {
  check_sizes(kName, {{"dim", c.dim}, {"heads", c.heads}});
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  check_head_groups(kName, "heads", c.heads, "kv_heads", c.kv_heads);
  if (c.head_dim == 0) {
    check_head_groups(kName, "dim", c.dim, "heads", c.heads);
    c.head_dim = c.dim / c.heads;
  }
  if (c.window && *c.window == 0) fail("{}: the window is 0 tokens, wanted at least 1", kName);
  if (c.scale && !std::isfinite(*c.scale))
    fail("{}: the scale is {}, wanted a finite number", kName, *c.scale);
  if (!(c.norm_eps > 0)) fail("{}: norm_eps is {}, wanted a positive number", kName, c.norm_eps);
  check_rotation(kName, c.head_dim, c.rotary_dim, c.rope_base);
  internal::checked_softcap(c.softcap, false);
  return c;
}

}  // namespace

template <class T>
Var<T> with_cached(Var<T> cached, Var<T> fresh) {
  return cached.defined() && cached.value().size() > 0 ? concat<T>({cached, fresh}, 1) : fresh;
}

template <class T>
Var<T> residual_on(Tape<T>& tape, const Tensor<T>& x, const Tensor<T>& residual) {
  if (!residual.defined()) return {};
  if (!(residual.shape() == x.shape())) {
    fail("the residual is {}, wanted {}", to_string(residual.shape()), to_string(x.shape()));
  }
  return tape.constant(residual);
}

template <class T>
Attention<T>::Attention(const AttentionConfig& config, ParameterList<T>& parameters, const std::string& name)
    : config_(checked(config)),
      q_(parameters, name + ".q", config.dim, config.heads * config_.head_dim, config.bias),
      k_(parameters, name + ".k", config.dim, config_.kv_heads * config_.head_dim, config.bias),
      v_(parameters, name + ".v", config.dim, config_.kv_heads * config_.head_dim, config.bias),
      out_(parameters, name + ".out", config.heads * config_.head_dim, config.dim, config.out_bias),
      rotation_(config.rotary_dim, config.rope_base, RopePairs::kHalves) {
  const size_t d = config_.head_dim;
  options_.scale = config.scale;
  options_.window = config.window.value_or(0);
  options_.softcap = config.softcap;
  if (config.gate) g_ = Projection<T>(parameters, name + ".g", config.dim, config.heads * d);
  if (config.qk_norm == QkNorm::kNone) return;
  const bool full = config.qk_norm == QkNorm::kFull;
  const Init one = Init::constant(1 - config.norm_offset);
  q_norm_ = &parameters.add(name + ".q_norm.weight", {full ? config.heads * d : d}, one);
  k_norm_ = &parameters.add(name + ".k_norm.weight", {full ? config_.kv_heads * d : d}, one);
}

template <class T>
std::vector<StateTensor> Attention<T>::state_tensors(size_t batch) const {
  const Shape shape{batch, 0, config_.kv_heads, config_.head_dim};
  return {{"k", shape}, {"v", shape}};
}

template <class T>
Var<T> Attention<T>::normed(const Weights<T>& weights, Var<T> x, Parameter<T>* norm, size_t heads) const {
  if (!norm) return split_heads(x, heads);
  Var<T> weight = weights(norm);
  if (config_.norm_offset != 0) weight = add_constant(weight, config_.norm_offset);
  if (config_.qk_norm == QkNorm::kFull) return split_heads(rms_norm(x, weight, config_.norm_eps), heads);
  return rms_norm(split_heads(x, heads), weight, config_.norm_eps);
}

template <class T>
typename Attention<T>::Heads Attention<T>::heads(const Weights<T>& weights, Var<T> x, size_t seen) const {
  return {rotation_(normed(weights, q_(weights, x), q_norm_, config_.heads), seen),
          rotation_(normed(weights, k_(weights, x), k_norm_, config_.kv_heads), seen),
          split_heads(v_(weights, x), config_.kv_heads)};
}

template <class T>
Var<T> Attention<T>::output(const Weights<T>& weights, Var<T> x, Var<T> o, Var<T> residual) const {
  Var<T> y = merge_heads(o);
  if (g_.weight) y = output_gate(y, g_(weights, x), OutputGate::kSigmoid);
  return linear(y, weights(out_.weight), weights(out_.bias), residual);
}

template <class T>
Pass<T> Attention<T>::apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states, size_t seen,
                            Face face) const {
  const Heads fresh = heads(weights, x, seen);
  const Var<T> k = with_cached(this->state_or_none(states, 0), fresh.k);
  const Var<T> v = with_cached(this->state_or_none(states, 1), fresh.v);
  SoftmaxAttentionOptions options = options_;
  options.face = face;
  return {output(weights, x, softmax_attention(fresh.q, k, v, options), {}), {k, v}};  // (AT4)
}

template <class T>
Tensor<T> Attention<T>::extend(State<T>& state, const Tensor<T>& x, const Tensor<T>& residual) const {
  Tape<T> tape;
  const NoGrad<T> no_grad(tape);
  const Var<T> in = tape.constant(x);
  const Var<T> rest = residual_on(tape, x, residual);
  const Heads fresh = heads(tape, in, state.length);
  const Tensor<T> o =
      softmax_attention_extend(state, fresh.q.value(), fresh.k.value(), fresh.v.value(), options_);
  return output(tape, in, tape.constant(o), rest).value();
}

template Var<float> with_cached(Var<float>, Var<float>);
template Var<double> with_cached(Var<double>, Var<double>);
template Var<float> residual_on(Tape<float>&, const Tensor<float>&, const Tensor<float>&);
template Var<double> residual_on(Tape<double>&, const Tensor<double>&, const Tensor<double>&);
template class Attention<float>;
template class Attention<double>;

}  // namespace storytape
