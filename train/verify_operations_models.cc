// Golden cases of whole models.
#include <algorithm>

#include "models/hybrid_lm.h"
#include "train/verify_operations_run.h"

namespace storytape {
namespace {

// The files' "blocks.0.attn.W_q" under the model's name "blocks.0.mixer.q.weight".
std::string parameter_name(std::string name) {
  constexpr std::pair<const char*, const char*> kParts[] = {{"tok_emb", "tok.weight"},
                                                            {"pos_emb", "pos.weight"},
                                                            {"ln_f.w", "norm.weight"},
                                                            {"ln_f.b", "norm.bias"},
                                                            {"ln1.w", "norm1.weight"},
                                                            {"ln1.b", "norm1.bias"},
                                                            {"ln2.w", "norm2.weight"},
                                                            {"ln2.b", "norm2.bias"},
                                                            {"attn.W_q", "mixer.q.weight"},
                                                            {"attn.W_k", "mixer.k.weight"},
                                                            {"attn.W_v", "mixer.v.weight"},
                                                            {"attn.W_o", "mixer.out.weight"},
                                                            {"attn.b_q", "mixer.q.bias"},
                                                            {"attn.b_k", "mixer.k.bias"},
                                                            {"attn.b_v", "mixer.v.bias"},
                                                            {"attn.b_o", "mixer.out.bias"},
                                                            {"attn.gamma_logit", "mixer.gamma_logit"},
                                                            {"mlp.W_1", "mlp.fc1.weight"},
                                                            {"mlp.b_1", "mlp.fc1.bias"},
                                                            {"mlp.W_2", "mlp.fc2.weight"},
                                                            {"mlp.b_2", "mlp.fc2.bias"}};
  for (const auto& [theirs, ours] : kParts) {
    if (name.ends_with(theirs)) return name.substr(0, name.size() - std::string_view(theirs).size()) + ours;
  }
  return name;
}

// The model of a case with the case's weights.
template <class T>
struct GoldenModel {
  explicit GoldenModel(const GoldenRun<T>& r)
      : batch(r.shape("ids")[0]),
        length(r.shape("ids")[1]),
        ids(r.ids("ids")),
        targets(r.ids("targets")),
        model(config(r), 0) {
    for (const std::string& tensor : r.golden.tensors()) {
      if (!tensor.starts_with("in.") || tensor == "in.ids" || tensor == "in.targets") continue;
      const std::string theirs = tensor.substr(3);
      Parameter<T>* parameter = model.parameters().find(parameter_name(theirs));
      if (!parameter) fail("the model has no parameter for {}", tensor);
      Tensor<T> value = r.value(theirs);
      if (!(value.shape() == parameter->shape())) {
        fail("{} has shape {}, the model wants {}", tensor, to_string(value.shape()),
             to_string(parameter->shape()));
      }
      parameter->mutable_value() = std::move(value);
      parameters.emplace_back(theirs, parameter);
    }
    if (parameters.size() != model.parameters().size()) {
      fail("the case has {} parameters, the model {}", parameters.size(), model.parameters().size());
    }
  }

  static ModelConfig config(const GoldenRun<T>& r) {
    if (r.golden.number("ln_eps") != 1e-5 || r.golden.number("tied") != 1) {
      fail("wants ln_eps 1e-5 and tied embeddings");
    }
    ModelConfig c;
    c.vocab = r.shape("tok_emb")[0];
    c.dim = r.shape("tok_emb")[1];
    c.heads = static_cast<size_t>(r.golden.number("H"));
    c.max_seq = r.shape("pos_emb")[0];
    c.ffn = r.shape("blocks.0.mlp.W_1")[1];
    const std::string pattern = r.golden.text("pattern");
    c.pattern =
        parse_pattern(pattern, 1 + static_cast<size_t>(std::count(pattern.begin(), pattern.end(), ',')));
    c.bias = r.has("blocks.0.attn.b_q");
    c.head_bias = false;
    c.gelu = r.golden.text("gelu");
    c.linear_eps = 0;
    return c;
  }

  size_t batch, length;
  std::vector<int32_t> ids, targets;
  HybridLM<T> model;
  std::vector<std::pair<std::string, Parameter<T>*>> parameters;  // under the files' names
};

template <class T>
void tiny_lm(GoldenRun<T>& r, Face face) {
  GoldenModel<T> g(r);
  {
    Tape<T> tape;
    const NoGrad<T> no_grad(tape);
    r.output("logits", g.model.logits(tape, g.ids, g.batch, g.length, face).value());
  }
  const double scale = 1 / static_cast<double>(g.targets.size());
  r.output("loss", g.model.loss(r.tape, g.ids, g.targets, g.batch, g.length, static_cast<T>(scale), face));
  r.backward();
  for (const auto& [name, parameter] : g.parameters) r.gradient(name, parameter->grad());
}

// The gradients again, through the logits alone.
template <class T>
void tiny_lm_by_logits(GoldenRun<T>& r) {
  GoldenModel<T> g(r);
  const Var<T> logits = g.model.logits(r.tape, g.ids, g.batch, g.length);
  r.output("logits", logits.value());
  r.output("loss", cross_entropy(logits, std::span<const int32_t>(g.targets)));
  r.backward();
  for (const auto& [name, parameter] : g.parameters) r.gradient(name, parameter->grad());
}

// Logits from the carried state: two tokens at once, the rest one by one.
template <class T>
void tiny_lm_decode(GoldenRun<T>& r) {
  const GoldenModel<T> g(r);
  const size_t vocab = g.model.config().vocab;
  Tensor<T> logits({g.batch, g.length, vocab});
  LMState<T> state = g.model.init_state(g.batch);
  // The first token's logits by a state of its own, since a call gives those after its last token.
  const auto feed = [&](LMState<T>& to, size_t first, size_t last) {
    std::vector<int32_t> tokens;
    for (size_t b = 0; b < g.batch; ++b) {
      for (size_t t = first; t < last; ++t) tokens.push_back(g.ids[b * g.length + t]);
    }
    const Tensor<T> l = g.model.extend(to, tokens);
    for (size_t b = 0; b < g.batch; ++b) {
      std::copy_n(l.data() + b * vocab, vocab, logits.data() + (b * g.length + last - 1) * vocab);
    }
  };
  LMState<T> one = g.model.init_state(g.batch);
  feed(one, 0, 1);
  const size_t prefill = std::min<size_t>(2, g.length);
  feed(state, 0, prefill);
  for (size_t t = prefill; t < g.length; ++t) feed(state, t, t + 1);
  r.output("logits", logits);
  r.skip_output("loss");
  r.skip_gradients();
}

}  // namespace

void add_models(GoldenFaces& faces) {
  std::vector<GoldenFace>& ways = faces["tiny_lm"];
  for (const Face face : {Face::kRecurrent, Face::kParallel, Face::kChunkwise}) {
    ways.push_back(golden_face(std::string(to_string(face)), [face](auto& r) { tiny_lm(r, face); }));
  }
  ways.push_back(golden_face("by logits", [](auto& r) { tiny_lm_by_logits(r); }));
  ways.push_back(golden_face("decode", [](auto& r) { tiny_lm_decode(r); }));
}

}  // namespace storytape
