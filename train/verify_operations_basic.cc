// Golden cases of the basic ops. Those that have no op of their own yet are composed of ops, as a layer
// would.
#include <algorithm>
#include <cmath>

#include "nn/embedding.h"
#include "nn/head_loss.h"
#include "train/verify_operations_run.h"

namespace storytape {
namespace {

// The face of a variant that has one way to be computed.
template <class Run>
std::vector<GoldenFace> one_face(Run run) {
  return {golden_face("op", run)};
}

// y = f(x)
template <class F>
std::vector<GoldenFace> unary_faces(F f) {
  return one_face([f](auto& r) { r.output("y", f(r.input("x"))); });
}

template <class T>
void cross_entropy_by_head(GoldenRun<T>& r) {
  // The head's logits are h·Eᵀ; with E = 1 they are h.
  const Var<T> logits = r.input("logits");
  const size_t classes = logits.shape()[1];
  const std::vector<int32_t> targets = r.ids("targets");
  const auto counted =
      targets.size() - static_cast<size_t>(std::count(targets.begin(), targets.end(), kIgnoreTarget));
  Tensor<T> one = Tensor<T>::zeros({classes, classes});
  for (size_t i = 0; i < classes; ++i) one[i * classes + i] = T{1};
  r.output("loss", head_loss(logits, r.tape.constant(one), Var<T>(), std::span<const int32_t>(targets),
                             static_cast<T>(1 / static_cast<double>(counted))));
}

}  // namespace

void add_basic_operations(GoldenFaces& faces) {
  faces["gelu_erf"] = unary_faces([](auto x) { return gelu_erf(x); });
  faces["gelu_tanh"] = unary_faces([](auto x) { return gelu_tanh(x); });
  faces["silu"] = unary_faces([](auto x) { return silu(x); });
  faces["sigmoid"] = unary_faces([](auto x) { return sigmoid(x); });
  faces["softplus"] = unary_faces([](auto x) { return softplus(x); });
  faces["log_sigmoid"] = unary_faces([](auto x) { return log_sigmoid(x); });
  faces["elu_plus_one"] = unary_faces([](auto x) { return elu_plus_one(x); });
  faces["softmax"] = unary_faces([](auto x) { return softmax(x); });
  faces["layer_norm"] = one_face([](auto& r) {
    r.output("y", layer_norm(r.input("x"), r.input("w"), r.input("b"), r.golden.number("eps")));
  });
  faces["rms_norm"] =
      one_face([](auto& r) { r.output("y", rms_norm(r.input("x"), r.input("w"), r.golden.number("eps"))); });
  faces["cross_entropy"] = {
      golden_face("op",
                  [](auto& r) {
                    const std::vector<int32_t> targets = r.ids("targets");
                    r.output("loss", cross_entropy(r.input("logits"), std::span<const int32_t>(targets)));
                  }),
      golden_face("head", [](auto& r) { cross_entropy_by_head(r); })};
  faces["embedding"] = {
      golden_face("op",
                  [](auto& r) {
                    const std::vector<int32_t> ids = r.ids("ids");
                    r.output("y", reshape(gather_rows(r.input("W"), std::span<const int32_t>(ids)),
                                          r.golden.shape("out.y")));
                  }),
      golden_face("layer", []<class T>(GoldenRun<T>& r) {
        // No positions: a table of zeros.
        const std::vector<int32_t> ids = r.ids("ids");
        const Shape y = r.golden.shape("out.y");
        const Var<T> positions = r.tape.constant(Tensor<T>::zeros({y[1], y[2]}));
        r.output("y", embed(r.input("W"), positions, std::span<const int32_t>(ids), y[0], y[1]));
      })};
}

}  // namespace storytape
