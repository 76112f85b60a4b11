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

// x/√(Σ x² + ε), or x/max(‖x‖, ε)
template <class T>
Var<T> l2_normalized(Tape<T>& tape, Var<T> x, bool clamp, double eps) {
  Var<T> squares = sum(square(x), x.shape().rank() - 1, true);
  if (!clamp) return x / sqrt(add_constant(squares, eps));
  // max(‖x‖, ε) = √(max(Σ x², ε²)), whose gradient is finite at x = 0
  Tensor<T> above(squares.shape());
  for (size_t i = 0; i < above.size(); ++i)
    above[i] = static_cast<double>(squares.value()[i]) > eps * eps ? T{1} : T{0};
  const Var<T> least = tape.constant(Tensor<T>(squares.shape(), static_cast<T>(eps * eps)));
  return x / sqrt(select(above, squares, least));
}

// Rows t-1 of x [B, T, C]; before row 0 stands x_prev [B, C], or zeros.
template <class T>
Var<T> shifted(Tape<T>& tape, Var<T> x, Var<T> x_prev) {
  const Shape s = x.shape();
  const Var<T> before =
      x_prev.defined() ? reshape(x_prev, {s[0], 1, s[2]}) : tape.constant(Tensor<T>::zeros({s[0], 1, s[2]}));
  return slice(concat<T>({before, x}, 1), 1, 0, s[1]);
}

// Depthwise: z_t = b + Σ_j w[:, j]·x_{t-K+1+j}, w [C, K], after `cache` [B, K-1, C] or zeros; cache_out the
// last K-1 rows.
template <class T>
void causal_conv1d(GoldenRun<T>& r) {
  const Var<T> x = r.input("x"), w = r.input("w"), bias = r.input("b"), cache = r.input("cache");
  const Shape s = x.shape();
  const size_t taps = w.shape()[1];
  const Var<T> before = cache.defined() ? cache : r.tape.constant(Tensor<T>::zeros({s[0], taps - 1, s[2]}));
  const Var<T> rows = concat<T>({before, x}, 1);
  Var<T> z = bias;
  for (size_t j = 0; j < taps; ++j) {
    const Var<T> term = slice(rows, 1, j, j + s[1]) * reshape(slice(w, 1, j, j + 1), {s[2]});
    z = z.defined() ? z + term : term;
  }
  r.output("y", r.golden.text("activation") == "silu" ? silu(z) : z);
  r.output("cache_out", slice(rows, 1, s[1], s[1] + taps - 1));
}

// Rotation of the halves of x [B, H, T, d] by (t + offset)·base^(-2i/d).
template <class T>
void rope(GoldenRun<T>& r) {
  const Var<T> x = r.input("x");
  const size_t length = x.shape()[2], half = x.shape()[3] / 2;
  const double base = r.golden.number("base"), offset = r.golden.number("offset");
  Tensor<T> cosines({length, half}), sines({length, half});
  for (size_t i = 0; i < length * half; ++i) {
    const double channel = static_cast<double>(i % half) / static_cast<double>(half);
    const double angle = (static_cast<double>(i / half) + offset) * std::pow(base, -channel);
    cosines[i] = static_cast<T>(std::cos(angle));
    sines[i] = static_cast<T>(std::sin(angle));
  }
  const Var<T> c = r.tape.constant(cosines), s = r.tape.constant(sines);
  const Var<T> a = slice(x, 3, 0, half), b = slice(x, 3, half, 2 * half);
  r.output("y", concat<T>({a * c - b * s, b * c + a * s}, 3));
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
  faces["groupnorm_per_head"] = one_face([]<class T>(GoldenRun<T>& r) {
    r.output("y", layer_norm(r.input("x"), Var<T>(), Var<T>(), r.golden.number("eps")));
  });
  faces["swish_gate"] = one_face([](auto& r) { r.output("y", silu(r.input("g")) * r.input("x")); });
  faces["l2_normalize"] = one_face([](auto& r) {
    const bool clamp = r.golden.text("l2_mode") == "clamp";
    r.output("y", l2_normalized(r.tape, r.input("x"), clamp, r.golden.number("eps")));
  });
  faces["token_shift"] = one_face([](auto& r) {
    const auto x = r.input("x"), mu = r.input("mu");
    r.output("y", mu * x + add_constant(-mu, 1) * shifted(r.tape, x, r.input("x_prev")));
  });
  faces["causal_conv1d"] = one_face([](auto& r) { causal_conv1d(r); });
  faces["rope"] = one_face([](auto& r) { rope(r); });
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
