// The layers around softmax attention, and RWKV-4's, scalar by scalar, and the points they are proven at.
#include <cmath>
#include <limits>

#include "nn/layers/attention.h"
#include "nn/layers/examples.h"
#include "nn/layers/forgetting_attention.h"
#include "nn/layers/mla.h"
#include "nn/layers/reference.h"
#include "nn/layers/rwkv4.h"
#include "nn/mixers/reference_softmax.h"
#include "nn/mixers/reference_wkv.h"

namespace storytape {
namespace {

using reference::Complex;
using States = std::vector<ComplexTensor>;

const auto kSigmoid = [](const Complex& v) { return reference::sigmoid(v); };

ComplexTensor shaped(ComplexTensor x, const Shape& shape) {
  x.shape = shape;
  return x;
}

// a before b along axis 1; b alone without a.
ComplexTensor joined(const ComplexTensor* a, const ComplexTensor& b) {
  if (!a) return b;
  Shape shape = b.shape;
  shape[1] += a->shape[1];
  ComplexTensor y(shape);
  const size_t batch = shape[0], n = a->size() / batch, m = b.size() / batch;
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t at = i % (n + m), s = i / (n + m);
    y[i] = at < n ? (*a)[s * n + at] : b[s * m + at - n];
  }
  return y;
}

// Along the last axis.
ComplexTensor beside(const ComplexTensor& a, const ComplexTensor& b) {
  const size_t n = a.shape.back(), m = b.shape.back();
  ComplexTensor y(reference::with_last(a.shape, n + m));
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t at = i % (n + m), row = i / (n + m);
    y[i] = at < n ? a[row * n + at] : b[row * m + at - n];
  }
  return y;
}

// Heads [B, T, H, d] turned in their first `width` channels.
ComplexTensor rotated(const ComplexTensor& x, size_t width, double base, size_t seen, bool neighbours) {
  const size_t tokens = x.shape[1], heads = x.shape[2], d = x.shape[3];
  ComplexTensor y = x;
  for (size_t row = 0; row < x.size() / d; ++row) {
    const auto position = static_cast<double>(seen + row / heads % tokens);
    for (size_t i = 0; i < width / 2; ++i) {
      const double angle =
          position * std::pow(base, -2 * static_cast<double>(i) / static_cast<double>(width));
      const size_t a = row * d + (neighbours ? 2 * i : i),
                   b = row * d + (neighbours ? 2 * i + 1 : i + width / 2);
      y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
      y[b] = x[b] * std::cos(angle) + x[a] * std::sin(angle);
    }
  }
  return y;
}

// The core on q [B, T, H, dk], and k and v of all tokens so far; o [B, T, H dv].
ComplexTensor attended(const ComplexTensor& q, const ComplexTensor& k, const ComplexTensor& v, double scale,
                       size_t window = 0, double softcap = 0, const ComplexTensor* log_f = nullptr) {
  const size_t batch = q.shape[0], queries = q.shape[1], heads = q.shape[2], keys = k.shape[1];
  ComplexTensor o({batch, queries, heads * v.shape[3]});
  reference::softmax_attention({batch, queries, keys, heads, k.shape[2], q.shape[3], v.shape[3],
                                static_cast<ptrdiff_t>(keys - queries), window, softcap},
                               scale, q.data(), k.data(), v.data(), o.data(),
                               log_f ? log_f->data() : nullptr);
  return o;
}

const ComplexTensor* before(const LayerInputs& in, const std::string& state) {
  return in.has(state + " before") ? &in[state + " before"] : nullptr;
}

double scale_of(size_t width) {
  return 1 / std::sqrt(static_cast<double>(width));
}

States attention(const AttentionConfig& c, size_t seen, const LayerInputs& in) {
  const ComplexTensor& x = in["x"];
  const size_t kv_heads = c.kv_heads ? c.kv_heads : c.heads;
  const auto heads = [&](const std::string& name, size_t count, bool keyed) {
    ComplexTensor rows = reference::projection(in, name, x);
    if (keyed && c.qk_norm != QkNorm::kNone) {
      const ComplexTensor weight =
          map(in[name + "_norm.weight"], [&](const Complex& w) { return w + c.norm_offset; });
      rows = reference::normed(rows, weight, c.norm_eps);
    }
    rows = shaped(rows, {x.shape[0], x.shape[1], count, c.head_dim});
    return keyed ? rotated(rows, c.rotary_dim, c.rope_base, seen, false) : rows;
  };
  const ComplexTensor k = joined(before(in, "k"), heads("k", kv_heads, true));
  const ComplexTensor v = joined(before(in, "v"), heads("v", kv_heads, false));
  ComplexTensor o = attended(heads("q", c.heads, true), k, v, c.scale.value_or(scale_of(c.head_dim)),
                             c.window.value_or(0), c.softcap);
  if (c.gate) o = reference::gated(o, reference::projection(in, "g", x), kSigmoid);
  return {reference::projection(in, "out", o), k, v};
}

States forgetting_attention(const ForgettingAttentionConfig& c, size_t, const LayerInputs& in) {
  const ComplexTensor& x = in["x"];
  const size_t kv_heads = c.kv_heads ? c.kv_heads : c.heads, d = c.head_dim;
  const auto heads = [&](const std::string& name, size_t count, bool normed) {
    ComplexTensor rows = shaped(reference::projection(in, name, x), {x.shape[0], x.shape[1], count, d});
    if (!normed || !c.qk_norm) return rows;
    const ComplexTensor& weight = in[name + "_norm.weight"];
    ComplexTensor y(rows.shape);
    for (size_t i = 0; i < rows.size(); i += d) {
      reference::rms_norm(rows.data() + i, weight.data() + i % weight.size(), c.norm_eps, y.data() + i, d);
    }
    return y;
  };
  const ComplexTensor k = joined(before(in, "k"), heads("k", kv_heads, true));
  const ComplexTensor v = joined(before(in, "v"), heads("v", kv_heads, false));
  const ComplexTensor fresh =
      map(reference::projection(in, "f", x), [](const Complex& z) { return reference::log_sigmoid(z); });
  const ComplexTensor log_f =
      joined(before(in, "log_f"), shaped(fresh, {x.shape[0], x.shape[1], c.heads, 1}));
  ComplexTensor o = attended(heads("q", c.heads, true), k, v, scale_of(d), 0, 0, &log_f);
  if (c.gate) o = reference::gated(o, reference::projection(in, "g", x), kSigmoid);
  return {reference::projection(in, "out", o), k, v, log_f};
}

States latent_attention(const MlaConfig& c, size_t seen, const LayerInputs& in) {
  const ComplexTensor& x = in["x"];
  const size_t width = c.rope_base > 0 ? c.rope_dim : 0;
  const auto heads = [](const ComplexTensor& rows, size_t count) {
    return shaped(rows, {rows.shape[0], rows.shape[1], count, rows.shape[2] / count});
  };
  const auto turned = [&](const ComplexTensor& rows) {
    return rotated(rows, width, c.rope_base, seen, true);
  };
  const ComplexTensor l = c.query_latent ? reference::normed(reference::projection(in, "qa", x),
                                                             in["qa_norm.weight"], c.latent_eps)
                                         : x;
  const ComplexTensor q = beside(heads(reference::projection(in, "qn", l), c.heads),
                                 turned(heads(reference::projection(in, "qr", l), c.heads)));
  const ComplexTensor fresh = beside(
      heads(reference::normed(reference::projection(in, "kva", x), in["kva_norm.weight"], c.latent_eps), 1),
      turned(heads(reference::projection(in, "kr", x), 1)));
  const ComplexTensor latent = joined(before(in, "k"), fresh);
  const Shape s = latent.shape;
  ComplexTensor of_c({s[0], s[1], c.latent}), kappa({s[0], s[1], c.heads, c.rope_dim});
  for (size_t i = 0; i < of_c.size(); ++i) of_c[i] = latent[i / c.latent * s[3] + i % c.latent];
  for (size_t i = 0; i < kappa.size(); ++i) {
    kappa[i] = latent[i / (c.heads * c.rope_dim) * s[3] + c.latent + i % c.rope_dim];
  }
  const ComplexTensor k = beside(heads(reference::projection(in, "kb", of_c), c.heads), kappa);
  const ComplexTensor v = heads(reference::projection(in, "vb", of_c), c.heads);
  return {reference::projection(in, "out", attended(q, k, v, scale_of(c.nope_dim + c.rope_dim))), latent};
}

// x of the layer shifted with `mu`; the state of that name before it.
ComplexTensor shifted(const LayerInputs& in, const ComplexTensor& x, const std::string& mu,
                      const std::string& state) {
  ComplexTensor y(x.shape);
  const ComplexTensor* x_prev = before(in, state);
  reference::token_shift<Complex>(x.shape[0], x.shape[1], x.shape[2], x.data(), in[mu].data(),
                                  x_prev ? x_prev->data() : nullptr, y.data());
  return y;
}

ComplexTensor last_token(const ComplexTensor& x) {
  ComplexTensor y({x.shape[0], x.shape[2]});
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] = x[((i / x.shape[2] + 1) * x.shape[1] - 1) * x.shape[2] + i % x.shape[2]];
  }
  return y;
}

// Parameters and states begin with `part`.
States time_mix(const LayerInputs& in, const std::string& part, const ComplexTensor& x) {
  const auto of = [&](const std::string& name) {
    return reference::projection(in, part + name, shifted(in, x, part + "mu_" + name, part + "x_prev"));
  };
  const ComplexTensor r = of("r"), k = of("k"), v = of("v");
  const size_t batch = x.shape[0], tokens = x.shape[1], channels = k.shape[2];
  const ComplexTensor w = map(in[part + "time_decay"], [](const Complex& z) { return std::exp(z); });
  ComplexTensor mean({batch, channels}), logden({batch, channels}), o(k.shape);
  if (const ComplexTensor* given = before(in, part + "mean")) {
    mean = *given;
    logden = in[part + "logden before"];
  } else {
    for (Complex& value : logden.values) value = -std::numeric_limits<double>::infinity();
  }
  reference::wkv<Complex>(batch, tokens, channels, w.data(), in[part + "u"].data(), k.data(), v.data(),
                          mean.data(), logden.data(), o.data());
  return {reference::projection(in, part + "out", reference::gated(o, r, kSigmoid)), last_token(x), mean,
          logden};
}

States channel_mix(const LayerInputs& in, const std::string& part, const ComplexTensor& x) {
  const auto of = [&](const std::string& name) {
    return reference::projection(in, part + name, shifted(in, x, part + "mu_" + name, part + "x_prev"));
  };
  const ComplexTensor k = map(of("k"), [](const Complex& z) { return z.real() > 0 ? z * z : Complex(0); });
  return {reference::gated(reference::projection(in, part + "v", k), of("r"), kSigmoid), last_token(x)};
}

States rwkv_block(const RwkvBlockConfig& c, size_t, const LayerInputs& in) {
  const auto normed = [&](const std::string& name, const ComplexTensor& x) {
    ComplexTensor y(x.shape);
    for (size_t i = 0; i < x.size(); i += c.dim) {
      reference::layer_norm(x.data() + i, in[name + ".weight"].data(), in[name + ".bias"].data(), c.ln_eps,
                            y.data() + i, c.dim);
    }
    return y;
  };
  const auto add = [](ComplexTensor a, const ComplexTensor& b) {
    for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
  };
  const ComplexTensor h = c.first ? normed("ln0", in["x"]) : in["x"];
  States att = time_mix(in, "att.", normed("ln1", h));
  const ComplexTensor middle = add(h, att[0]);
  const States ffn = channel_mix(in, "ffn.", normed("ln2", middle));
  att[0] = add(middle, ffn[0]);
  att.push_back(ffn[1]);
  return att;
}

// Large enough that differences of 1/512 see no singularity where a row is small.
constexpr double kNormEps = 0.1;
// Tokens that states before have seen.
constexpr size_t kSeen = 3;

// A layer's states hold no rows before the first token: here those of `seen` tokens, gates at most 1.
void fill_states(GradCase& c, size_t seen) {
  for (NamedInput& input : c.inputs) {
    Shape shape = input.value.shape();
    if (!input.name.ends_with(" before") || shape.rank() != 4) continue;
    shape[1] = seen;
    const bool gate = input.name == "log_f before";
    input.value = gate ? example_uniform(shape, 2900, -1, 0) : example_normal(shape, 2901, 0, 0.5);
  }
}

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
    if (e.states) fill_states(all.back(), e.seen);
  };
  for (const Face face : {Face::kRecurrent, Face::kParallel, Face::kChunkwise}) {
    add({.name = "states before", .face = face, .seen = kSeen, .states = true}, first);
  }
  add({.name = "one token", .tokens = 1, .seen = kSeen, .states = true}, first);
  add({.name = "from nothing", .batch = 1, .tokens = 19}, first);
  for (const auto& [name, config] : others) add({.name = name, .seen = kSeen, .states = true}, config);
  return all;
}

std::vector<GradCase> attention_cases() {
  AttentionConfig first{.dim = 6, .heads = 4, .kv_heads = 2, .head_dim = 4};
  first.rotary_dim = 2;
  first.qk_norm = QkNorm::kHead;
  first.norm_offset = 1;
  first.norm_eps = kNormEps;
  first.gate = first.bias = first.out_bias = true;
  AttentionConfig capped{.dim = 6, .heads = 2, .kv_heads = 1, .head_dim = 4};
  capped.rotary_dim = 4;
  capped.window = 3;
  capped.softcap = 1.5;
  capped.scale = 0.8;
  AttentionConfig full{.dim = 6, .heads = 2, .head_dim = 3};
  full.qk_norm = QkNorm::kFull;
  full.norm_eps = kNormEps;
  return cases<Attention>(first, {{"window and soft cap", capped}, {"norm of all heads, no rotation", full}},
                          attention);
}

std::vector<GradCase> forgetting_attention_cases() {
  ForgettingAttentionConfig first{.dim = 6, .heads = 4, .kv_heads = 2, .head_dim = 3};
  first.qk_norm = first.gate = first.bias = true;
  first.norm_eps = kNormEps;
  const ForgettingAttentionConfig bare{.dim = 6, .heads = 2, .head_dim = 3};
  return cases<ForgettingAttention>(first, {{"no norm, no gate", bare}}, forgetting_attention);
}

std::vector<GradCase> mla_cases() {
  MlaConfig first{.dim = 6, .heads = 2, .nope_dim = 3, .rope_dim = 4, .value_dim = 3, .latent = 4};
  first.query_latent = 5;
  first.latent_eps = kNormEps;
  MlaConfig still = first;
  still.query_latent = 0;
  still.rope_base = 0;
  still.rope_dim = 3;
  return cases<LatentAttention>(first, {{"no query latent, no rotation", still}}, latent_attention);
}

std::vector<GradCase> time_mix_cases() {
  const TimeMixConfig first{.dim = 5, .attention_dim = 6};
  return cases<TimeMix>(first, {}, [](const TimeMixConfig&, size_t, const LayerInputs& in) {
    return time_mix(in, "", in["x"]);
  });
}

std::vector<GradCase> channel_mix_cases() {
  const ChannelMixConfig first{.dim = 5, .hidden = 7};
  return cases<ChannelMix>(first, {}, [](const ChannelMixConfig&, size_t, const LayerInputs& in) {
    return channel_mix(in, "", in["x"]);
  });
}

std::vector<GradCase> rwkv_block_cases() {
  const RwkvBlockConfig first{.dim = 5, .attention_dim = 6, .hidden = 7, .first = true, .ln_eps = kNormEps};
  RwkvBlockConfig later = first;
  later.first = false;
  return cases<RwkvBlock>(first, {{"a later block", later}}, rwkv_block);
}

}  // namespace

void register_attention_layers() {
  register_op("attention_layer", attention_cases);
  register_op("forgetting_attention_layer", forgetting_attention_cases);
  register_op("mla_layer", mla_cases);
  register_op("rwkv4_time_mix_layer", time_mix_cases);
  register_op("rwkv4_channel_mix_layer", channel_mix_cases);
  register_op("rwkv4_block", rwkv_block_cases);
}

}  // namespace storytape
