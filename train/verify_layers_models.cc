// Golden cases of whole hybrid models, as ordinary configurations of HybridLM: Qwen3-Next, OLMo hybrid and Kimi Linear
// with dense MLPs.
#include <algorithm>

#include "autograd/ops_loss.h"
#include "models/hybrid_lm.h"
#include "models/pattern.h"
#include "tensor/index.h"
#include "train/verify_layers.h"

namespace storytape {
namespace {

// "layers.0.mixer.W_q" → "blocks.0.mixer.q.weight"
std::string model_parameter_name(const std::string& tensor) {
  if (tensor == "tok_emb") return "tok.weight";
  if (tensor == "norm_f_w") return "norm.weight";
  if (tensor == "W_head") return "head.weight";
  const size_t dot = tensor.find('.', std::string_view("layers.").size());
  return "blocks." + tensor.substr(7, dot - 6) + golden_parameter_name(tensor.substr(dot + 1));
}

template <class T>
ModelConfig hybrid_config(const GoldenRun<T>& r) {
  const auto number = [&](const char* name) { return static_cast<size_t>(r.golden.number(name)); };
  const std::string arch = r.golden.text("arch");
  const std::string eps = fmt::format(",eps={:g}", r.golden.number("mixer_norm_eps"));
  std::string linear, full;
  if (arch == "kimi_linear") {
    linear = fmt::format("kda:heads={},key_heads={},key_dim={},value_dim={},conv={},beta={:g}{}",
                         number("H_v"), number("H_k"), number("d_k"), number("d_v"), number("conv"),
                         r.golden.number("beta_scale"), eps);
    full =
        fmt::format("mla:heads={},nope={},rope={},value_dim={},latent={},base=0", number("H_q"),
                    number("d_nope"), number("d_rope"), number("d_vm"), r.shape("layers.3.mixer.W_kva")[1]);
  } else {
    linear = fmt::format("gated_deltanet:heads={},key_heads={},key_dim={},value_dim={},conv={},beta={:g}{}",
                         number("H_v"), number("H_k"), number("d_k"), number("d_v"), number("conv"),
                         r.golden.number("beta_scale"), eps);
    const bool olmo = arch == "olmo_hybrid";
    full = fmt::format(
        "attention:heads={},kv_heads={},head_dim={},rotary={},qk_norm={},offset={:g},eps={:g},gate={}{}{}",
        number("H_q"), number("H_kv"), number("d"), number("rotary_dim"), r.golden.text("qk_norm"),
        r.golden.number("norm_offset"), r.golden.number("norm_eps"), !olmo,
        number("rotary_dim") ? fmt::format(",base={:g}", r.golden.number("rope_base")) : "",
        olmo ? ",place=output" : "");
  }
  ModelConfig c;
  c.vocab = r.shape("tok_emb")[0];
  c.dim = r.shape("tok_emb")[1];
  c.heads = number("H_q");
  c.ffn = r.shape("layers.0.mlp.W_gate")[1];
  c.head_bias = false;
  c.block = "modern";
  c.positions = "none";
  c.tied = number("tied") == 1;
  c.norm_eps = r.golden.number("norm_eps");
  c.norm_offset = r.golden.number("norm_offset");
  std::string pattern = r.golden.text("pattern");
  for (const char kind : pattern) {
    if (kind != ',') c.pattern.push_back(parse_layer(kind == 'L' ? linear : full).text());
  }
  return c;
}

template <class T>
struct HybridCase {
  explicit HybridCase(GoldenRun<T>& r)
      : batch(r.shape("ids")[0]),
        length(r.shape("ids")[1]),
        ids(r.ids("ids")),
        targets(r.ids("targets")),
        model(hybrid_config(r), 1) {
    for (const std::string& tensor : r.golden.tensors()) {
      if (!tensor.starts_with("in.") || tensor == "in.ids" || tensor == "in.targets") continue;
      const std::string theirs = tensor.substr(3);
      Parameter<T>* parameter = model.parameters().find(model_parameter_name(theirs));
      if (!parameter)
        fail("{} stands for the parameter {}, which the model lacks", tensor, model_parameter_name(theirs));
      // The head's matrix is stored as the table of a tied one is.
      parameter->mutable_value() = theirs == "W_head" ? transposed(r.value(theirs)) : r.value(theirs);
      parameters.emplace_back(theirs, parameter);
    }
    if (parameters.size() != model.parameters().size()) {
      fail("the case has {} parameters, the model {}", parameters.size(), model.parameters().size());
    }
  }
  static Tensor<T> transposed(const Tensor<T>& x) {
    constexpr size_t kSwap[] = {1, 0};
    return transpose(x, std::span<const size_t>(kSwap));
  }
  void gradients(GoldenRun<T>& r) const {
    for (const auto& [name, parameter] : parameters) {
      r.gradient(name, name == "W_head" ? transposed(parameter->grad()) : parameter->grad());
    }
  }

  size_t batch, length;
  std::vector<int32_t> ids, targets;
  HybridLM<T> model;
  std::vector<std::pair<std::string, Parameter<T>*>> parameters;  // under the files' names
};

template <class T>
void whole(GoldenRun<T>& r, Face face) {
  HybridCase<T> c(r);
  {
    Tape<T> tape;
    const NoGrad<T> no_grad(tape);
    r.output("logits", c.model.logits(tape, c.ids, c.batch, c.length, face).value());
  }
  const double scale = 1 / static_cast<double>(c.targets.size());
  r.output("loss", c.model.loss(r.tape, c.ids, c.targets, c.batch, c.length, static_cast<T>(scale), face));
  r.backward();
  c.gradients(r);
  r.skip_output("greedy_ids");
  r.skip_output("greedy_logits");
}

// The prompt at once, then 16 tokens, each the likeliest, with carried states.
template <class T>
void greedy(GoldenRun<T>& r) {
  const HybridCase<T> c(r);
  const size_t prompt = static_cast<size_t>(r.golden.number("prompt")), vocab = c.model.config().vocab,
               steps = 16;
  LMState<T> state = c.model.init_state(c.batch);
  std::vector<int32_t> feed;
  for (size_t b = 0; b < c.batch; ++b) {
    feed.insert(feed.end(), c.ids.begin() + static_cast<ptrdiff_t>(b * c.length),
                c.ids.begin() + static_cast<ptrdiff_t>(b * c.length + prompt));
  }
  const std::vector<int32_t> wanted = r.golden.ids("out.greedy_ids");
  Tensor<T> all({c.batch, steps, vocab});
  for (size_t i = 0; i < steps; ++i) {
    const Tensor<T> logits = c.model.extend(state, feed);
    feed.assign(c.batch, 0);
    for (size_t b = 0; b < c.batch; ++b) {
      const T* row = logits.data() + b * vocab;
      feed[b] = static_cast<int32_t>(std::max_element(row, row + vocab) - row);
      if (feed[b] != wanted[b * steps + i]) {
        fail("token {} of row {} is {}, wanted {}", i, b, feed[b], wanted[b * steps + i]);
      }
      std::copy_n(row, vocab, all.data() + (b * steps + i) * vocab);
    }
  }
  r.skip_output("greedy_ids");
  r.output("greedy_logits", all);
  r.skip_output("logits");
  r.skip_output("loss");
  r.skip_gradients();
}

}  // namespace

void add_hybrid_models(GoldenFaces& faces) {
  std::vector<GoldenFace>& ways = faces["hybrid_lm"];
  for (const Face face : {Face::kRecurrent, Face::kParallel, Face::kChunkwise}) {
    ways.push_back(golden_face(std::string(to_string(face)), [face](auto& r) { whole(r, face); }));
  }
  ways.push_back(golden_face("greedy", [](auto& r) { greedy(r); }));
}

}  // namespace storytape
