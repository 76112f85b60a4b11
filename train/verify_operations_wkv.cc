// Golden cases of RWKV-4: WKV, the token shift, and the time mixing made of them.
#include "nn/mixers/rwkv_time_mix.h"
#include "nn/mixers/wkv.h"
#include "nn/token_shift.h"
#include "train/verify_operations_mixers.h"
#include "train/verify_operations_run.h"

namespace storytape {
namespace {

WkvOptions options_of(const FaceOf& of) {
  WkvOptions options;
  options.face = of.face;
  if (of.chunk) options.chunk = of.chunk;
  return options;
}

// The first half of x's tokens at once, the rest one by one: extend(first, last) → [B, last - first, C].
template <class T, class Extend>
Tensor<T> in_steps(size_t tokens, Extend extend) {
  std::vector<Tensor<T>> parts;
  if (tokens / 2) parts.push_back(extend(size_t{0}, tokens / 2));
  for (size_t t = tokens / 2; t < tokens; ++t) parts.push_back(extend(t, t + 1));
  return concat(std::span<const Tensor<T>>(parts), 1);
}

std::vector<GoldenFace> wkv_faces() {
  std::vector<GoldenFace> faces;
  for (const FaceOf& of : kFaces) {
    faces.push_back(golden_face(of.name, [of](auto& r) {
      const auto w = r.input("w"), u = r.input("u"), k = r.input("k"), v = r.input("v");
      const auto mean = r.input("mean_init"), logden = r.input("logden_init");
      const auto result = wkv(w, u, k, v, mean, logden, options_of(of));
      r.output("o", result.o);
      r.output("mean_final", result.mean);
      r.output("logden_final", result.logden);
    }));
  }
  faces.push_back(golden_face("decode", []<class T>(GoldenRun<T>& r) {
    const Tensor<T> w = r.value("w"), u = r.value("u"), k = r.value("k"), v = r.value("v");
    State<T> state = wkv_state<T>(k.size(0), k.size(2));
    if (r.has("mean_init")) {
      state["mean"] = r.value("mean_init");
      state["logden"] = r.value("logden_init");
    }
    r.output("o", in_steps<T>(k.size(1), [&](size_t first, size_t last) {
               return wkv_extend(state, w, u, slice(k, 1, first, last), slice(v, 1, first, last));
             }));
    r.output("mean_final", std::as_const(state)["mean"]);
    r.output("logden_final", std::as_const(state)["logden"]);
    r.skip_gradients();
  }));
  return faces;
}

// w itself, or by RWKV-LM's parameter.
template <class T>
Var<T> decay(GoldenRun<T>& r) {
  return r.golden.text("decay_param") == "w" ? r.input("w") : exp(r.input("time_decay"));
}

std::vector<GoldenFace> time_mix_faces() {
  std::vector<GoldenFace> faces;
  for (const FaceOf& of : kFaces) {
    faces.push_back(golden_face(of.name, [of]<class T>(GoldenRun<T>& r) {
      const Var<T> x = r.input("x");
      const TimeMixWeights<Var<T>> weights{r.input("mu_r"), r.input("mu_k"), r.input("mu_v"),
                                           r.input("W_r"),  r.input("W_k"),  r.input("W_v"),
                                           r.input("W_o"),  decay(r),        r.input("u")};
      r.output("y", rwkv_time_mix<T>(weights, x, {}, {}, {}, options_of(of)).y);
    }));
  }
  faces.push_back(golden_face("decode", []<class T>(GoldenRun<T>& r) {
    const Tensor<T> x = r.value("x");
    const TimeMixWeights<Tensor<T>> weights{r.value("mu_r"), r.value("mu_k"),  r.value("mu_v"),
                                            r.value("W_r"),  r.value("W_k"),   r.value("W_v"),
                                            r.value("W_o"),  decay(r).value(), r.value("u")};
    State<T> state = rwkv_time_mix_state<T>(x.size(0), x.size(2));
    r.output("y", in_steps<T>(x.size(1), [&](size_t first, size_t last) {
               return rwkv_time_mix_extend(weights, state, slice(x, 1, first, last));
             }));
    r.skip_gradients();
  }));
  return faces;
}

}  // namespace

void add_wkv(GoldenFaces& faces) {
  faces["rwkv4_wkv"] = wkv_faces();
  faces["rwkv4_time_mix"] = time_mix_faces();
  faces["token_shift"] = {golden_face("op", [](auto& r) {
    const auto x = r.input("x"), mu = r.input("mu"), x_prev = r.input("x_prev");
    r.output("y", token_shift(x, mu, x_prev).y);
  })};
}

}  // namespace storytape
