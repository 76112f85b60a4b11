// Softmax attention with a soft cap: against its definition on every target and face, over a cache, and far out.
#include <cmath>
#include <limits>
#include <vector>

#include "nn/mixers/reference_softmax.h"
#include "nn/mixers/softmax_attention.h"
#include "tensor/index.h"
#include "tests/error_message.h"
#include "tests/kernel_testing.h"
#include "tests/linear_attention_testing.h"

namespace storytape {
namespace {

using test::distance;
using test::random_tensor;

struct Sizes {
  size_t queries, keys, heads, kv_heads, dk, dv, window;
};

template <class T>
struct Rows {
  Tensor<T> q, k, v;
  explicit Rows(const Sizes& n, double largest = 2)
      : q(random_tensor<T>({2, n.queries, n.heads, n.dk}, 1, -largest, largest)),
        k(random_tensor<T>({2, n.keys, n.kv_heads, n.dk}, 2, -largest, largest)),
        v(random_tensor<T>({2, n.keys, n.kv_heads, n.dv}, 3)) {}

  Tensor<T> run(const SoftmaxAttentionOptions& options) const {
    Tape<T> tape;
    return softmax_attention(tape.constant(q), tape.constant(k), tape.constant(v), options).value();
  }
};

SoftmaxAttentionOptions options_of(double softcap, size_t window = 0, Face face = Face::kChunkwise) {
  SoftmaxAttentionOptions options;
  options.face = face;
  options.scale = 0.7;
  options.window = window;
  options.softcap = softcap;
  return options;
}

}  // namespace

TEST_CASE("a soft cap is its definition on every target and face, windows and shared keys included") {
  const Sizes all[] = {{1, 1, 1, 1, 3, 2, 0},       {17, 17, 4, 2, 5, 7, 0},  {66, 66, 2, 1, 33, 19, 9},
                       {130, 130, 1, 1, 16, 16, 0}, {3, 120, 2, 2, 8, 8, 40}, {9, 100, 2, 1, 6, 5, 0}};
  test::on_every_target([&] {
    for (const Sizes& n : all) {
      const Rows<double> in(n);
      for (const double softcap : {0.3, 2.0, 50.0}) {
        INFO(n.queries << " queries, " << n.keys << " keys, window " << n.window << ", cap " << softcap);
        Tensor<double> o({2, n.queries, n.heads, n.dv});
        reference::softmax_attention({2, n.queries, n.keys, n.heads, n.kv_heads, n.dk, n.dv,
                                      static_cast<ptrdiff_t>(n.keys - n.queries), n.window, softcap},
                                     0.7, in.q.data(), in.k.data(), in.v.data(), o.data());
        for (const Face face : {Face::kRecurrent, Face::kParallel, Face::kChunkwise}) {
          const SoftmaxAttentionOptions options = options_of(softcap, n.window, face);
          CHECK(distance(in.run(options), o) <= 1e-13);
          const Rows<float> in32(n);
          CHECK(distance(in32.run(options), cast<float>(o)) <= 1e-5);
        }
      }
    }
  });
}

TEST_CASE("over a cache a soft cap gives what one pass gives") {
  const Rows<double> in({50, 50, 4, 2, 5, 7, 0});
  for (const size_t window : {0, 8}) {
    const SoftmaxAttentionOptions options = options_of(0.9, window);
    const Tensor<double> whole = in.run(options);
    for (const size_t piece : {1, 3, 25}) {
      State<double> cache = softmax_attention_state<double>(2, 2, 5, 7);
      for (size_t t = 0; t < 50;) {
        const size_t end = std::min<size_t>(50, t + piece);
        const Tensor<double> o = softmax_attention_extend(
            cache, slice(in.q, 1, t, end), slice(in.k, 1, t, end), slice(in.v, 1, t, end), options);
        CHECK(distance(o, slice(whole, 1, t, end)) <= 1e-13);
        t = end;
      }
    }
  }
}

TEST_CASE("a soft cap far above the logits changes nothing, and one far below makes all weights equal") {
  const Rows<double> in({20, 20, 2, 1, 4, 3, 0});
  CHECK(distance(in.run(options_of(1e9)), in.run(options_of(0))) <= 1e-12);
  const Tensor<double> even = in.run(options_of(1e-12));
  for (size_t t = 0; t < 20; ++t) {
    double mean = 0;
    for (size_t j = 0; j <= t; ++j) mean += in.v[j * 3] / static_cast<double>(t + 1);
    CHECK(even[t * 6] == Approx(mean).margin(1e-9));
  }
}

TEST_CASE("logits of 1e6 times the cap keep outputs and gradients finite, and hidden keys hidden") {
  const Rows<float> in({40, 40, 2, 2, 4, 3, 6}, 1e4);
  for (const Face face : {Face::kRecurrent, Face::kParallel, Face::kChunkwise}) {
    const auto gradients = [&](const Tensor<float>& k) {
      Tape<float> tape;
      const Var<float> q = tape.input(in.q), keys = tape.input(k), v = tape.input(in.v);
      const Var<float> o = softmax_attention(q, keys, v, options_of(5, 6, face));
      const Tensor<float> d_o = random_tensor<float>(o.shape(), 4);
      const Tensor<float> value = o.value();
      tape.backward(std::span<const Var<float>>(&o, 1), std::span<const Tensor<float>>(&d_o, 1));
      return std::vector<Tensor<float>>{value, q.grad(), keys.grad(), v.grad()};
    };
    const auto before = gradients(in.k);
    for (const Tensor<float>& x : before) CHECK(distance(x, x) == 0);
    // The first key is out of the last query's sight, and the last key out of the first's.
    Tensor<float> other = in.k.clone();
    for (size_t i = 0; i < 8; ++i) other[i] = -other[i];
    const auto after = gradients(other);
    CHECK(distance(slice(after[0], 1, 6, 40), slice(before[0], 1, 6, 40)) == 0);
  }
}

TEST_CASE("a soft cap that can't work is refused in a line") {
  const Rows<float> in({3, 3, 2, 2, 4, 3, 0});
  const auto refusal = [&](double softcap) { return test::message_of([&] { in.run(options_of(softcap)); }); };
  CHECK(refusal(-2) == "softmax_attention: the soft cap is -2, wanted a positive number, or 0 for none");
  CHECK(refusal(1e-40) ==
        "softmax_attention: the soft cap is 1e-40, wanted a positive number, or 0 for none");
  CHECK_FALSE(refusal(1e31).empty());
  CHECK_FALSE(refusal(std::numeric_limits<double>::infinity()).empty());
  CHECK_FALSE(refusal(std::numeric_limits<double>::quiet_NaN()).empty());
  Tape<float> tape;
  const Var<float> log_f = tape.constant(Tensor<float>({2, 3, 2}, -0.5F));
  CHECK(test::message_of([&] {
          softmax_attention(tape.constant(in.q), tape.constant(in.k), tape.constant(in.v), options_of(2),
                            log_f);
        }) == "softmax_attention: a soft cap and forget gates don't go together");
}

TEST_CASE("keys that are the values too give what keys and equal values give") {
  const Rows<double> in({30, 30, 4, 1, 5, 5, 0});
  const SoftmaxAttentionOptions options = options_of(0);
  State<double> two = softmax_attention_state<double>(2, 1, 5, 5),
                one = softmax_attention_state<double>(2, 1, 5, 0);
  CHECK(one.tensors().size() == 1);
  for (const auto& [first, end] : {std::pair<size_t, size_t>{0, 1}, {1, 9}, {9, 30}}) {
    const Tensor<double> q = slice(in.q, 1, first, end), k = slice(in.k, 1, first, end);
    const Tensor<double> wanted = softmax_attention_extend(two, q, k, k, options);
    CHECK(distance(softmax_attention_extend(one, q, k, Tensor<double>(), options), wanted) == 0);
  }
  CHECK(softmax_attention_bytes(one) * 2 == softmax_attention_bytes(two));
  const Tensor<double> q = slice(in.q, 1, 0, 1), k = slice(in.k, 1, 0, 1);
  CHECK(test::message_of([&] { softmax_attention_extend(one, q, k, k, options); }) ==
        "softmax_attention: v is given, the cache was made without values");
  CHECK(test::message_of([&] { softmax_attention_extend(two, q, k, Tensor<double>(), options); }) ==
        "softmax_attention: v is not given, the cache was made for values");
  CHECK(one.length == 30);
}

}  // namespace storytape
