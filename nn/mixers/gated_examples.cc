// The points at which the gradients of the gated mixers are proven, and their variants for the face checks.
#include <cmath>
#include <optional>

#include "autograd/ops_shape.h"
#include "autograd/registry.h"
#include "nn/mixers/faces.h"
#include "nn/mixers/gated_recurrence.h"
#include "nn/mixers/kernels/gated.h"
#include "nn/mixers/parallel_ops.h"
#include "nn/mixers/reference.h"

namespace storytape {
namespace {

constexpr size_t kBatch = 2;
constexpr size_t kHeads = 2;

// A point of the family, with sizes.
struct Point {
  std::string op;
  GateKind gate = GateKind::kNone;
  bool delta = false;
  size_t steps = 1;
  std::string name = {};
  size_t tokens = 17;
  size_t dk = 5, dv = 11;
  bool state = true;
  size_t chunk = 16;
  bool rescale = false;
  double float_multiple = 256;
};

// Rows of length 1, as the delta rule wants its keys.
Tensor<double> unit_rows(Tensor<double> x, size_t width) {
  for (size_t i = 0; i < x.size(); i += width) {
    double sum = 0;
    for (size_t c = 0; c < width; ++c) sum += x[i + c] * x[i + c];
    for (size_t c = 0; c < width; ++c) x[i + c] = static_cast<float>(x[i + c] / std::sqrt(sum));
  }
  return x;
}

Shape per_token(const Point& p, size_t tokens, size_t width, bool writes) {
  if (writes && width > 0) return {kBatch, tokens, p.steps, kHeads, width};
  if (writes) return {kBatch, tokens, p.steps, kHeads};
  if (width > 0) return {kBatch, tokens, kHeads, width};
  return {kBatch, tokens, kHeads};
}

Tensor<double> draw_keys(const Point& p, size_t tokens, uint64_t seed) {
  Tensor<double> k = example_normal(per_token(p, tokens, p.dk, true), seed);
  return p.delta ? unit_rows(std::move(k), p.dk) : k;
}
// A hard reset, no forgetting, and gates that forget so little that differences still see the first tokens.
Tensor<double> mild_gates(const Point& p, uint64_t seed) {
  Tensor<double> alpha =
      example_uniform(per_token(p, p.tokens, p.gate == GateKind::kVector ? p.dk : 0, false), seed, 0.75, 1);
  for (size_t i = 1; i < alpha.size(); i += 7) alpha[i] = 1;
  if (!p.rescale && alpha.size() > 3) alpha[3] = 0;
  return alpha;
}
// From a hard reset to no forgetting at all.
Tensor<double> draw_gates(const Point& p, size_t tokens, uint64_t seed) {
  Tensor<double> alpha =
      example_uniform(per_token(p, tokens, p.gate == GateKind::kVector ? p.dk : 0, false), seed, 0.5, 1);
  for (size_t i = 0; i < alpha.size(); ++i) {
    if (i % 19 == 3) alpha[i] = 0;
    if (i % 7 == 1) alpha[i] = 1;
    if (i % 29 == 5) alpha[i] = 0x1p-20;
  }
  return alpha;
}
// All of [0, 2] where n_h > 1, else [0, 1], with both ends.
Tensor<double> draw_betas(const Point& p, size_t tokens, uint64_t seed) {
  const double high = p.steps > 1 ? 2 : 1;
  Tensor<double> beta = example_uniform(per_token(p, tokens, 0, true), seed, 0, high);
  for (size_t i = 0; i < beta.size(); ++i) {
    if (i % 11 == 2) beta[i] = 0;
    if (i % 13 == 4) beta[i] = high;
  }
  return beta;
}

// Where alpha, beta and the initial state lie among the inputs.
struct Places {
  std::optional<size_t> alpha, beta, S;
};
Places places_of(const Point& p, bool state) {
  Places places;
  size_t next = 3;
  if (p.gate != GateKind::kNone) places.alpha = next++;
  if (p.delta) places.beta = next++;
  if (state) places.S = next++;
  return places;
}

std::vector<ComplexTensor> reference_of(const Point& p, size_t tokens, const std::vector<ComplexTensor>& in,
                                        bool has_state) {
  using C = std::complex<double>;
  const Places places = places_of(p, has_state);
  ComplexTensor o({kBatch, tokens, kHeads, p.dv}), S({kBatch, kHeads, p.dk, p.dv});
  if (places.S) S.values = in[*places.S].values;
  const C* alpha = places.alpha ? in[*places.alpha].data() : nullptr;
  const C* beta = places.beta ? in[*places.beta].data() : nullptr;
  reference::gated_recurrence<C>({kBatch, tokens, kHeads, p.dk, p.dv}, p.steps, p.gate == GateKind::kVector,
                                 in[0].data(), in[1].data(), in[2].data(), alpha, beta, S.data(), o.data());
  return {o, S};
}

template <class T>
std::vector<Var<T>> run(const Point& p, Face face, size_t chunk, const std::vector<Var<T>>& in,
                        bool has_state) {
  const Places places = places_of(p, has_state);
  GatedOptions options;
  options.face = face;
  options.chunk = chunk;
  options.steps = p.steps;
  options.rescale = p.rescale;
  const size_t writes = in[0].shape()[1] * p.steps;
  const auto flat = [&](Var<T> x, size_t width) {
    return width > 0 ? reshape(x, {kBatch, writes, kHeads, width}) : reshape(x, {kBatch, writes, kHeads});
  };
  const auto result = gated_recurrence(
      p.op.c_str(), in[0], flat(in[1], p.dk), flat(in[2], p.dv), places.alpha ? in[*places.alpha] : Var<T>(),
      places.beta ? flat(in[*places.beta], 0) : Var<T>(), places.S ? in[*places.S] : Var<T>(), options);
  return {result.o, result.S};
}

GradCase grad_case(const Point& p, Face face) {
  std::vector<NamedInput> inputs = {
      {"q", example_normal(per_token(p, p.tokens, p.dk, false), 540)},
      {"k", draw_keys(p, p.tokens, 541)},
      {"v", example_normal(per_token(p, p.tokens, p.dv, true), 542)},
  };
  if (p.gate != GateKind::kNone) {
    inputs.push_back({"alpha", mild_gates(p, 543), true, 0, 1});
  }
  if (p.delta) inputs.push_back({"beta", draw_betas(p, p.tokens, 544), true, 0, 2});
  if (p.state) inputs.push_back({"S_init", example_normal({kBatch, kHeads, p.dk, p.dv}, 545)});
  GradCase c = make_case(
      p.name, inputs, {"o", "S"},
      [=]<class T>(Tape<T>&, const std::vector<Var<T>>& in) { return run(p, face, p.chunk, in, p.state); },
      [=](const std::vector<ComplexTensor>& in) { return reference_of(p, p.tokens, in, p.state); });
  c.face = to_string(face);
  c.samples = p.tokens * p.dv > 100 ? 12 : 0;
  c.float_multiple = p.float_multiple;
  return c;
}

std::vector<GradCase> examples(const Point& base) {
  const auto with = [&](std::string name, size_t tokens, const auto& change) {
    Point p = base;
    p.name = std::move(name);
    p.tokens = tokens;
    change(p);
    return p;
  };
  const auto as_is = [](Point&) {};
  std::vector<Point> all;
  // Around one tile of 16 writes and two.
  for (const size_t tokens : {size_t{1}, size_t{2}, size_t{7}, 16 / base.steps + 1, 32 / base.steps + 3}) {
    all.push_back(with(std::to_string(tokens) + " tokens", tokens, as_is));
  }
  all.push_back(with("no state given", 19, [](Point& p) { p.state = false; }));
  all.push_back(with("three channels on one", 5, [](Point& p) {
    p.dk = 3;
    p.dv = 1;
  }));
  all.push_back(with("33 and 19 channels", 9, [](Point& p) {
    p.dk = 33;
    p.dv = 19;
  }));

  std::vector<GradCase> cases;
  for (const Face face : {Face::kRecurrent, Face::kParallel, Face::kChunkwise}) {
    for (const Point& p : all) cases.push_back(grad_case(p, face));
  }
  for (const size_t chunk : {1, 3, 64}) {
    const Point p = with("chunks of " + std::to_string(chunk), chunk == 64 ? 32 / base.steps + 5 : 13,
                         [chunk](Point& to) { to.chunk = chunk; });
    for (const Face face : {Face::kRecurrent, Face::kChunkwise}) cases.push_back(grad_case(p, face));
  }
  if (base.gate != GateKind::kNone) {
    cases.push_back(grad_case(with("divided by the running product", 7, [](Point& p) { p.rescale = true; }),
                              Face::kParallel));
  }
  if (base.steps > 1) {
    // A token that fills a tile by itself.
    const Point p = with("17 writes per token", 3, [](Point& to) { to.steps = 17; });
    for (const Face face : {Face::kRecurrent, Face::kChunkwise}) cases.push_back(grad_case(p, face));
  }
  return cases;
}

FaceVariant face_variant(const Point& p) {
  FaceVariant variant;
  variant.name = p.op;
  const auto normal = [=](size_t width, bool writes) {
    return [=](size_t tokens, uint64_t seed) {
      return example_normal(per_token(p, tokens, width, writes), seed);
    };
  };
  variant.inputs = {{"q", normal(p.dk, false)},
                    {"k", [=](size_t tokens, uint64_t seed) { return draw_keys(p, tokens, seed); }},
                    {"v", normal(p.dv, true)}};
  if (p.gate != GateKind::kNone) {
    variant.inputs.push_back(
        {"alpha", [=](size_t tokens, uint64_t seed) { return draw_gates(p, tokens, seed); }});
  }
  if (p.delta) {
    variant.inputs.push_back(
        {"beta", [=](size_t tokens, uint64_t seed) { return draw_betas(p, tokens, seed); }});
  }
  variant.states = {{"S", [=](size_t, uint64_t seed) {
                       return example_normal({kBatch, kHeads, p.dk, p.dv}, seed);
                     }}};
  variant.outputs = {"o"};
  variant.float_multiple = p.float_multiple;
  const auto run_face = [=]<class T>(Face face, size_t chunk, std::vector<Var<T>> in,
                                     const std::vector<Var<T>>& states) {
    in.insert(in.end(), states.begin(), states.end());
    const std::vector<Var<T>> result = run(p, face, chunk, in, !states.empty());
    return FaceResult<T>{{result[0]}, {result[1]}};
  };
  variant.run64 = run_face;
  variant.run32 = run_face;
  variant.reference = [=](std::vector<ComplexTensor> in, const std::vector<ComplexTensor>& states) {
    in.insert(in.end(), states.begin(), states.end());
    return reference_of(p, in[0].shape[1], in, !states.empty());
  };
  return variant;
}

}  // namespace

void register_gated_recurrence() {
  register_parallel_ops();
  const std::vector<Point> family = {
      {"unified", GateKind::kScalar, false, 1},
      {"gla", GateKind::kVector, false, 1},
      {"delta_rule", GateKind::kNone, true, 1},
      {"gated_delta_rule", GateKind::kScalar, true, 1},
      {"kda", GateKind::kVector, true, 1},
      {"delta_product", GateKind::kNone, true, 3},
      {"gated_delta_product", GateKind::kScalar, true, 2},
      // No published layer, but a point of the family.
      {"kda_product", GateKind::kVector, true, 2},
  };
  for (const Point& p : family) {
    register_op(p.op, [p] { return examples(p); });
    Point small = p;
    small.dk = 3;
    small.dv = 4;
    // The parallel face solves one system over all writes; its rounding grows with their number.
    if (p.delta) small.float_multiple = p.steps > 1 ? 4096 : 1024;
    register_faces(face_variant(small));
  }
}

}  // namespace storytape
