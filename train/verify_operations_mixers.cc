// Golden cases of the mixers' cores and of the layers made of them. The files have heads first, [B, H, T, d];
// the cores have tokens first, [B, T, H, d].
#include "train/verify_operations_mixers.h"
#include "nn/gates.h"
#include "nn/mixers/linear_attention.h"
#include "nn/mixers/mixer.h"
#include "nn/mixers/softmax_attention.h"
#include "nn/normalize.h"

namespace storytape {
namespace {

SoftmaxAttentionOptions softmax_options(const GoldenCase& golden) {
  SoftmaxAttentionOptions options;
  options.scale = golden.number("scale");
  options.window = static_cast<size_t>(golden.number("window"));
  return options;
}

// Forget gates are [B, H, T] in the files.
template <class T>
Var<T> forget_gates(GoldenRun<T>& r) {
  const Var<T> log_f = r.input("log_f");
  return log_f.defined() ? transpose(log_f, {0, 2, 1}) : log_f;
}

template <class T>
void decode_softmax(GoldenRun<T>& r) {
  const SoftmaxAttentionOptions options = softmax_options(r.golden);
  const Tensor<T> q = tokens_first(r.value("q")), k = tokens_first(r.value("k")),
                  v = tokens_first(r.value("v"));
  Tensor<T> log_f = r.value_or_none("log_f");
  if (log_f.defined()) {
    constexpr size_t kTokensFirst[] = {0, 2, 1};
    log_f = transpose(log_f, std::span<const size_t>(kTokensFirst));
  }
  State<T> cache =
      softmax_attention_state<T>(k.size(0), k.size(2), k.size(3), v.size(3), log_f.defined() ? q.size(2) : 0);
  r.output("o", decoded<T>(q.size(1), [&](size_t first, size_t last) {
             return softmax_attention_extend(cache, slice(q, 1, first, last), slice(k, 1, first, last),
                                             slice(v, 1, first, last), options,
                                             log_f.defined() ? slice(log_f, 1, first, last) : log_f);
           }));
  r.skip_gradients();
}

std::vector<GoldenFace> softmax_faces() {
  std::vector<GoldenFace> faces;
  for (const FaceOf& of : kFaces) {
    if (of.chunk) continue;
    faces.push_back(golden_face(of.name, [of](auto& r) {
      SoftmaxAttentionOptions options = softmax_options(r.golden);
      options.face = of.face;
      const auto o = softmax_attention(tokens_first(r.input("q")), tokens_first(r.input("k")),
                                       tokens_first(r.input("v")), options, forget_gates(r));
      r.output("o", tokens_first(o));
    }));
  }
  faces.push_back(golden_face("decode", [](auto& r) { decode_softmax(r); }));
  return faces;
}

LinearAttentionOptions linear_options(FeatureMap phi, bool normalise) {
  LinearAttentionOptions options;
  options.phi = phi;
  options.normalise = normalise;
  options.eps = 0;
  return options;
}

// The core on the case's inputs, its final state handed in; returns o [B, T, H, dv].
template <class T>
Var<T> linear_core(GoldenRun<T>& r, LinearAttentionOptions options, const FaceOf& of) {
  options.face = of.face;
  if (of.chunk) options.chunk = of.chunk;
  const Var<T> gamma = r.input("gamma"), S_init = r.input("S_init"), z_init = r.input("z_init");
  const auto result = linear_attention(tokens_first(r.input("q")), tokens_first(r.input("k")),
                                       tokens_first(r.input("v")), gamma, S_init, z_init, options);
  r.output("S_final", result.S);
  if (options.normalise) r.output("z_final", result.z);
  return result.o;
}

template <class T>
Tensor<T> decode_linear_core(GoldenRun<T>& r, const LinearAttentionOptions& options) {
  const Tensor<T> q = tokens_first(r.value("q")), k = tokens_first(r.value("k")),
                  v = tokens_first(r.value("v"));
  const Tensor<T> gamma = r.value_or_none("gamma");
  State<T> state = linear_attention_state<T>(q.size(0), q.size(2), q.size(3), v.size(3), options);
  if (r.has("S_init")) state["S"] = r.value("S_init");
  if (r.has("z_init")) state["z"] = r.value("z_init");
  Tensor<T> o = decoded<T>(q.size(1), [&](size_t first, size_t last) {
    return linear_attention_extend(state, slice(q, 1, first, last), slice(k, 1, first, last),
                                   slice(v, 1, first, last), gamma, options);
  });
  r.output("S_final", std::as_const(state)["S"]);
  if (options.normalise) r.output("z_final", std::as_const(state)["z"]);
  r.skip_gradients();
  return o;
}

std::vector<GoldenFace> linear_faces(FeatureMap phi, bool normalise) {
  const LinearAttentionOptions options = linear_options(phi, normalise);
  std::vector<GoldenFace> faces;
  for (const FaceOf& of : kFaces) {
    faces.push_back(
        golden_face(of.name, [=](auto& r) { r.output("o", tokens_first(linear_core(r, options, of))); }));
  }
  faces.push_back(golden_face("decode", [=](auto& r) { r.output("o", decode_linear_core(r, options)); }));
  return faces;
}

// o = silu(g) ⊙ groupnorm(retention(q, k, v, γ)), the norm over each head's channels.
std::vector<GoldenFace> gated_retention_faces() {
  constexpr double kGroupNormEps = 1e-5;
  const LinearAttentionOptions options = linear_options(FeatureMap::kIdentity, false);
  std::vector<GoldenFace> faces;
  for (const FaceOf& of : kFaces) {
    faces.push_back(golden_face(of.name, [=]<class T>(GoldenRun<T>& r) {
      const Var<T> o = tokens_first(linear_core(r, options, of));
      r.output("o", swish_gate(group_norm(o, 1, kGroupNormEps), r.input("g")));
    }));
  }
  return faces;
}

// Parameters of the course's layer: our name, the files' name.
constexpr std::pair<const char*, const char*> kLayerNames[] = {{"mixer.q.weight", "W_q"},
                                                               {"mixer.k.weight", "W_k"},
                                                               {"mixer.v.weight", "W_v"},
                                                               {"mixer.out.weight", "W_o"},
                                                               {"mixer.gamma_logit", "gamma_logit"}};

// The course's layer, without biases and ε.
template <class T>
struct LinearLayer {
  explicit LinearLayer(const GoldenRun<T>& r) : parameters(0) {
    const MixerConfig config{r.shape("x")[2], static_cast<size_t>(r.golden.number("H")), false, 0};
    mixer = make_mixer<T>("linear", config, parameters, "mixer");
    for (const auto& [ours, theirs] : kLayerNames) {
      Parameter<T>* parameter = parameters.find(ours);
      if (!parameter) fail("the layer has no parameter {}", ours);
      parameter->mutable_value() = r.value(theirs);
    }
  }

  ParameterList<T> parameters;
  std::unique_ptr<Mixer<T>> mixer;
};

std::vector<GoldenFace> linear_layer_faces() {
  std::vector<GoldenFace> faces;
  for (const FaceOf& of : kFaces) {
    if (of.chunk) continue;
    faces.push_back(golden_face(of.name, [of]<class T>(GoldenRun<T>& r) {
      const LinearLayer<T> layer(r);
      r.output("y", layer.mixer->forward(r.tape, r.input("x"), of.face, Var<T>()));
      r.backward();
      for (const auto& [ours, theirs] : kLayerNames) r.gradient(theirs, layer.parameters.find(ours)->grad());
    }));
  }
  faces.push_back(golden_face("decode", []<class T>(GoldenRun<T>& r) {
    const LinearLayer<T> layer(r);
    const Tensor<T> x = r.value("x");
    State<T> state = layer.mixer->init_state(x.size(0));
    std::vector<Tensor<T>> parts;
    for (size_t t = 0; t < x.size(1); ++t) {
      const Tensor<T> token = slice(x, 1, t, t + 1);
      parts.push_back(layer.mixer->extend(state, token, Tensor<T>::zeros(token.shape())));
    }
    r.output("y", concat(std::span<const Tensor<T>>(parts), 1));
    r.skip_gradients();
  }));
  return faces;
}

}  // namespace

void add_mixers(GoldenFaces& faces) {
  for (const char* name :
       {"softmax_attention", "softmax_attention_gqa", "softmax_attention_swa", "forgetting_attention"}) {
    faces[name] = softmax_faces();
  }
  faces["linear_attention"] = linear_faces(FeatureMap::kEluPlusOne, true);
  faces["linear_attention_decay"] = linear_faces(FeatureMap::kEluPlusOne, true);
  faces["linear_attention_identity"] = linear_faces(FeatureMap::kIdentity, false);
  // The same core with a decay: without one it is the variant before.
  faces["retention"] = linear_faces(FeatureMap::kIdentity, false);
  faces["retnet_gated_retention"] = gated_retention_faces();
  faces["g2c_linear_attention_layer"] = linear_layer_faces();
}

}  // namespace storytape
