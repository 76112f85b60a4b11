#include "nn/layers/rwkv4.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "autograd/ops.h"
#include "nn/mixers/rwkv_time_mix.h"
#include "nn/token_shift.h"

namespace storytape {
namespace {

void check_place(const char* layer, const LayerPlace& place) {
  if (place.layer >= place.layers) {
    fail("{}: layer {} of {}; they are counted from 0", layer, place.layer, place.layers);
  }
}

TimeMixConfig checked(TimeMixConfig c) {
  check_sizes("rwkv4", {{"dim", c.dim}});
  check_place("rwkv4", c.place);
  if (c.attention_dim == 0) c.attention_dim = c.dim;
  return c;
}

ChannelMixConfig checked(ChannelMixConfig c) {
  check_sizes("rwkv4_channel_mix", {{"dim", c.dim}});
  check_place("rwkv4_channel_mix", c.place);
  if (c.hidden == 0) c.hidden = 4 * c.dim;
  return c;
}

RwkvBlockConfig checked(const RwkvBlockConfig& c) {
  check_sizes("rwkv4_block", {{"dim", c.dim}});
  check_place("rwkv4_block", c.place);
  if (!(c.ln_eps > 0)) fail("rwkv4_block: ln_eps is {}, wanted a positive number", c.ln_eps);
  return c;
}

double ratio(size_t part, size_t whole) {
  return whole ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

// How far down the layer is: from 0 for the first to 1 for the last.
double depth(const LayerPlace& place) {
  return ratio(place.layer, place.layers - 1);
}

// (i / D)^(power (1 - l / L)) + shift: how much of the token itself goes into channel i.
Init mix(size_t dim, const LayerPlace& place, double power = 1, double shift = 0) {
  const double exponent = power * (1 - ratio(place.layer, place.layers));
  return {[=](Random&, size_t i) { return std::pow(ratio(i, dim), exponent) + shift; }};
}

// Of [in, out]: rows or columns, whichever are fewer, of one length and at right angles.
Init orthogonal(size_t in, size_t out) {
  const double gain = out > in ? std::sqrt(ratio(out, in)) : 1;
  auto values = std::make_shared<std::vector<double>>();
  return {[=](Random& random, size_t i) {
    const size_t vectors = std::min(in, out), length = std::max(in, out);
    if (i == 0) {
      std::vector<double>& x = *values;
      x.resize(vectors * length);
      for (double& value : x) value = random.normal();
      for (size_t a = 0; a < vectors; ++a) {
        double* const v = x.data() + a * length;
        const auto dot = [&](const double* w) {
          double sum = 0;
          for (size_t c = 0; c < length; ++c) sum += v[c] * w[c];
          return sum;
        };
        // What rounding leaves of the earlier ones, the second pass takes away.
        for (int pass = 0; pass < 2; ++pass) {
          for (size_t b = 0; b < a; ++b) {
            const double* const w = x.data() + b * length;
            const double along = dot(w);
            for (size_t c = 0; c < length; ++c) v[c] -= along * w[c];
          }
        }
        const double norm = std::sqrt(dot(v));
        for (size_t c = 0; c < length; ++c) v[c] /= norm;
      }
    }
    const size_t row = i / out, column = i % out;
    return gain * (out > in ? (*values)[row * length + column] : (*values)[column * length + row]);
  }};
}

template <class T>
Projection<T> map(ParameterList<T>& parameters, const std::string& name, size_t in, size_t out) {
  return Projection<T>(parameters, name, in, out, false, orthogonal(in, out));
}

}  // namespace

template <class T>
TimeMix<T>::TimeMix(const TimeMixConfig& config, ParameterList<T>& parameters, const std::string& name)
    : config_(checked(config)),
      mu_r_(&parameters.add(name + ".mu_r", {config.dim}, mix(config.dim, config.place, 0.5))),
      mu_k_(&parameters.add(name + ".mu_k", {config.dim}, mix(config.dim, config.place))),
      mu_v_(&parameters.add(name + ".mu_v", {config.dim},
                            mix(config.dim, config.place, 1, 0.3 * depth(config.place)))),
      r_(map(parameters, name + ".r", config.dim, config_.attention_dim)),
      k_(map(parameters, name + ".k", config.dim, config_.attention_dim)),
      v_(map(parameters, name + ".v", config.dim, config_.attention_dim)),
      out_(map(parameters, name + ".out", config_.attention_dim, config.dim)) {
  const size_t channels = config_.attention_dim;
  const double exponent = 0.7 + 1.3 * depth(config.place);
  const Init decays{[=](Random&, size_t h) { return -5 + 8 * std::pow(ratio(h, channels - 1), exponent); }};
  const Init bonus{
      [](Random&, size_t h) { return std::log(0.3) + 0.5 * (static_cast<double>((h + 1) % 3) - 1); }};
  time_decay_ = &parameters.add(name + ".time_decay", {channels}, decays);
  u_ = &parameters.add(name + ".u", {channels}, bonus);
}

template <class T>
std::vector<StateTensor> TimeMix<T>::state_tensors(size_t batch) const {
  const Shape sums{batch, config_.attention_dim};
  return {{"x_prev", {batch, config_.dim}},
          {"mean", sums},
          {"logden", sums, -std::numeric_limits<double>::infinity()}};
}

template <class T>
Pass<T> TimeMix<T>::apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states, size_t,
                          Face face) const {
  const TimeMixWeights<Var<T>> mixed{
      weights(mu_r_),     weights(mu_k_),     weights(mu_v_),       weights(r_.weight),
      weights(k_.weight), weights(v_.weight), weights(out_.weight), exp(weights(time_decay_)),
      weights(u_)};
  WkvOptions options;
  options.face = face;
  const TimeMixResult<T> result =
      rwkv_time_mix(mixed, x, this->state_or_none(states, 0), this->state_or_none(states, 1),
                    this->state_or_none(states, 2), options);  // (RW1), (RW2)
  return {result.y, {result.last, result.mean, result.logden}};
}

template <class T>
ChannelMix<T>::ChannelMix(const ChannelMixConfig& config, ParameterList<T>& parameters,
                          const std::string& name)
    : config_(checked(config)),
      mu_k_(&parameters.add(name + ".mu_k", {config.dim}, mix(config.dim, config.place))),
      mu_r_(&parameters.add(name + ".mu_r", {config.dim}, mix(config.dim, config.place))),
      k_(map(parameters, name + ".k", config.dim, config_.hidden)),
      v_(map(parameters, name + ".v", config_.hidden, config.dim)),
      r_(map(parameters, name + ".r", config.dim, config.dim)) {}

template <class T>
std::vector<StateTensor> ChannelMix<T>::state_tensors(size_t batch) const {
  return {{"x_prev", {batch, config_.dim}}};
}

template <class T>
Pass<T> ChannelMix<T>::apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states, size_t,
                             Face) const {
  const Var<T> x_prev = this->state_or_none(states, 0);
  const TokenShiftResult<T> for_k = token_shift(x, weights(mu_k_), x_prev);
  const Var<T> k = k_(weights, for_k.y);
  Tensor<T> positive(k.shape());
  std::transform(k.value().data(), k.value().data() + positive.size(), positive.data(),
                 [](T z) { return z > 0 ? T{1} : T{0}; });
  const Var<T> none = weights.tape().constant(Tensor<T>::zeros(k.shape()));
  const Var<T> v = v_(weights, square(select(positive, k, none)));
  const Var<T> r = r_(weights, token_shift(x, weights(mu_r_), x_prev).y);
  return {mul(sigmoid(r), v), {for_k.last}};  // (RW3)
}

template <class T>
RwkvBlock<T>::Norm::Norm(ParameterList<T>& parameters, const std::string& name, size_t dim)
    : weight(&parameters.add(name + ".weight", {dim}, Init::constant(1))),
      bias(&parameters.add(name + ".bias", {dim}, Init::constant(0))) {}

template <class T>
RwkvBlock<T>::RwkvBlock(const RwkvBlockConfig& config, ParameterList<T>& parameters, const std::string& name)
    : ln_eps_(checked(config).ln_eps),
      ln0_(config.first ? std::vector<Norm>{Norm(parameters, name + ".ln0", config.dim)}
                        : std::vector<Norm>{}),
      ln1_(parameters, name + ".ln1", config.dim),
      att_({config.dim, config.attention_dim, config.place}, parameters, name + ".att"),
      ln2_(parameters, name + ".ln2", config.dim),
      ffn_({config.dim, config.hidden, config.place}, parameters, name + ".ffn") {}

template <class T>
std::vector<StateTensor> RwkvBlock<T>::state_tensors(size_t batch) const {
  std::vector<StateTensor> all;
  const auto add = [&](const char* part, const Layer<T>& layer) {
    for (StateTensor& s : layer.state_tensors(batch)) {
      s.name = part + s.name;
      all.push_back(std::move(s));
    }
  };
  add("att.", att_);
  add("ffn.", ffn_);
  return all;
}

template <class T>
Var<T> RwkvBlock<T>::normed(const Weights<T>& weights, const Norm& norm, Var<T> x) const {
  return layer_norm(x, weights(norm.weight), weights(norm.bias), ln_eps_);
}

template <class T>
Pass<T> RwkvBlock<T>::apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states, size_t seen,
                            Face face) const {
  const size_t of_att = std::min<size_t>(states.size(), 3);
  const Var<T> h = ln0_.empty() ? x : normed(weights, ln0_[0], x);  // (RW4)
  Pass<T> att = att_.apply(weights, normed(weights, ln1_, h), states.first(of_att), seen, face);
  const Var<T> middle = add(h, att.y);  // (RW5)
  const Pass<T> ffn = ffn_.apply(weights, normed(weights, ln2_, middle), states.subspan(of_att), seen, face);
  att.states.push_back(ffn.states[0]);
  return {add(middle, ffn.y), std::move(att.states)};
}

template class TimeMix<float>;
template class TimeMix<double>;
template class ChannelMix<float>;
template class ChannelMix<double>;
template class RwkvBlock<float>;
template class RwkvBlock<double>;

}  // namespace storytape
