// The points at which linear attention's gradients are proven, and its variants for the face checks.
#include <optional>

#include "autograd/registry.h"
#include "nn/mixers/faces.h"
#include "nn/mixers/linear_attention.h"
#include "nn/mixers/reference.h"

namespace storytape {
namespace {

constexpr size_t kBatch = 2;
constexpr size_t kHeads = 3;

// Sizes, what is given, and what the op is told.
struct Point {
  std::string name;
  size_t tokens = 17;
  size_t dk = 5, dv = 11;
  bool gamma = true, states = true;
  size_t chunk = 16;
  FeatureMap phi = FeatureMap::kEluPlusOne;
  bool normalise = true;
  double eps = 1e-6;
  double mean = 0;  // of q and k
  double float_multiple = 256;
};

// A hard reset, no forgetting, and what lies between.
Tensor<double> decays() {
  return example_values({kHeads}, {0, 1, 0.8125});
}
// Over many tokens a result is too steep in a decay of 1 for differences to one side.
Tensor<double> decays_for_differences(size_t tokens) {
  return tokens <= 13 ? decays() : example_values({kHeads}, {0, 0.875, 0.8125});
}

// The inputs that a call is given, by place; absent ones have none.
struct Places {
  std::optional<size_t> gamma, S, z;
};

template <class X>
X at(const std::vector<X>& in, std::optional<size_t> place) {
  return place ? in[*place] : X();
}

std::vector<ComplexTensor> reference_of(const Point& p, size_t tokens, const std::vector<ComplexTensor>& in,
                                        const Places& places) {
  using C = std::complex<double>;
  const reference::MixerSize size{kBatch, tokens, kHeads, p.dk, p.dv};
  const auto state = [&](std::optional<size_t> place, const Shape& shape) {
    ComplexTensor t(shape);
    if (place) t.values = in[*place].values;
    return t;
  };
  ComplexTensor o({kBatch, tokens, kHeads, p.dv});
  ComplexTensor S = state(places.S, {kBatch, kHeads, p.dk, p.dv});
  ComplexTensor z = state(places.z, {kBatch, kHeads, p.dk});
  const C* gamma = places.gamma ? in[*places.gamma].data() : nullptr;
  reference::linear_attention<C>(size, p.phi == FeatureMap::kEluPlusOne, p.eps, in[0].data(), in[1].data(),
                                 in[2].data(), gamma, S.data(), p.normalise ? z.data() : nullptr, o.data());
  std::vector<ComplexTensor> results{o, S};
  if (p.normalise) results.push_back(z);
  return results;
}

template <class T>
LinearAttentionResult<T> run(const Point& p, Face face, size_t chunk, const std::vector<Var<T>>& in,
                             const Places& places) {
  LinearAttentionOptions options;
  options.face = face;
  options.chunk = chunk;
  options.phi = p.phi;
  options.normalise = p.normalise;
  options.eps = p.eps;
  return linear_attention(in[0], in[1], in[2], at(in, places.gamma), at(in, places.S), at(in, places.z),
                          options);
}

GradCase grad_case(const Point& p, Face face) {
  std::vector<NamedInput> inputs = {
      {"q", example_normal({kBatch, p.tokens, kHeads, p.dk}, 500, p.mean)},
      {"k", example_normal({kBatch, p.tokens, kHeads, p.dk}, 501, p.mean)},
      {"v", example_normal({kBatch, p.tokens, kHeads, p.dv}, 502)},
  };
  Places places;
  const auto give = [&](NamedInput input) {
    inputs.push_back(std::move(input));
    return inputs.size() - 1;
  };
  if (p.gamma) places.gamma = give({"gamma", decays_for_differences(p.tokens), true, 0, 1});
  if (p.states) places.S = give({"S_init", example_normal({kBatch, kHeads, p.dk, p.dv}, 503)});
  // Positive, as sums of features are.
  if (p.states && p.normalise)
    places.z = give({"z_init", example_uniform({kBatch, kHeads, p.dk}, 504, 0.25, 2)});

  std::vector<std::string> outputs = {"o", "S"};
  if (p.normalise) outputs.push_back("z");
  GradCase c = make_case(
      p.name, inputs, outputs,
      [=]<class T>(Tape<T>&, const std::vector<Var<T>>& in) {
        const LinearAttentionResult<T> result = run(p, face, p.chunk, in, places);
        std::vector<Var<T>> results{result.o, result.S};
        if (p.normalise) results.push_back(result.z);
        return results;
      },
      [=](const std::vector<ComplexTensor>& in) { return reference_of(p, p.tokens, in, places); });
  c.face = to_string(face);
  c.samples = p.tokens * p.dv > 100 ? 12 : 0;
  c.float_multiple = p.float_multiple;
  return c;
}

Point point(std::string name, size_t tokens) {
  Point p;
  p.name = std::move(name);
  p.tokens = tokens;
  return p;
}

std::vector<GradCase> examples() {
  std::vector<Point> all;
  for (const size_t tokens : {1, 2, 7, 17, 65})
    all.push_back(point(std::to_string(tokens) + " tokens", tokens));
  Point p = point("no state given", 19);
  p.states = false;
  all.push_back(p);
  p = point("no decay given", 19);
  p.gamma = false;
  all.push_back(p);
  p = point("neither decay nor state", 33);
  p.gamma = p.states = false;
  all.push_back(p);
  p = point("identity, not normalised", 19);
  p.phi = FeatureMap::kIdentity;
  p.normalise = false;
  all.push_back(p);
  // With one channel in the keys the normaliser cancels them.
  p = point("two channels on one", 5);
  p.dk = 2;
  p.dv = 1;
  all.push_back(p);
  p = point("33 and 19 channels", 11);
  p.dk = 33;
  p.dv = 19;
  all.push_back(p);
  p = point("small features, no epsilon", 7);
  p.mean = -8;
  p.eps = 0;
  p.states = false;
  p.float_multiple = 1024;
  all.push_back(p);

  std::vector<GradCase> cases;
  for (const Face face : {Face::kRecurrent, Face::kParallel, Face::kChunkwise}) {
    for (const Point& each : all) cases.push_back(grad_case(each, face));
  }
  for (const size_t chunk : {1, 3, 64}) {
    // At 29 tokens a chunk is wider than a padded row of v.
    p = point("chunks of " + std::to_string(chunk), chunk == 64 ? 29 : 13);
    p.chunk = chunk;
    cases.push_back(grad_case(p, Face::kChunkwise));
  }
  return cases;
}

FaceVariant face_variant(const Point& p) {
  const auto fixed = [](const Tensor<double>& t) { return [t](size_t, uint64_t) { return t; }; };
  const auto per_token = [](size_t width) {
    return [width](size_t tokens, uint64_t seed) {
      return example_normal({kBatch, tokens, kHeads, width}, seed);
    };
  };
  FaceVariant variant;
  variant.name = p.name;
  variant.inputs = {{"q", per_token(p.dk)}, {"k", per_token(p.dk)}, {"v", per_token(p.dv)}};
  if (p.gamma) variant.inputs.push_back({"gamma", fixed(decays()), false});
  variant.states = {{"S", [=](size_t, uint64_t seed) {
                       return example_normal({kBatch, kHeads, p.dk, p.dv}, seed);
                     }}};
  if (p.normalise) {
    variant.states.push_back({"z", [=](size_t, uint64_t seed) {
                                return example_uniform({kBatch, kHeads, p.dk}, seed, 0.25, 2);
                              }});
  }
  variant.outputs = {"o"};
  variant.float_multiple = p.float_multiple;

  const auto places = [=](size_t inputs, size_t states) {
    Places result;
    if (p.gamma) result.gamma = 3;
    if (states > 0) result.S = inputs;
    if (states > 1) result.z = inputs + 1;
    return result;
  };
  const auto with = [](auto in, const auto& states) {
    in.insert(in.end(), states.begin(), states.end());
    return in;
  };
  const auto run_face = [=]<class T>(Face face, size_t chunk, const std::vector<Var<T>>& in,
                                     const std::vector<Var<T>>& states) {
    const auto result = run(p, face, chunk, with(in, states), places(in.size(), states.size()));
    FaceResult<T> all{{result.o}, {result.S}};
    if (p.normalise) all.states.push_back(result.z);
    return all;
  };
  variant.run64 = run_face;
  variant.run32 = run_face;
  variant.reference = [=](const std::vector<ComplexTensor>& in, const std::vector<ComplexTensor>& states) {
    return reference_of(p, in[0].shape[1], with(in, states), places(in.size(), states.size()));
  };
  return variant;
}

}  // namespace

void register_linear_attention() {
  register_op("linear_attention", examples);
  Point p = point("linear", 0);
  register_faces(face_variant(p));
  p.name = "linear_identity";
  p.gamma = p.normalise = false;
  p.phi = FeatureMap::kIdentity;
  register_faces(face_variant(p));
  p.name = "retention";
  p.float_multiple = 1024;  // the gradient of γ sums T² terms in the parallel face
  p.gamma = true;
  register_faces(face_variant(p));
}

}  // namespace storytape
