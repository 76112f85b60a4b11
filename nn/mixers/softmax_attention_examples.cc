// The points at which softmax attention's gradients are proven.
#include "autograd/registry.h"
#include "nn/mixers/reference_softmax.h"
#include "nn/mixers/softmax_attention.h"

namespace storytape {
namespace {

constexpr Face kFaces[] = {Face::kRecurrent, Face::kParallel, Face::kChunkwise};

// One point: sizes, what is masked, and how large the logits are.
struct Point {
  std::string name;
  size_t queries, keys, heads = 3, kv_heads = 3, dk = 5, dv = 7, window = 0;
  ptrdiff_t offset = 0;
  double deviation = 1;  // of q and k
  double mean = 0;       // of q and k
  double float_multiple = 64;
  bool forget = false;
  // With forget gates: log_f is uniform in [lowest, 0], and this at every seventh token, if below 0.
  double lowest = -1;
  double reset = 0;
  double softcap = 0;
};

Tensor<double> gates(const Point& p, size_t batch) {
  Tensor<double> log_f = example_uniform({batch, p.keys, p.heads}, 703, p.lowest, 0);
  for (size_t i = 0; i < log_f.size(); ++i) {
    if (p.reset < 0 && i / p.heads % p.keys % 7 == 3) log_f[i] = p.reset;
  }
  return log_f;
}

GradCase attention_case(const Point& p, Face face) {
  constexpr size_t kBatch = 2;
  constexpr double kScale = 0.625;
  const reference::SoftmaxSize size{kBatch, p.queries, p.keys,   p.heads,  p.kv_heads,
                                    p.dk,   p.dv,      p.offset, p.window, p.softcap};
  std::vector<NamedInput> inputs = {
      {"q", example_normal({kBatch, p.queries, p.heads, p.dk}, 700, p.mean, p.deviation)},
      {"k", example_normal({kBatch, p.keys, p.kv_heads, p.dk}, 701, p.mean, p.deviation)},
      {"v", example_normal({kBatch, p.keys, p.kv_heads, p.dv}, 702)}};
  if (p.forget) inputs.push_back({"log_f", gates(p, kBatch)});
  GradCase c = make_case(
      p.name, std::move(inputs), {"o"},
      [=]<class T>(Tape<T>&, const std::vector<Var<T>>& in) {
        SoftmaxAttentionOptions options;
        options.face = face;
        options.scale = kScale;
        options.window = p.window;
        options.softcap = p.softcap;
        options.offset = p.offset;
        return softmax_attention(in[0], in[1], in[2], options, p.forget ? in[3] : Var<T>());
      },
      [=](const std::vector<ComplexTensor>& in) {
        ComplexTensor o({kBatch, p.queries, p.heads, p.dv});
        reference::softmax_attention(size, kScale, in[0].data(), in[1].data(), in[2].data(), o.data(),
                                     p.forget ? in[3].data() : nullptr);
        return o;
      });
  c.face = to_string(face);
  c.samples = p.queries * p.keys > 64 ? 12 : 0;
  c.float_multiple = p.float_multiple;
  return c;
}

std::vector<Point> points() {
  std::vector<Point> all;
  for (const size_t tokens : {1, 2, 3, 7, 17, 65, 130})
    all.push_back({std::to_string(tokens) + " tokens", tokens, tokens});
  Point p{"one channel", 5, 5};
  p.dk = p.dv = 1;
  all.push_back(p);
  p = {"33 and 19 channels", 11, 11};
  p.dk = 33;
  p.dv = 19;
  all.push_back(p);
  p = {"6 heads on 3", 17, 17};
  p.heads = 6;
  all.push_back(p);
  p = {"4 heads on 1", 7, 7};
  p.heads = 4;
  p.kv_heads = 1;
  all.push_back(p);
  for (const size_t window : {1, 2, 9, 40}) {
    p = {"window " + std::to_string(window), 37, 37};
    p.window = window;
    all.push_back(p);
  }
  p = {"window 100 over 200", 200, 200};
  p.window = 100;
  p.heads = p.kv_heads = 1;
  all.push_back(p);
  p = {"16 earlier keys", 7, 23};
  p.offset = 16;
  all.push_back(p);
  p = {"103 earlier keys, window 99", 66, 169};
  p.offset = 103;
  p.window = 99;
  p.heads = p.kv_heads = 1;
  all.push_back(p);
  p = {"keys that no query sees", 5, 11};
  p.offset = 2;
  all.push_back(p);
  p = {"fewer keys than positions", 9, 4};
  all.push_back(p);
  p = {"queries that see no key", 7, 3};
  p.offset = -4;
  all.push_back(p);
  p = {"one query that sees no key", 1, 3};
  p.offset = -1;
  all.push_back(p);
  p = {"logits up to 100", 24, 24};
  p.deviation = 5;
  p.float_multiple = 4096;
  all.push_back(p);
  p = {"a common offset of 1000 in the logits", 9, 9};
  p.mean = 18;
  p.float_multiple = 1 << 16;
  all.push_back(p);
  return all;
}

// Where forget gates may go wrong: the keys before, across and after the first of a block of queries, several
// blocks and chunks, the window's far end.
std::vector<Point> forgetting_points() {
  std::vector<Point> all;
  const auto add = [&](const std::string& name, size_t queries, size_t keys) -> Point& {
    Point p{name, queries, keys};
    p.forget = true;
    p.offset = static_cast<ptrdiff_t>(keys) - static_cast<ptrdiff_t>(queries);
    all.push_back(p);
    return all.back();
  };
  for (const size_t tokens : {1, 2, 7, 17, 65, 130}) add(std::to_string(tokens) + " tokens", tokens, tokens);
  add("6 heads on 3", 17, 17).heads = 6;
  for (const size_t window : {1, 9, 40}) add("window " + std::to_string(window), 37, 37).window = window;
  Point& far = add("window 100 over 200", 200, 200);
  far.window = 100;
  far.heads = far.kv_heads = 1;
  far.lowest = -0.05;
  add("16 earlier keys", 7, 23);
  Point& both = add("103 earlier keys, window 99", 66, 169);
  both.window = 99;
  both.heads = both.kv_heads = 1;
  both.lowest = -0.05;
  add("queries that see no key", 7, 3);
  add("more keys than the last query sees", 5, 11).offset = 2;
  add("gates that stay open", 70, 70).lowest = -1e-3;
  add("gates of -60", 37, 37).reset = -60;
  add("gates of -1e30", 37, 37).reset = -1e30;
  for (Point& p : all) p.float_multiple = 128;
  return all;
}

// A soft cap: barely felt, within reach of every logit, and with most of them at it.
std::vector<Point> capped_points() {
  std::vector<Point> all;
  const auto add = [&](const std::string& name, size_t queries, size_t keys, double softcap) -> Point& {
    Point p{name, queries, keys};
    p.offset = static_cast<ptrdiff_t>(keys) - static_cast<ptrdiff_t>(queries);
    p.softcap = softcap;
    all.push_back(p);
    return all.back();
  };
  for (const size_t tokens : {1, 2, 7, 17, 65, 130})
    add(std::to_string(tokens) + " tokens", tokens, tokens, 1.5);
  add("a cap of 50", 17, 17, 50);
  add("6 heads on 3", 17, 17, 2).heads = 6;
  add("33 and 19 channels", 11, 11, 3).dk = 33;
  add("window 9", 37, 37, 1.5).window = 9;
  Point& far = add("103 earlier keys, window 99", 66, 169, 2);
  far.window = 99;
  far.heads = far.kv_heads = 1;
  add("16 earlier keys", 7, 23, 1.5);
  add("queries that see no key", 7, 3, 1.5);
  Point& beyond = add("logits up to 10 times the cap", 24, 24, 10);
  beyond.deviation = 5;
  beyond.float_multiple = 4096;
  return all;
}

std::vector<GradCase> examples_of(const std::vector<Point>& points) {
  std::vector<GradCase> cases;
  for (const Face face : kFaces) {
    for (const Point& p : points) cases.push_back(attention_case(p, face));
  }
  return cases;
}

}  // namespace

void register_softmax_attention() {
  register_op("softmax_attention", [] { return examples_of(points()); });
  register_op("forgetting_attention", [] { return examples_of(forgetting_points()); });
  register_op("capped_attention", [] { return examples_of(capped_points()); });
}

}  // namespace storytape
