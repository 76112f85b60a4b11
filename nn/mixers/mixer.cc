#include "nn/mixers/mixer.h"

#include <cmath>

#include "autograd/ops.h"
#include "nn/linear.h"
#include "nn/mixers/linear_attention.h"
#include "nn/mixers/softmax_attention.h"

namespace storytape {
namespace {

// The four D×D maps that both of the course's layers have.
template <class T>
struct Projections {
  Projections(const MixerConfig& config, ParameterList<T>& parameters, const std::string& name)
      : heads(config.heads),
        q(parameters, name + ".q", config.dim, config.dim, config.bias),
        k(parameters, name + ".k", config.dim, config.dim, config.bias),
        v(parameters, name + ".v", config.dim, config.dim, config.bias),
        out(parameters, name + ".out", config.dim, config.dim, config.bias) {}

  // Heads are contiguous blocks of columns, so [B, T, D] is [B, T, H, d] as it lies.
  Var<T> split(Var<T> x) const { return reshape(x, split_shape(x.shape())); }
  Tensor<T> split(const Tensor<T>& x) const { return x.reshape(split_shape(x.shape())); }
  Shape split_shape(const Shape& s) const { return {s[0], s[1], heads, s[2] / heads}; }

  size_t heads;
  Linear<T> q, k, v, out;
};

// Softmax attention over all earlier tokens, scale 1/sqrt(d_h): the course's MultiHeadAttention.
template <class T>
class FullMixer final : public Mixer<T> {
 public:
  FullMixer(const MixerConfig& config, ParameterList<T>& parameters, const std::string& name)
      : maps_(config, parameters, name), head_dim_(config.dim / config.heads) {
    options_.scale = 1 / std::sqrt(static_cast<double>(head_dim_));
  }

  std::string_view kind() const override { return "full"; }

  Var<T> forward(Tape<T>& tape, Var<T> x, Face face, Var<T> residual) const override {
    SoftmaxAttentionOptions options = options_;
    options.face = face;
    const Var<T> o = softmax_attention(maps_.split(maps_.q(tape, x)), maps_.split(maps_.k(tape, x)),
                                       maps_.split(maps_.v(tape, x)), options);
    return maps_.out(tape, reshape(o, x.shape()), residual);
  }

  State<T> init_state(size_t batch) const override {
    return softmax_attention_state<T>(batch, maps_.heads, head_dim_, head_dim_);
  }

  Tensor<T> extend(State<T>& state, const Tensor<T>& x, const Tensor<T>& residual) const override {
    const Tensor<T> o =
        softmax_attention_extend(state, maps_.split(maps_.q.apply(x)), maps_.split(maps_.k.apply(x)),
                                 maps_.split(maps_.v.apply(x)), options_);
    return maps_.out.apply(o.reshape(x.shape()), residual.defined() ? &residual : nullptr);
  }

 private:
  Projections<T> maps_;
  size_t head_dim_;
  SoftmaxAttentionOptions options_;
};

// The course's LinearAttention: φ = elu + 1, one learned decay γ = sigmoid(gamma_logit) per head in S and z.
template <class T>
class LinearMixer final : public Mixer<T> {
 public:
  LinearMixer(const MixerConfig& config, ParameterList<T>& parameters, const std::string& name)
      : maps_(config, parameters, name),
        gamma_logit_(parameters.add(name + ".gamma_logit", {config.heads}, Init::constant(4.6))),
        head_dim_(config.dim / config.heads) {
    options_.eps = config.linear_eps;
  }

  std::string_view kind() const override { return "linear"; }

  Var<T> forward(Tape<T>& tape, Var<T> x, Face face, Var<T> residual) const override {
    LinearAttentionOptions options = options_;
    options.face = face;
    const Var<T> gamma = sigmoid(tape.parameter(gamma_logit_));
    const auto result = linear_attention(maps_.split(maps_.q(tape, x)), maps_.split(maps_.k(tape, x)),
                                         maps_.split(maps_.v(tape, x)), gamma, Var<T>(), Var<T>(), options);
    return maps_.out(tape, reshape(result.o, x.shape()), residual);
  }

  State<T> init_state(size_t batch) const override {
    return linear_attention_state<T>(batch, maps_.heads, head_dim_, head_dim_, options_);
  }

  Tensor<T> extend(State<T>& state, const Tensor<T>& x, const Tensor<T>& residual) const override {
    const Tensor<T> gamma = unary(Unary::kSigmoid, std::as_const(gamma_logit_).value());
    const Tensor<T> o =
        linear_attention_extend(state, maps_.split(maps_.q.apply(x)), maps_.split(maps_.k.apply(x)),
                                maps_.split(maps_.v.apply(x)), gamma, options_);
    return maps_.out.apply(o.reshape(x.shape()), residual.defined() ? &residual : nullptr);
  }

 private:
  Projections<T> maps_;
  Parameter<T>& gamma_logit_;
  size_t head_dim_;
  LinearAttentionOptions options_;
};

}  // namespace

template <class T>
std::unique_ptr<Mixer<T>> make_mixer(std::string_view kind, const MixerConfig& config,
                                     ParameterList<T>& parameters, const std::string& name) {
  if (kind == "full") return std::make_unique<FullMixer<T>>(config, parameters, name);
  if (kind == "linear") return std::make_unique<LinearMixer<T>>(config, parameters, name);
  fail("unknown mixer \"{}\"", kind);
}

template std::unique_ptr<Mixer<float>> make_mixer(std::string_view, const MixerConfig&, ParameterList<float>&,
                                                  const std::string&);
template std::unique_ptr<Mixer<double>> make_mixer(std::string_view, const MixerConfig&,
                                                   ParameterList<double>&, const std::string&);

}  // namespace storytape
