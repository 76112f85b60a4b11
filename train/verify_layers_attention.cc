// Golden cases of the layers around softmax attention, and of RWKV-4's.
#include "nn/layers/attention.h"
#include "nn/layers/forgetting_attention.h"
#include "nn/layers/mla.h"
#include "nn/layers/rwkv4.h"
#include "train/verify_layers.h"
#include "train/verify_operations_mixers.h"

namespace storytape {
namespace {

template <class T>
size_t count(const GoldenRun<T>& r, const char* attribute) {
  return static_cast<size_t>(r.golden.number(attribute));
}

// A layer whose decoding keeps room for more tokens than it has seen, or fewer tokens than it has seen: beside the
// cache that it decodes with stands the whole one that the files have, grown by the rows that each call wrote.
template <class T>
class WholeCache final : public Layer<T> {
 public:
  explicit WholeCache(std::unique_ptr<Layer<T>> layer) : layer_(std::move(layer)) {}

  std::string_view kind() const override { return layer_->kind(); }
  std::vector<StateTensor> state_tensors(size_t batch) const override { return layer_->state_tensors(batch); }
  Pass<T> apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states, size_t seen,
                Face face) const override {
    return layer_->apply(weights, x, states, seen, face);
  }
  Tensor<T> extend(State<T>& whole, const Tensor<T>& x, const Tensor<T>& residual) const override {
    if (cache_.tensors().empty()) cache_ = whole;
    const size_t first = cache_.length;
    const Tensor<T> y = layer_->extend(cache_, x, residual);
    for (const auto& [name, tensor] : cache_.tensors()) {
      std::vector<Tensor<T>> rows;
      if (whole[name].size()) rows.push_back(whole[name]);
      for (size_t t = first; t < cache_.length; ++t) {
        const size_t row = t % tensor.size(1);
        rows.push_back(slice(tensor, 1, row, row + 1));
      }
      whole[name] = concat(std::span<const Tensor<T>>(rows), 1);
    }
    whole.length = cache_.length;
    return y;
  }

 private:
  std::unique_ptr<Layer<T>> layer_;
  mutable State<T> cache_;
};

// Latent attention with its state in two, "c" [B, tokens, r] and "kr" [B, tokens, d_rope].
template <class T>
class SplitLatent final : public Layer<T> {
 public:
  SplitLatent(std::unique_ptr<Layer<T>> layer, size_t latent, size_t rope_dim)
      : layer_(std::move(layer)), latent_(latent), rope_dim_(rope_dim) {}

  std::string_view kind() const override { return layer_.kind(); }
  std::vector<StateTensor> state_tensors(size_t batch) const override {
    return {{"c", {batch, 0, latent_}}, {"kr", {batch, 0, rope_dim_}}};
  }
  Pass<T> apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states, size_t seen,
                Face face) const override {
    Var<T> joined;
    if (!states.empty() && states[0].defined()) {
      joined = split_heads(concat<T>({states[0], states[1]}, 2), 1);
    }
    const Pass<T> pass = layer_.apply(weights, x, std::span(&joined, 1), seen, face);
    const Var<T> after = merge_heads(pass.states[0]);
    return {pass.y, {slice(after, 2, 0, latent_), slice(after, 2, latent_, latent_ + rope_dim_)}};
  }
  Tensor<T> extend(State<T>& state, const Tensor<T>& x, const Tensor<T>& residual) const override {
    const Tensor<T> parts[] = {state["c"], state["kr"]};
    const size_t width = latent_ + rope_dim_;
    State<T> joined;
    joined.add("k",
               concat(std::span<const Tensor<T>>(parts), 2).reshape({x.size(0), state.length, 1, width}));
    joined.length = state.length;
    const Tensor<T> y = layer_.extend(joined, x, residual);
    const Tensor<T> after = joined["k"].reshape({x.size(0), joined.length, width});
    state["c"] = slice(after, 2, 0, latent_);
    state["kr"] = slice(after, 2, latent_, width);
    state.length = joined.length;
    return y;
  }

 private:
  WholeCache<T> layer_;
  size_t latent_, rope_dim_;
};

template <class T>
GoldenLayer<T> cached(std::unique_ptr<Layer<T>> layer, size_t seen) {
  GoldenLayer<T> golden;
  golden.layer = std::make_unique<WholeCache<T>>(std::move(layer));
  golden.seen = seen;
  // Keys and values are [B, H, T, d] in the files, gates [B, H, T].
  golden.from_file = [](const std::string& name, Var<T> x) {
    if (name != "log_f") return tokens_first(x);
    const Shape s = x.shape();
    return reshape(transpose(x, {0, 2, 1}), {s[0], s[2], s[1], 1});
  };
  golden.to_file = [](const std::string& name, Var<T> x) {
    if (name != "log_f") return tokens_first(x);
    const Shape s = x.shape();
    return transpose(reshape(x, {s[0], s[1], s[2]}), {0, 2, 1});
  };
  return golden;
}

struct MakeAttention {
  template <class T>
  GoldenLayer<T> operator()(const GoldenRun<T>& r, ParameterList<T>& parameters,
                            const std::string& name) const {
    AttentionConfig config{.dim = r.shape("x")[2], .heads = count(r, "H_q")};
    config.kv_heads = count(r, "H_kv");
    config.head_dim = count(r, "d");
    config.scale = r.golden.number("scale");
    if (const size_t window = count(r, "window")) config.window = window;
    config.softcap = r.golden.number("softcap");
    config.rotary_dim = count(r, "rotary_dim");
    config.rope_base = r.golden.number("rope_base");
    const std::string norm = r.golden.text("qk_norm");
    if (norm == "head") config.qk_norm = QkNorm::kHead;
    if (norm == "full") config.qk_norm = QkNorm::kFull;
    config.norm_offset = r.golden.number("norm_offset");
    config.norm_eps = r.golden.number("norm_eps");
    config.gate = r.has("W_g");
    config.bias = r.has("b_q");
    config.out_bias = r.has("b_o");
    return cached<T>(std::make_unique<Attention<T>>(config, parameters, name),
                     r.has("k_init") ? r.shape("k_init")[2] : 0);
  }
};

struct MakeForgettingAttention {
  template <class T>
  GoldenLayer<T> operator()(const GoldenRun<T>& r, ParameterList<T>& parameters,
                            const std::string& name) const {
    ForgettingAttentionConfig config{.dim = r.shape("x")[2], .heads = count(r, "H_q")};
    config.kv_heads = count(r, "H_kv");
    config.qk_norm = r.has("q_norm_w");
    config.gate = r.has("W_g");
    config.bias = r.has("b_q");
    config.norm_eps = r.golden.number("norm_eps");
    return cached<T>(std::make_unique<ForgettingAttention<T>>(config, parameters, name), 0);
  }
};

struct MakeMla {
  template <class T>
  GoldenLayer<T> operator()(const GoldenRun<T>& r, ParameterList<T>& parameters,
                            const std::string& name) const {
    MlaConfig config{.dim = r.shape("x")[2],
                     .heads = count(r, "H"),
                     .nope_dim = count(r, "d_nope"),
                     .rope_dim = count(r, "d_rope"),
                     .value_dim = count(r, "d_v"),
                     .latent = r.shape("W_kva")[1]};
    if (r.has("W_qa")) config.query_latent = r.shape("W_qa")[1];
    config.rope_base = r.golden.number("rope_base");
    config.latent_eps = r.golden.number("latent_eps");
    GoldenLayer<T> golden;
    golden.layer = std::make_unique<SplitLatent<T>>(
        std::make_unique<LatentAttention<T>>(config, parameters, name), config.latent, config.rope_dim);
    golden.seen = r.has("c_init") ? r.shape("c_init")[1] : 0;
    return golden;
  }
};

template <template <class> class L, class T, class Config>
GoldenLayer<T> plain(const Config& config, ParameterList<T>& parameters, const std::string& name) {
  GoldenLayer<T> golden;
  golden.layer = std::make_unique<L<T>>(config, parameters, name);
  return golden;
}

struct MakeTimeMix {
  template <class T>
  GoldenLayer<T> operator()(const GoldenRun<T>& r, ParameterList<T>& parameters,
                            const std::string& name) const {
    return plain<TimeMix, T>(TimeMixConfig{r.shape("x")[2], r.shape("u")[0], {}}, parameters, name);
  }
};

struct MakeChannelMix {
  template <class T>
  GoldenLayer<T> operator()(const GoldenRun<T>& r, ParameterList<T>& parameters,
                            const std::string& name) const {
    return plain<ChannelMix, T>(ChannelMixConfig{r.shape("x")[2], r.shape("W_k")[1], {}}, parameters, name);
  }
};

struct MakeRwkvBlock {
  template <class T>
  GoldenLayer<T> operator()(const GoldenRun<T>& r, ParameterList<T>& parameters,
                            const std::string& name) const {
    const RwkvBlockConfig config{r.shape("x")[2],       r.shape("att.u")[0],       r.shape("ffn.W_k")[1],
                                 count(r, "first") > 0, r.golden.number("ln_eps"), {}};
    return plain<RwkvBlock, T>(config, parameters, name);
  }
};

}  // namespace

void add_attention_layers(GoldenFaces& faces) {
  faces["attention_layer"] = layer_faces(MakeAttention());
  faces["forgetting_attention_layer"] = layer_faces(MakeForgettingAttention());
  faces["mla_layer"] = layer_faces(MakeMla());
  faces["rwkv4_time_mix_layer"] = layer_faces(MakeTimeMix());
  faces["rwkv4_channel_mix_layer"] = layer_faces(MakeChannelMix());
  faces["rwkv4_block"] = layer_faces(MakeRwkvBlock());
}

}  // namespace storytape
