#include "nn/layers/mla.h"

#include <algorithm>
#include <cmath>

#include "autograd/ops_arithmetic.h"
#include "autograd/ops_norm.h"
#include "autograd/ops_shape.h"
#include "nn/layers/attention.h"
#include "nn/mixers/softmax_attention.h"
#include "tensor/gemm.h"

namespace storytape {
namespace {

constexpr const char* kName = "mla";

MlaConfig checked(const MlaConfig& c) {
  check_sizes(kName, {{"dim", c.dim},
                      {"heads", c.heads},
                      {"nope_dim", c.nope_dim},
                      {"rope_dim", c.rope_dim},
                      {"value_dim", c.value_dim},
                      {"latent", c.latent}});
  if (!(c.rope_base >= 0)) {
    fail("{}: the rotation's base is {}, wanted a positive number, or 0 for none", kName, c.rope_base);
  }
  if (c.rope_base > 0) check_rotation(kName, c.rope_dim, c.rope_dim, c.rope_base);
  if (!(c.latent_eps > 0)) fail("{}: latent_eps is {}, wanted a positive number", kName, c.latent_eps);
  return c;
}

}  // namespace

template <class T>
LatentAttention<T>::LatentAttention(const MlaConfig& config, ParameterList<T>& parameters,
                                    const std::string& name)
    : config_(checked(config)),
      kva_(parameters, name + ".kva", config.dim, config.latent),
      kr_(parameters, name + ".kr", config.dim, config.rope_dim),
      kb_(parameters, name + ".kb", config.latent, config.heads * config.nope_dim),
      vb_(parameters, name + ".vb", config.latent, config.heads * config.value_dim),
      out_(parameters, name + ".out", config.heads * config.value_dim, config.dim),
      kva_norm_(&parameters.add(name + ".kva_norm.weight", {config.latent}, Init::constant(1))),
      rotation_(config.rope_base > 0 ? config.rope_dim : 0, config.rope_base, RopePairs::kNeighbours) {
  const size_t in = config.query_latent ? config.query_latent : config.dim;
  if (config.query_latent) {
    qa_ = Projection<T>(parameters, name + ".qa", config.dim, in);
    qa_norm_ = &parameters.add(name + ".qa_norm.weight", {in}, Init::constant(1));
  }
  qn_ = Projection<T>(parameters, name + ".qn", in, config.heads * config.nope_dim);
  qr_ = Projection<T>(parameters, name + ".qr", in, config.heads * config.rope_dim);
}

template <class T>
std::vector<StateTensor> LatentAttention<T>::state_tensors(size_t batch) const {
  return {{"k", {batch, 0, 1, config_.latent + config_.rope_dim}}};
}

template <class T>
double LatentAttention<T>::scale() const {
  return 1 / std::sqrt(static_cast<double>(config_.nope_dim + config_.rope_dim));
}

template <class T>
typename LatentAttention<T>::Parts LatentAttention<T>::parts(const Weights<T>& weights, Var<T> x,
                                                             size_t seen) const {
  const Var<T> l = qa_norm_ ? rms_norm(qa_(weights, x), weights(qa_norm_), config_.latent_eps) : x;  // (ML1)
  const Var<T> q_nope = split_heads(qn_(weights, l), config_.heads);
  const Var<T> q_rope = rotation_(split_heads(qr_(weights, l), config_.heads), seen);   // (ML3)
  const Var<T> c = rms_norm(kva_(weights, x), weights(kva_norm_), config_.latent_eps);  // (ML2)
  const Var<T> kappa = rotation_(split_heads(kr_(weights, x), 1), seen);
  return {q_nope, q_rope, concat<T>({split_heads(c, 1), kappa}, 3)};
}

template <class T>
Pass<T> LatentAttention<T>::apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states,
                                  size_t seen, Face face) const {
  const Parts fresh = parts(weights, x, seen);
  const Var<T> latent = with_cached(this->state_or_none(states, 0), fresh.latent);
  const size_t r = config_.latent;
  const Var<T> c = merge_heads(slice(latent, 3, 0, r));
  const Var<T> kappa = repeat_heads(slice(latent, 3, r, r + config_.rope_dim), config_.heads);
  const Var<T> k = concat<T>({split_heads(kb_(weights, c), config_.heads), kappa}, 3);  // (ML4)
  const Var<T> v = split_heads(vb_(weights, c), config_.heads);
  SoftmaxAttentionOptions options;
  options.face = face;
  options.scale = scale();
  const Var<T> o = softmax_attention(concat<T>({fresh.q_nope, fresh.q_rope}, 3), k, v, options);  // (ML5)
  return {out_(weights, merge_heads(o)), {latent}};                                               // (ML6)
}

template <class T>
Tensor<T> LatentAttention<T>::extend(State<T>& state, const Tensor<T>& x, const Tensor<T>& residual) const {
  Tape<T> tape;
  const NoGrad<T> no_grad(tape);
  const Weights<T> weights(tape);
  const Var<T> rest = residual_on(tape, x, residual);
  const Parts fresh = parts(weights, tape.constant(x), state.length);
  const size_t rows = x.size(0) * x.size(1), heads = config_.heads, r = config_.latent;
  const size_t n = config_.nope_dim, dv = config_.value_dim, width = r + config_.rope_dim;

  // (ML7): every head's query, of the width of a latent.
  Tensor<T> q({x.size(0), x.size(1), heads, width});
  const Tensor<T> q_nope = fresh.q_nope.value(), q_rope = fresh.q_rope.value();
  const Tensor<T>& w_kb = std::as_const(*kb_.weight).value();
  const Tensor<T>& w_vb = std::as_const(*vb_.weight).value();
  T* const to = q.data();
  for (size_t h = 0; h < heads; ++h) {
    gemm(Trans::kNo, Trans::kYes, rows, r, n, T{1}, q_nope.data() + h * n, heads * n, w_kb.data() + h * n,
         heads * n, T{0}, to + h * width, heads * width);
  }
  for (size_t i = 0; i < rows * heads; ++i) {
    std::copy_n(q_rope.data() + i * (width - r), width - r, to + i * width + r);
  }
  SoftmaxAttentionOptions options;
  options.scale = scale();
  const Tensor<T> sums = softmax_attention_extend(state, q, fresh.latent.value(), Tensor<T>(), options);
  Tensor<T> o({x.size(0), x.size(1), heads * dv});
  T* const out = o.data();
  for (size_t h = 0; h < heads; ++h) {
    gemm(Trans::kNo, Trans::kNo, rows, dv, r, T{1}, sums.data() + h * width, heads * width,
         w_vb.data() + h * dv, heads * dv, T{0}, out + h * dv, heads * dv);
  }
  return linear(tape.constant(o), weights(out_.weight), Var<T>(), rest).value();
}

template class LatentAttention<float>;
template class LatentAttention<double>;

}  // namespace storytape
