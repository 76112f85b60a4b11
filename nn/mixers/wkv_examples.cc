// The points at which WKV's gradients are proven, and its variant for the face checks.
#include <algorithm>

#include "autograd/ops.h"
#include "autograd/registry.h"
#include "nn/mixers/faces.h"
#include "nn/mixers/reference_wkv.h"
#include "nn/mixers/wkv.h"

namespace storytape {
namespace {

constexpr size_t kBatch = 2;

struct Point {
  std::string name;
  size_t tokens = 17;
  size_t channels = 5;
  bool state = true;
  size_t chunk = 16;
  double keys = 0;       // k and the state's log den lie around this,
  double swing = 0;      // k by so much above and below it in turn
  double bonus = 1;      // deviation of u
  double largest_w = 1;  // decays lie between 0 and this, both included where there is a second channel
  double float_multiple = 256;
};

// No decay, the largest, and what lies between.
Tensor<double> decays(size_t channels, double largest) {
  Tensor<double> w = example_uniform({channels}, 710, 0, largest);
  w[0] = 0;
  if (channels > 1) w[1] = largest;
  return w;
}

std::vector<ComplexTensor> reference_of(const std::vector<ComplexTensor>& in) {
  const Shape& shape = in[2].shape;
  const size_t batch = shape[0], tokens = shape[1], channels = shape[2];
  ComplexTensor o(shape), mean({batch, channels}), logden({batch, channels});
  std::fill(logden.values.begin(), logden.values.end(), -std::numeric_limits<double>::infinity());
  if (in.size() > 4) {
    mean.values = in[4].values;
    logden.values = in[5].values;
  }
  reference::wkv<std::complex<double>>(batch, tokens, channels, in[0].data(), in[1].data(), in[2].data(),
                                       in[3].data(), mean.data(), logden.data(), o.data());
  return {o, mean, logden};
}

template <class T>
WkvResult<T> run(Face face, size_t chunk, const std::vector<Var<T>>& in) {
  WkvOptions options;
  options.face = face;
  options.chunk = chunk;
  const bool state = in.size() > 4;
  return wkv(in[0], in[1], in[2], in[3], state ? in[4] : Var<T>(), state ? in[5] : Var<T>(), options);
}

Tensor<double> keys(const Point& p) {
  Tensor<double> k = example_normal({kBatch, p.tokens, p.channels}, 712, p.keys);
  for (size_t i = 0; i < k.size(); ++i) {
    const double by = i / p.channels % 2 ? p.swing : -p.swing;
    k[i] = static_cast<float>(k[i] + by);
  }
  return k;
}

GradCase grad_case(const Point& p, Face face) {
  const Shape tokens = {kBatch, p.tokens, p.channels};
  std::vector<NamedInput> inputs = {{"w", decays(p.channels, p.largest_w), true, 0},
                                    {"u", example_normal({p.channels}, 711, 0, p.bonus)},
                                    {"k", keys(p)},
                                    {"v", example_normal(tokens, 713)}};
  if (p.state) {
    inputs.push_back({"mean_init", example_normal({kBatch, p.channels}, 714)});
    inputs.push_back({"logden_init", example_normal({kBatch, p.channels}, 715, p.keys)});
  }
  GradCase c = make_case(
      p.name, inputs, {"o", "mean", "logden"},
      [=]<class T>(Tape<T>&, const std::vector<Var<T>>& in) {
        const WkvResult<T> result = run(face, p.chunk, in);
        return std::vector<Var<T>>{result.o, result.mean, result.logden};
      },
      reference_of);
  c.face = to_string(face);
  c.samples = p.tokens * p.channels > 100 ? 12 : 0;
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
  for (const size_t tokens : {1, 7}) {
    Point p = point("no state given, " + std::to_string(tokens) + " tokens", tokens);
    p.state = false;
    all.push_back(p);
  }
  Point p = point("no decay", 19);
  p.largest_w = 0;
  all.push_back(p);
  p = point("strong decay", 19);
  p.largest_w = 40;
  all.push_back(p);
  // e^100 is beyond float. Exponents there are 2^-17 apart.
  p = point("keys around 100", 19);
  p.keys = 100;
  p.float_multiple = 1024;
  all.push_back(p);
  p = point("keys of -80 and 80 in turn", 12);
  p.swing = 80;
  p.float_multiple = 1024;
  all.push_back(p);
  p = point("a large bonus", 11);
  p.bonus = 50;
  all.push_back(p);
  p = point("one channel", 5);
  p.channels = 1;
  all.push_back(p);
  p = point("33 channels", 5);
  p.channels = 33;
  all.push_back(p);

  std::vector<GradCase> cases;
  for (const Face face : {Face::kRecurrent, Face::kParallel, Face::kChunkwise}) {
    for (const Point& each : all) cases.push_back(grad_case(each, face));
  }
  for (const size_t chunk : {1, 3, 64}) {
    p = point("chunks of " + std::to_string(chunk), chunk == 64 ? 29 : 13);
    p.chunk = chunk;
    cases.push_back(grad_case(p, Face::kChunkwise));
  }
  // Longer than the recurrence's blocks of sums.
  cases.push_back(grad_case(point("131 tokens", 131), Face::kRecurrent));
  return cases;
}

FaceVariant face_variant() {
  constexpr size_t kChannels = 3;
  const auto normal = [](const Shape& shape, double mean, double deviation) {
    return [=](size_t, uint64_t seed) { return example_normal(shape, seed, mean, deviation); };
  };
  const auto per_token = [](double deviation) {
    return [deviation](size_t tokens, uint64_t seed) {
      return example_normal({kBatch, tokens, kChannels}, seed, 0, deviation);
    };
  };
  FaceVariant variant;
  variant.name = "wkv";
  variant.inputs = {{"w",
                     [](size_t, uint64_t) {
                       return example_values({kChannels}, {0, 0.0625, 3});
                     },
                     false},
                    {"u", normal({kChannels}, 0, 2), false},
                    {"k", per_token(3)},
                    {"v", per_token(1)}};
  variant.states = {{"mean", normal({kBatch, kChannels}, 0, 1)},
                    {"logden", normal({kBatch, kChannels}, 2, 3)}};
  variant.outputs = {"o"};
  const auto with = [](auto in, const auto& states) {
    in.insert(in.end(), states.begin(), states.end());
    return in;
  };
  const auto run_face = [=]<class T>(Face face, size_t chunk, const std::vector<Var<T>>& in,
                                     const std::vector<Var<T>>& states) {
    const WkvResult<T> result = run(face, chunk, with(in, states));
    return FaceResult<T>{{result.o}, {result.mean, result.logden}};
  };
  variant.run64 = run_face;
  variant.run32 = run_face;
  variant.reference = [=](const std::vector<ComplexTensor>& in, const std::vector<ComplexTensor>& states) {
    return reference_of(with(in, states));
  };
  return variant;
}

}  // namespace

void register_wkv() {
  register_op("wkv", examples);
  register_faces(face_variant());
}

}  // namespace storytape
