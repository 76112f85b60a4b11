// Golden cases of the ops around the mixers, by the fused op and, as its specification, composed of primitive ops.
#include <cmath>

#include "nn/gates.h"
#include "nn/normalize.h"
#include "nn/rope.h"
#include "nn/short_convolution.h"
#include "train/verify_operations_mixers.h"

namespace storytape {
namespace {

// x/√(Σ x² + ε), or x/max(‖x‖, ε)
template <class T>
Var<T> composed_l2_normalize(Tape<T>& tape, Var<T> x, bool clamp, double eps) {
  Var<T> squares = sum(square(x), x.shape().rank() - 1, true);
  if (!clamp) return x / sqrt(add_constant(squares, eps));
  // max(‖x‖, ε) = √(max(Σ x², ε²)), whose gradient is finite at x = 0
  Tensor<T> above(squares.shape());
  for (size_t i = 0; i < above.size(); ++i)
    above[i] = static_cast<double>(squares.value()[i]) > eps * eps ? T{1} : T{0};
  const Var<T> least = tape.constant(Tensor<T>(squares.shape(), static_cast<T>(eps * eps)));
  return x / sqrt(select(above, squares, least));
}

// Depthwise: z_t = b + Σ_j w[:, j]·x_{t-K+1+j}, w [C, K], after `cache` [B, K-1, C] or zeros; cache_out the
// last K-1 rows.
template <class T>
void composed_causal_conv1d(GoldenRun<T>& r) {
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
void composed_rope(GoldenRun<T>& r) {
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
void causal_conv1d(GoldenRun<T>& r) {
  const ShortConvolutionOptions options{r.golden.text("activation") == "silu"};
  const auto result = short_convolution(r.input("x"), r.input("w"), r.input("b"), r.input("cache"), options);
  r.output("y", result.y);
  r.output("cache_out", result.state);
}

template <class T>
void decode_causal_conv1d(GoldenRun<T>& r) {
  const ShortConvolutionOptions options{r.golden.text("activation") == "silu"};
  const Tensor<T> x = r.value("x"), w = r.value("w"), b = r.value_or_none("b");
  State<T> state = short_convolution_state<T>(x.size(0), x.size(2), w.size(1));
  if (r.has("cache")) state["rows"] = r.value("cache");
  std::vector<Tensor<T>> parts;
  for (size_t t = 0; t < x.size(1); ++t) {
    parts.push_back(short_convolution_extend(state, slice(x, 1, t, t + 1), w, b, options));
  }
  r.output("y", concat(std::span<const Tensor<T>>(parts), 1));
  r.output("cache_out", std::as_const(state)["rows"]);
  r.skip_gradients();
}

template <class T>
void l2_normalized(GoldenRun<T>& r) {
  const L2Mode mode = r.golden.text("l2_mode") == "clamp" ? L2Mode::kClamp : L2Mode::kSqrtEps;
  r.output("y", l2_normalize(r.input("x"), mode, r.golden.number("eps")));
}

}  // namespace

void add_sequence_operations(GoldenFaces& faces) {
  faces["rope"] = {golden_face("op",
                               [](auto& r) {
                                 RopeOptions options;
                                 options.base = r.golden.number("base");
                                 options.offset = static_cast<size_t>(r.golden.number("offset"));
                                 r.output("y", tokens_first(rope(tokens_first(r.input("x")), options)));
                               }),
                   golden_face("composed", [](auto& r) { composed_rope(r); })};
  faces["causal_conv1d"] = {golden_face("op", [](auto& r) { causal_conv1d(r); }),
                            golden_face("composed", [](auto& r) { composed_causal_conv1d(r); }),
                            golden_face("decode", [](auto& r) { decode_causal_conv1d(r); })};
  faces["l2_normalize"] = {
      golden_face("op", [](auto& r) { l2_normalized(r); }), golden_face("composed", [](auto& r) {
        const bool clamp = r.golden.text("l2_mode") == "clamp";
        r.output("y", composed_l2_normalize(r.tape, r.input("x"), clamp, r.golden.number("eps")));
      })};
  // By heads that stand apart, and by heads that are blocks of one row.
  faces["groupnorm_per_head"] = {
      golden_face("op", [](auto& r) { r.output("y", group_norm(r.input("x"), 1, r.golden.number("eps"))); }),
      golden_face("blocks", []<class T>(GoldenRun<T>& r) {
        const Var<T> x = tokens_first(r.input("x"));
        const Shape s = x.shape();
        const Var<T> y = group_norm(reshape(x, {s[0], s[1], s[2] * s[3]}), s[2], r.golden.number("eps"));
        r.output("y", tokens_first(reshape(y, s)));
      })};
  faces["swish_gate"] = {
      golden_face("op", [](auto& r) { r.output("y", swish_gate(r.input("x"), r.input("g"))); }),
      golden_face("composed", [](auto& r) { r.output("y", silu(r.input("g")) * r.input("x")); })};
  faces["gla_gate"] = {golden_face("op", [](auto& r) {
    r.output("alpha", gla_gate(r.input("x"), r.input("W1"), r.input("W2"), r.golden.number("tau")));
  })};
}

}  // namespace storytape
