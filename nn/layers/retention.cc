#include "nn/layers/retention.h"

#include <cmath>

#include "nn/gates.h"
#include "nn/mixers/retention.h"
#include "nn/normalize.h"
#include "nn/rope.h"

namespace storytape {
namespace {

constexpr const char* kName = "retention";

RetentionConfig checked(RetentionConfig c) {
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  check_sizes(kName,
              {{"dim", c.dim}, {"heads", c.heads}, {"key_dim", c.key_dim}, {"value_dim", c.value_dim}});
  check_head_groups(kName, "heads", c.heads, "kv_heads", c.kv_heads);
  if (c.rotation && c.key_dim % 2 != 0) {
    fail("{}: key_dim is {}, and a rotation turns pairs of channels: wanted an even number", kName,
         c.key_dim);
  }
  return c;
}

}  // namespace

template <class T>
Retention<T>::Retention(const RetentionConfig& config, ParameterList<T>& parameters, const std::string& name)
    : config_(checked(config)),
      q_(parameters, name + ".q", config.dim, config.heads * config.key_dim),
      k_(parameters, name + ".k", config.dim, config_.kv_heads * config.key_dim),
      v_(parameters, name + ".v", config.dim, config_.kv_heads * config.value_dim),
      g_(parameters, name + ".g", config.dim, config.heads * config.value_dim),
      out_(parameters, name + ".out", config.heads * config.value_dim, config.dim) {
  if (!config.group_norm) {
    norm_ = &parameters.add(name + ".norm.weight", {config.value_dim}, Init::constant(1));
  }
}

template <class T>
std::vector<StateTensor> Retention<T>::state_tensors(size_t batch) const {
  return {{"S", {batch, config_.heads, config_.key_dim, config_.value_dim}}};
}

template <class T>
Pass<T> Retention<T>::apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states, size_t seen,
                            Face face) const {
  const size_t heads = config_.heads;
  Var<T> q = split_heads(q_(weights, x), heads);  // (RT1)
  Var<T> k = split_heads(k_(weights, x), config_.kv_heads);
  const Var<T> v = split_heads(v_(weights, x), config_.kv_heads);
  if (config_.rotation) {  // (RT2)
    const RopeTable<T> table(config_.key_dim, seen, x.shape()[1], config_.rope_base);
    q = rope(q, table, seen);
    k = rope(k, table, seen);
  }
  const Var<T> gamma = weights.tape().constant(multiscale_decays<T>(heads));
  const double root = std::sqrt(static_cast<double>(config_.key_dim));
  const auto core = retention(scale(q, 1 / root), repeat_heads(k, heads), repeat_heads(v, heads), gamma,
                              this->state_or_none(states, 0), retention_options(face));  // (RT3)
  const Var<T> g = g_(weights, x);
  const Var<T> o = norm_ ? gated_head_norm(core.o, weights(norm_), g, OutputGate::kSilu, config_.norm_eps)
                         : swish_gate(merge_heads(group_norm(core.o, 1, config_.norm_eps)), g);
  return {out_(weights, o), {core.S}};  // (RT4)
}

template class Retention<float>;
template class Retention<double>;

}  // namespace storytape
