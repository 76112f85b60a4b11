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
};
constexpr Kind kKinds[] = {{"full", 3, 3, 0}, {"full_grouped", 6, 2, 0}, {"full_window", 3, 3, 16}};

// Earlier rows before later ones, along the tokens.
ComplexTensor joined(const ComplexTensor& a, const ComplexTensor& b) {
  const size_t width = a.shape[2] * a.shape[3];
  ComplexTensor y({a.shape[0], a.shape[1] + b.shape[1], a.shape[2], a.shape[3]});
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
  variant.outputs = {"o"};

  const auto run = [kind]<class T>(Face face, size_t, const std::vector<Var<T>>& in,
                                   const std::vector<Var<T>>& states) {
    Var<T> k = in[1], v = in[2];
    if (!states.empty()) {
      k = concat<T>({states[0], k}, 1);
      v = concat<T>({states[1], v}, 1);
    }
    SoftmaxAttentionOptions options;
    options.face = face;
    options.scale = kScale;
    options.window = kind.window;
    return FaceResult<T>{{softmax_attention(in[0], k, v, options)}, {k, v}};
  };
  variant.run64 = run;
  variant.run32 = run;
  variant.reference = [kind](const std::vector<ComplexTensor>& in, const std::vector<ComplexTensor>& states) {
    const ComplexTensor k = states.empty() ? in[1] : joined(states[0], in[1]);
    const ComplexTensor v = states.empty() ? in[2] : joined(states[1], in[2]);
    const size_t queries = in[0].shape[1], keys = k.shape[1];
    const reference::SoftmaxSize size{kBatch,        queries, keys, kind.heads,
                                      kind.kv_heads, kDk,     kDv,  static_cast<ptrdiff_t>(keys - queries),
                                      kind.window};
    ComplexTensor o({kBatch, queries, kind.heads, kDv});
    reference::softmax_attention(size, kScale, in[0].data(), k.data(), v.data(), o.data());
    return std::vector<ComplexTensor>{o, k, v};
  };
  return variant;
}

}  // namespace

void register_softmax_faces() {
  for (const Kind& kind : kKinds) register_faces(face_variant(kind));
}

}  // namespace storytape
