// The face law for softmax attention: its state is the keys and values of the tokens so far.
#include <algorithm>

#include "autograd/ops_shape.h"
#include "nn/mixers/faces.h"
#include "nn/mixers/reference_softmax.h"
#include "nn/mixers/registry.h"
#include "nn/mixers/softmax_attention.h"

namespace storytape {
namespace {

constexpr size_t kBatch = 2, kDk = 5, kDv = 7;
// Tokens that an initial state has seen.
constexpr size_t kPast = 6;
constexpr double kScale = 0.625;

struct Kind {
  const char* name;
  size_t heads, kv_heads, window;
  bool forget;
  double softcap = 0;
};
constexpr Kind kKinds[] = {{"full", 3, 3, 0, false},
                           {"full_grouped", 6, 2, 0, false},
                           {"full_window", 3, 3, 16, false},
                           {"forgetting", 3, 3, 0, true},
                           {"forgetting_grouped_window", 4, 2, 16, true},
                           {"full_softcap", 4, 2, 0, false, 1.5}};

// Earlier rows before later ones, along the tokens.
ComplexTensor joined(const ComplexTensor& a, const ComplexTensor& b) {
  const size_t width = a.shape.product(2, a.shape.rank());
  Shape shape = a.shape;
  shape[1] += b.shape[1];
  ComplexTensor y(shape);
  auto* to = y.data();
  for (size_t batch = 0; batch < a.shape[0]; ++batch) {
    for (const ComplexTensor* part : {&a, &b}) {
      const size_t n = part->shape[1] * width;
      to = std::copy_n(part->data() + batch * n, n, to);
    }
  }
  return y;
}

FaceVariant face_variant(const Kind& kind) {
  const auto rows = [](size_t heads, size_t width) {
    return [=](size_t tokens, uint64_t seed) { return example_normal({kBatch, tokens, heads, width}, seed); };
  };
  const auto past = [](size_t heads, size_t width) {
    return [=](size_t, uint64_t seed) { return example_normal({kBatch, kPast, heads, width}, seed); };
  };
  FaceVariant variant;
  variant.name = kind.name;
  variant.inputs = {
      {"q", rows(kind.heads, kDk)}, {"k", rows(kind.kv_heads, kDk)}, {"v", rows(kind.kv_heads, kDv)}};
  variant.states = {{"k", past(kind.kv_heads, kDk)}, {"v", past(kind.kv_heads, kDv)}};
  if (kind.forget) {
    const auto gates = [kind](size_t tokens, uint64_t seed) {
      Tensor<double> log_f = example_uniform({kBatch, tokens, kind.heads}, seed, -0.5, 0);
      // Every eleventh is a hard reset.
      for (size_t i = 0; i < log_f.size(); ++i) log_f[i] = i % 11 == 5 ? -1e30f : log_f[i];
      return log_f;
    };
    variant.inputs.push_back({"log_f", gates});
    variant.states.push_back({"log_f", [gates](size_t, uint64_t seed) { return gates(kPast, seed); }});
  }
  variant.outputs = {"o"};

  const auto run = [kind]<class T>(Face face, size_t, const std::vector<Var<T>>& in,
                                   const std::vector<Var<T>>& states) {
    // The keys, values and gates so far.
    std::vector<Var<T>> cached(in.begin() + 1, in.end());
    for (size_t i = 0; i < states.size(); ++i) cached[i] = concat<T>({states[i], cached[i]}, 1);
    SoftmaxAttentionOptions options;
    options.face = face;
    options.scale = kScale;
    options.window = kind.window;
    options.softcap = kind.softcap;
    const Var<T> log_f = kind.forget ? cached[2] : Var<T>();
    return FaceResult<T>{{softmax_attention(in[0], cached[0], cached[1], options, log_f)}, cached};
  };
  variant.run64 = run;
  variant.run32 = run;
  variant.reference = [kind](const std::vector<ComplexTensor>& in, const std::vector<ComplexTensor>& states) {
    std::vector<ComplexTensor> cached(in.begin() + 1, in.end());
    for (size_t i = 0; i < states.size(); ++i) cached[i] = joined(states[i], cached[i]);
    const size_t queries = in[0].shape[1], keys = cached[0].shape[1];
    const reference::SoftmaxSize size{
        kBatch,        queries,     keys, kind.heads,
        kind.kv_heads, kDk,         kDv,  static_cast<ptrdiff_t>(keys - queries),
        kind.window,   kind.softcap};
    ComplexTensor o({kBatch, queries, kind.heads, kDv});
    reference::softmax_attention(size, kScale, in[0].data(), cached[0].data(), cached[1].data(), o.data(),
                                 kind.forget ? cached[2].data() : nullptr);
    cached.insert(cached.begin(), o);
    return cached;
  };
  return variant;
}

}  // namespace

void register_softmax_faces() {
  for (const Kind& kind : kKinds) register_faces(face_variant(kind));
}

}  // namespace storytape
