// The layers around the linear and recurrent cores, scalar by scalar, and the points they are proven at.
#include <cmath>

#include "nn/layers/deltanet.h"
#include "nn/layers/examples.h"
#include "nn/layers/gated_deltanet.h"
#include "nn/layers/gated_deltaproduct.h"
#include "nn/layers/gla.h"
#include "nn/layers/kda.h"
#include "nn/layers/mamba2.h"
#include "nn/layers/reference.h"
#include "nn/layers/retention.h"
#include "nn/mixers/reference.h"

namespace storytape {
namespace {

using reference::Complex;
using States = std::vector<ComplexTensor>;

const auto kSilu = [](const Complex& v) { return reference::silu(v); };
const auto kSigmoid = [](const Complex& v) { return reference::sigmoid(v); };

double root(size_t n) {
  return std::sqrt(static_cast<double>(n));
}

ComplexTensor scaled(const ComplexTensor& x, double factor) {
  return map(x, [factor](const Complex& v) { return factor * v; });
}

// o of the recurrence from "S before"; the state after is added to `states`. Shapes are flat: heads by
// columns.
ComplexTensor recurrence(const LayerInputs& in, const reference::MixerSize& n, size_t steps, bool per_channel,
                         const ComplexTensor& q, const ComplexTensor& k, const ComplexTensor& v,
                         const ComplexTensor* alpha, const ComplexTensor* beta, States& states) {
  ComplexTensor S({n.batch, n.heads, n.dk, n.dv}), o({n.batch, n.tokens, n.heads * n.dv});
  if (in.has("S before")) S.values = in["S before"].values;
  reference::gated_recurrence<Complex>(n, steps, per_channel, q.data(), k.data(), v.data(),
                                       alpha ? alpha->data() : nullptr, beta ? beta->data() : nullptr,
                                       S.data(), o.data());
  states.push_back(std::move(S));
  return o;
}

// norm, gate, output projection; y before the states.
States finished(const LayerInputs& in, ComplexTensor o, OutputGate gate, const ComplexTensor& g, double eps,
                const States& states) {
  o = reference::normed(o, in["norm.weight"], eps);
  if (gate != OutputGate::kNone) {
    o = gate == OutputGate::kSilu ? reference::gated(o, g, kSilu) : reference::gated(o, g, kSigmoid);
  }
  States all{reference::projection(in, "out", o)};
  all.insert(all.end(), states.begin(), states.end());
  return all;
}

ComplexTensor gate_input(const LayerInputs& in, OutputGate gate) {
  return gate == OutputGate::kNone ? ComplexTensor() : reference::projection(in, "g", in["x"]);
}

ComplexTensor strength(const LayerInputs& in, const std::string& name, double factor) {
  return scaled(map(reference::projection(in, name, in["x"]), kSigmoid), factor);
}

// One tensor [B, T, C] per write, as [B, T n_h, C].
ComplexTensor interleaved(const std::vector<ComplexTensor>& parts) {
  const Shape s = parts[0].shape;
  const size_t n = parts.size(), width = s[2];
  ComplexTensor y({s[0], s[1] * n, width});
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t write = i / width;
    y[i] = parts[write % n][write / n * width + i % width];
  }
  return y;
}

States gated_deltanet(const GatedDeltaNetConfig& c, const LayerInputs& in) {
  States states;
  const ComplexTensor& x = in["x"];
  const ComplexTensor q = reference::convolved(in, "q", x, states),
                      k = reference::convolved(in, "k", x, states),
                      v = reference::convolved(in, "v", x, states);
  const auto heads = [&](const ComplexTensor& rows) {
    return reference::repeated(rows, c.key_heads, c.value_heads, c.key_dim);
  };
  const ComplexTensor alpha =
      reference::decay(reference::projection(in, "a", x), in["A_log"], in["dt_bias"], 1);
  const ComplexTensor beta = strength(in, "b", c.beta_scale);
  const ComplexTensor o = recurrence(in, {x.shape[0], x.shape[1], c.value_heads, c.key_dim, c.value_dim}, 1,
                                     false, heads(reference::unit_rows(q, c.key_dim, 1 / root(c.key_dim))),
                                     heads(reference::unit_rows(k, c.key_dim, 1)), v, &alpha, &beta, states);
  return finished(in, o, c.gate, gate_input(in, c.gate), c.norm_eps, states);
}

States deltanet(const DeltaNetConfig& c, const LayerInputs& in) {
  States states;
  const ComplexTensor& x = in["x"];
  const ComplexTensor q = reference::convolved(in, "q", x, states),
                      k = reference::convolved(in, "k", x, states),
                      v = reference::convolved(in, "v", x, states), beta = strength(in, "b", c.beta_scale);
  const ComplexTensor o = recurrence(in, {x.shape[0], x.shape[1], c.heads, c.key_dim, c.value_dim}, 1, false,
                                     reference::unit_rows(q, c.key_dim, 1 / root(c.key_dim)),
                                     reference::unit_rows(k, c.key_dim, 1), v, nullptr, &beta, states);
  return finished(in, o, c.gate, gate_input(in, c.gate), c.norm_eps, states);
}

States gated_deltaproduct(const GatedDeltaProductConfig& c, const LayerInputs& in) {
  States states;
  const ComplexTensor& x = in["x"];
  const auto heads = [&](const ComplexTensor& rows) {
    return reference::repeated(rows, c.key_heads, c.value_heads, c.key_dim);
  };
  const ComplexTensor q = reference::convolved(in, "q", x, states);
  std::vector<ComplexTensor> k, v, beta;
  for (size_t j = 0; j < c.steps; ++j) {
    const std::string number = std::to_string(j);
    k.push_back(heads(reference::unit_rows(reference::convolved(in, "k" + number, x, states), c.key_dim, 1)));
    v.push_back(reference::convolved(in, "v" + number, x, states));
    beta.push_back(strength(in, "b" + number, c.beta_scale));
  }
  ComplexTensor alpha;
  if (c.forget) alpha = reference::decay(reference::projection(in, "a", x), in["A_log"], in["dt_bias"], 1);
  const ComplexTensor strengths = interleaved(beta);
  const ComplexTensor o =
      recurrence(in, {x.shape[0], x.shape[1], c.value_heads, c.key_dim, c.value_dim}, c.steps, false,
                 heads(reference::unit_rows(q, c.key_dim, 1 / root(c.key_dim))), interleaved(k),
                 interleaved(v), c.forget ? &alpha : nullptr, &strengths, states);
  return finished(in, o, c.gate, gate_input(in, c.gate), c.norm_eps, states);
}

States kda(const KdaConfig& c, const LayerInputs& in) {
  States states;
  const ComplexTensor& x = in["x"];
  const ComplexTensor q = reference::convolved(in, "q", x, states),
                      k = reference::convolved(in, "k", x, states),
                      v = reference::convolved(in, "v", x, states);
  const auto heads = [&](const ComplexTensor& rows) {
    return reference::repeated(rows, c.key_heads, c.value_heads, c.key_dim);
  };
  const ComplexTensor f = reference::projection(in, "f2", reference::projection(in, "f1", x));
  const ComplexTensor &A_log = in["A_log"], &bias = in["dt_bias"];
  ComplexTensor alpha = reference::decay(f, A_log, bias, c.key_dim);
  for (size_t i = 0; c.lower_bound < 0 && i < f.size(); ++i) {
    const size_t column = i % bias.size();
    const Complex steep = std::exp(A_log[column / c.key_dim]) * (f[i] + bias[column]);
    alpha[i] = std::exp(c.lower_bound * reference::sigmoid(steep));
  }
  const ComplexTensor beta = strength(in, "b", c.beta_scale);
  const ComplexTensor o = recurrence(in, {x.shape[0], x.shape[1], c.value_heads, c.key_dim, c.value_dim}, 1,
                                     true, heads(reference::unit_rows(q, c.key_dim, 1 / root(c.key_dim))),
                                     heads(reference::unit_rows(k, c.key_dim, 1)), v, &alpha, &beta, states);
  const ComplexTensor g = reference::projection(in, "g2", reference::projection(in, "g1", x));
  return finished(in, o, OutputGate::kSigmoid, g, c.norm_eps, states);
}

States gla(const GlaConfig& c, const LayerInputs& in) {
  States states;
  const ComplexTensor& x = in["x"];
  const ComplexTensor q = reference::convolved(in, "q", x, states, c.convolution.silu_alone),
                      k = reference::convolved(in, "k", x, states, c.convolution.silu_alone),
                      v = reference::convolved(in, "v", x, states, c.convolution.silu_alone);
  const ComplexTensor z = reference::projection(in, "gk2", reference::projection(in, "gk1", x));
  const ComplexTensor alpha =
      map(z, [&](const Complex& value) { return std::exp(reference::log_sigmoid(value) / c.tau); });
  const auto heads = [&](const ComplexTensor& rows, size_t width) {
    return reference::repeated(rows, c.kv_heads, c.heads, width);
  };
  const ComplexTensor decays = heads(alpha, c.key_dim);
  const ComplexTensor o = recurrence(in, {x.shape[0], x.shape[1], c.heads, c.key_dim, c.value_dim}, 1, true,
                                     scaled(q, 1 / root(c.key_dim)), heads(k, c.key_dim),
                                     heads(v, c.value_dim), &decays, nullptr, states);
  return finished(in, o, c.gate, gate_input(in, c.gate), c.norm_eps, states);
}

States retention(const RetentionConfig& c, size_t seen, const LayerInputs& in) {
  States states;
  const ComplexTensor& x = in["x"];
  const size_t batch = x.shape[0], tokens = x.shape[1], dk = c.key_dim;
  const auto rotated = [&](ComplexTensor rows, size_t heads) {
    const ComplexTensor before = rows;
    for (size_t i = 0; c.rotation && i < rows.size(); ++i) {
      const size_t channel = i % dk, pair = channel % (dk / 2), token = i / (heads * dk) % tokens;
      const double angle = static_cast<double>(token + seen) *
                           std::pow(c.rope_base, -2 * static_cast<double>(pair) / static_cast<double>(dk));
      const bool first = channel < dk / 2;
      const Complex& other = before[first ? i + dk / 2 : i - dk / 2];
      rows[i] = before[i] * std::cos(angle) + (first ? -other : other) * std::sin(angle);
    }
    return rows;
  };
  const ComplexTensor q = scaled(rotated(reference::projection(in, "q", x), c.heads), 1 / root(dk));
  const ComplexTensor k =
      reference::repeated(rotated(reference::projection(in, "k", x), c.kv_heads), c.kv_heads, c.heads, dk);
  const ComplexTensor v =
      reference::repeated(reference::projection(in, "v", x), c.kv_heads, c.heads, c.value_dim);
  ComplexTensor gamma({batch, tokens, c.heads});
  for (size_t i = 0; i < gamma.size(); ++i)
    gamma[i] = 1 - std::ldexp(1.0, -5 - static_cast<int>(i % c.heads));
  const ComplexTensor o =
      recurrence(in, {batch, tokens, c.heads, dk, c.value_dim}, 1, false, q, k, v, &gamma, nullptr, states);
  const ComplexTensor g = reference::projection(in, "g", x);
  if (!c.group_norm) return finished(in, o, OutputGate::kSilu, g, c.norm_eps, states);
  ComplexTensor n(o.shape);
  for (size_t i = 0; i < o.size(); i += c.value_dim) {
    reference::layer_norm<Complex>(o.data() + i, nullptr, nullptr, c.norm_eps, n.data() + i, c.value_dim);
  }
  return {reference::projection(in, "out", reference::gated(n, g, kSilu)), states[0]};
}

States mamba2(const Mamba2Config& c, const LayerInputs& in) {
  States states;
  const ComplexTensor& x = in["x"];
  const ComplexTensor u = reference::convolved(in, "x", x, states),
                      B = reference::convolved(in, "B", x, states),
                      C = reference::convolved(in, "C", x, states);
  const auto heads = [&](const ComplexTensor& rows) {
    return reference::repeated(rows, c.groups, c.heads, c.state_dim);
  };
  ComplexTensor dt = reference::projection(in, "dt", x), alpha = dt, k = heads(B);
  for (size_t i = 0; i < dt.size(); ++i) {
    const size_t head = i % c.heads;
    dt[i] = reference::softplus(Complex(dt[i] + in["dt_bias"][head]));
    if (dt[i].real() < c.dt_min) dt[i] = c.dt_min;
    if (dt[i].real() > c.dt_max) dt[i] = c.dt_max;
    alpha[i] = std::exp(-std::exp(in["A_log"][head]) * dt[i]);
  }
  for (size_t i = 0; i < k.size(); ++i) k[i] *= dt[i / c.state_dim];
  ComplexTensor o = recurrence(in, {x.shape[0], x.shape[1], c.heads, c.state_dim, c.head_dim}, 1, false,
                               heads(C), k, u, &alpha, nullptr, states);
  for (size_t i = 0; i < o.size(); ++i) o[i] += in["D"][i / c.head_dim % c.heads] * u[i];
  const ComplexTensor g = reference::gated(o, reference::projection(in, "z", x), kSilu);
  ComplexTensor n(g.shape);
  const size_t width = c.heads * c.head_dim, block = width / c.groups;
  for (size_t i = 0; i < g.size(); i += block) {
    reference::rms_norm(g.data() + i, in["norm.weight"].data() + i % width, c.norm_eps, n.data() + i, block);
  }
  States all{reference::projection(in, "out", n)};
  all.insert(all.end(), states.begin(), states.end());
  return all;
}

// Of the norms behind the cores: large enough that differences of 1/512 see no singularity where a row is
// small.
constexpr double kNormEps = 0.1;

// Every face at one point, and further points chunkwise.
template <template <class> class L, class Config, class Reference>
std::vector<GradCase> cases(const Config& first, const std::vector<std::pair<std::string, Config>>& others,
                            Reference reference) {
  std::vector<GradCase> all;
  const auto add = [&](const LayerExample& e, const Config& config) {
    LayerExample example = e;
    example.dim = config.dim;
    all.push_back(
        layer_case<L>(example, config, [=](const LayerInputs& in) { return reference(config, e.seen, in); }));
  };
  for (const Face face : {Face::kRecurrent, Face::kParallel, Face::kChunkwise}) {
    add({.name = "states before", .face = face, .seen = 3, .states = true}, first);
  }
  add({.name = "one token", .tokens = 1, .states = true}, first);
  add({.name = "from nothing", .batch = 1, .tokens = 19}, first);
  for (const auto& [name, config] : others) add({.name = name}, config);
  return all;
}
// A reference that doesn't look at the position.
template <class Config>
auto anywhere(States (*reference)(const Config&, const LayerInputs&)) {
  return [reference](const Config& config, size_t, const LayerInputs& in) { return reference(config, in); };
}

std::vector<GradCase> gated_deltanet_cases() {
  const GatedDeltaNetConfig first{
      .dim = 6, .key_heads = 1, .value_heads = 2, .key_dim = 3, .value_dim = 4, .norm_eps = kNormEps};
  GatedDeltaNetConfig bare = first, biased = first;
  bare.convolution.width = 0;
  bare.gate = OutputGate::kNone;
  biased.key_heads = 2;
  biased.convolution = {3, true, true};
  biased.gate = OutputGate::kSigmoid;
  biased.beta_scale = 2;
  return cases<GatedDeltaNet>(first,
                              {{"no convolution, no gate", bare}, {"biases, sigmoid, beta to 2", biased}},
                              anywhere(gated_deltanet));
}

std::vector<GradCase> deltanet_cases() {
  const DeltaNetConfig first{.dim = 5, .heads = 2, .key_dim = 3, .value_dim = 4, .norm_eps = kNormEps};
  DeltaNetConfig gated = first;
  gated.convolution.width = 0;
  gated.gate = OutputGate::kSilu;
  gated.beta_scale = 2;
  return cases<DeltaNet>(first, {{"gate, no convolution, beta to 2", gated}}, anywhere(deltanet));
}

std::vector<GradCase> gated_deltaproduct_cases() {
  const GatedDeltaProductConfig first{
      .dim = 5, .key_heads = 1, .value_heads = 2, .key_dim = 3, .value_dim = 2, .norm_eps = kNormEps};
  GatedDeltaProductConfig bare = first;
  bare.steps = 3;
  bare.convolution.width = 0;
  bare.forget = false;
  bare.gate = OutputGate::kNone;
  bare.beta_scale = 1;
  return cases<GatedDeltaProduct>(first, {{"3 writes, no decay, no convolution, no gate", bare}},
                                  anywhere(gated_deltaproduct));
}

std::vector<GradCase> kda_cases() {
  const KdaConfig first{
      .dim = 6, .key_heads = 1, .value_heads = 2, .key_dim = 3, .value_dim = 4, .norm_eps = kNormEps};
  KdaConfig bounded = first;
  bounded.rank = 2;
  bounded.gate_bias = true;
  bounded.lower_bound = -5;
  bounded.beta_scale = 2;
  return cases<KimiDeltaAttention>(first, {{"lower bound, gate bias, rank 2", bounded}}, anywhere(kda));
}

std::vector<GradCase> gla_cases() {
  const GlaConfig first{
      .dim = 6, .heads = 2, .kv_heads = 1, .key_dim = 3, .value_dim = 4, .rank = 2, .norm_eps = kNormEps};
  GlaConfig convolved = first;
  convolved.tau = 1;
  convolved.convolution.width = 4;
  return cases<GatedLinearAttention>(first, {{"convolution, temperature 1", convolved}}, anywhere(gla));
}

std::vector<GradCase> retention_cases() {
  const RetentionConfig first{
      .dim = 6, .heads = 2, .kv_heads = 1, .key_dim = 4, .value_dim = 3, .norm_eps = kNormEps};
  RetentionConfig grouped = first;
  grouped.group_norm = true;
  grouped.value_dim = 5;
  RetentionConfig plain = first;
  plain.rotation = false;
  plain.key_dim = 3;
  return cases<Retention>(first, {{"group norm", grouped}, {"no rotation", plain}}, retention);
}

std::vector<GradCase> mamba2_cases() {
  const Mamba2Config first{.dim = 5, .heads = 2, .head_dim = 3, .state_dim = 4, .norm_eps = kNormEps};
  Mamba2Config grouped = first, limited = first;
  grouped.groups = 2;
  grouped.bias = true;
  limited.dt_min = 0.4;
  limited.dt_max = 0.8;
  limited.convolution.bias = false;
  return cases<Mamba2>(first, {{"groups, biases", grouped}, {"step widths limited", limited}},
                       anywhere(mamba2));
}

}  // namespace

void register_recurrent_layers() {
  register_op("gated_deltanet_layer", gated_deltanet_cases);
  register_op("kda_layer", kda_cases);
  register_op("deltanet_layer", deltanet_cases);
  register_op("gated_deltaproduct_layer", gated_deltaproduct_cases);
  register_op("gla_layer", gla_cases);
  register_op("retention_layer", retention_cases);
  register_op("mamba2_layer", mamba2_cases);
}

}  // namespace storytape
