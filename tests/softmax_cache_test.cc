// Softmax attention over cached keys and values: any cut of a sequence into calls gives what one pass gives.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "nn/mixers/softmax_attention.h"
#include "tensor/index.h"
#include "tensor/random.h"
#include "tensor/simd.h"
#include "tests/catch.h"
#include "tests/error_message.h"

namespace storytape {
namespace {

template <class T>
Tensor<T> normal(const Shape& shape, uint64_t seed) {
  Random random(seed);
  Tensor<T> t(shape);
  for (T& x : t.values()) x = static_cast<T>(random.normal());
  return t;
}

template <class T>
struct Sequence {
  Tensor<T> q, k, v;
  Sequence(size_t batch, size_t tokens, size_t heads, size_t kv_heads, size_t dk, size_t dv, uint64_t seed)
      : q(normal<T>({batch, tokens, heads, dk}, seed)),
        k(normal<T>({batch, tokens, kv_heads, dk}, seed + 1)),
        v(normal<T>({batch, tokens, kv_heads, dv}, seed + 2)) {}
  State<T> state() const { return softmax_attention_state<T>(k.size(0), k.size(2), k.size(3), v.size(3)); }
  Tensor<T> extend(State<T>& state, size_t first, size_t last, const SoftmaxAttentionOptions& options) const {
    return softmax_attention_extend(state, slice(q, 1, first, last), slice(k, 1, first, last),
                                    slice(v, 1, first, last), options);
  }
  Tensor<T> whole(const SoftmaxAttentionOptions& options) const {
    Tape<T> tape;
    return softmax_attention(tape.constant(q), tape.constant(k), tape.constant(v), options).value();
  }
  // The outputs of calls of the given lengths, which must add up to all tokens.
  Tensor<T> cut(const std::vector<size_t>& pieces, const SoftmaxAttentionOptions& options) const {
    State<T> cache = state();
    std::vector<Tensor<T>> parts;
    size_t first = 0;
    for (const size_t piece : pieces) {
      parts.push_back(extend(cache, first, first + piece, options));
      first += piece;
    }
    REQUIRE(first == q.size(1));
    REQUIRE(cache.length == first);
    return concat(std::span<const Tensor<T>>(parts), 1);
  }
};

// max |a - b|; infinite for NaN and unequal shapes.
template <class T>
double difference(const Tensor<T>& a, const Tensor<T>& b) {
  if (!(a.shape() == b.shape()) || a.size() == 0) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(d <= worst)) worst = std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
  }
  return worst;
}

std::vector<std::vector<size_t>> cuts(size_t tokens) {
  std::vector<std::vector<size_t>> all = {{tokens}, std::vector<size_t>(tokens, 1)};
  Random random(3);
  for (int i = 0; i < 8; ++i) {
    std::vector<size_t> pieces;
    for (size_t left = tokens; left;) {
      pieces.push_back(std::min<size_t>(left, 1 + random.below(i % 2 ? 5 : 60)));
      left -= pieces.back();
    }
    all.push_back(pieces);
  }
  return all;
}

template <class T>
void check_cuts(const Sequence<T>& s, std::vector<std::vector<size_t>> all,
                const SoftmaxAttentionOptions& options) {
  const Tensor<T> whole = s.whole(options);
  for (const auto& pieces : all) {
    INFO("first of " << pieces.size() << " pieces: " << pieces[0]);
    CHECK(difference(s.cut(pieces, options), whole) <= (sizeof(T) == 4 ? 1e-5 : 1e-12));
  }
}

}  // namespace

TEST_CASE("B012 any split of a sequence over the cache gives one pass's outputs") {
  std::vector<std::vector<size_t>> all = cuts(130);
  all.push_back({64, 66});
  all.push_back({63, 67});
  all.push_back({5, 60, 1, 64});
  for (const std::string& target : simd_targets()) {
    force_simd_target(target);
    INFO("target " << target);
    check_cuts(Sequence<double>(2, 130, 3, 3, 5, 11, 41), all, {});
    check_cuts(Sequence<float>(2, 130, 3, 3, 5, 11, 41), all, {});
    check_cuts(Sequence<float>(1, 130, 4, 2, 32, 32, 43), all, {});
  }
  force_simd_target("");
}

TEST_CASE("B104 a sliding window gives the same from the cache as in one pass") {
  for (const size_t tokens : {7, 8, 9, 16, 17, 33, 90}) {
    for (const size_t window : {1, 8, 31}) {
      INFO("T = " << tokens << ", window " << window);
      std::vector<std::vector<size_t>> all = cuts(tokens);
      for (const size_t piece : {3, 11}) {
        std::vector<size_t> pieces(tokens / piece, piece);
        if (tokens % piece) pieces.push_back(tokens % piece);
        all.push_back(pieces);
      }
      SoftmaxAttentionOptions options;
      options.window = window;
      check_cuts(Sequence<double>(2, tokens, 4, 2, 5, 3, 47), all, options);
    }
  }
}

TEST_CASE("B105 with a past, row i of a new block sees past + i + 1 keys") {
  for (const size_t block : {1, 2, 7}) {
    const size_t tokens = 5 + block;
    Sequence<double> s(1, tokens, 1, 1, 3, tokens, 53);
    // v_j is the j-th unit vector: o holds the weights.
    for (size_t i = 0; i < s.v.size(); ++i) s.v[i] = i % tokens == i / tokens ? 1 : 0;
    State<double> cache = s.state();
    s.extend(cache, 0, 5, {});
    const Tensor<double> o = s.extend(cache, 5, tokens, {});
    for (size_t i = 0; i < block; ++i) {
      size_t seen = 0;
      for (size_t j = 0; j < tokens; ++j) seen += o[i * tokens + j] > 0;
      CHECK(seen == 5 + i + 1);
    }
    CHECK(difference(o, slice(s.whole({}), 1, 5, tokens)) <= 1e-14);

    // The same as an op with gradients: the last `block` queries over all keys.
    Tape<double> tape;
    const Var<double> late = softmax_attention(tape.constant(slice(s.q, 1, 5, tokens)), tape.constant(s.k),
                                               tape.constant(s.v), SoftmaxAttentionOptions{});
    CHECK(difference(late.value(), o) <= 1e-14);
  }
}

TEST_CASE("B110 the first token of a long prompt still counts in the last step") {
  const Sequence<double> s(1, 50, 2, 2, 4, 4, 59);
  Sequence<double> changed = s;
  changed.k = s.k.clone();
  changed.v = s.v.clone();
  for (size_t i = 0; i < 8; ++i) {
    changed.k[i] += 1;
    changed.v[i] += 1;
  }
  const std::vector<size_t> steps(50, 1);
  const auto last = [](const Tensor<double>& o) { return slice(o, 1, 49, 50); };
  const double by_steps = difference(last(s.cut(steps, {})), last(changed.cut(steps, {})));
  CHECK(by_steps > 1e-4);
  CHECK(by_steps == Approx(difference(last(s.whole({})), last(changed.whole({})))).epsilon(1e-10));
}

TEST_CASE("a copied state is a snapshot that can be gone back to") {
  for (const size_t window : {0, 6}) {
    SoftmaxAttentionOptions options;
    options.window = window;
    const Sequence<double> s(2, 40, 2, 1, 3, 5, 61);
    const Sequence<double> other(2, 40, 2, 1, 3, 5, 67);
    State<double> cache = s.state();
    s.extend(cache, 0, 20, options);
    const State<double> snapshot = cache;
    other.extend(cache, 20, 33, options);
    cache = snapshot;
    CHECK(cache.length == 20);
    CHECK(difference(s.extend(cache, 20, 40, options), slice(s.whole(options), 1, 20, 40)) <= 1e-14);
    CHECK(snapshot.length == 20);
  }
}

TEST_CASE("B138 the cache grows by doubling, and with a window not at all") {
  const Sequence<float> s(1, 600, 2, 2, 3, 5, 71);
  State<float> cache = s.state();
  CHECK(cache.bytes() == 0);
  CHECK(softmax_attention_bytes(cache) == 0);
  size_t moves = 0;
  const float* rows = nullptr;
  for (size_t t = 0; t < 600; ++t) {
    s.extend(cache, t, t + 1, {});
    const float* now = std::as_const(cache)["k"].data();
    moves += now != rows;
    rows = now;
  }
  CHECK(moves <= 8);
  CHECK(softmax_attention_bytes(cache) == 600 * 2 * (3 + 5) * sizeof(float));
  CHECK(cache.bytes() >= softmax_attention_bytes(cache));
  CHECK(cache.bytes() <= 2 * softmax_attention_bytes(cache));

  SoftmaxAttentionOptions options;
  options.window = 24;
  State<float> windowed = s.state();
  for (size_t t = 0; t < 600; ++t) s.extend(windowed, t, t + 1, options);
  CHECK(windowed.bytes() == 24 * 2 * (3 + 5) * sizeof(float));
  CHECK(softmax_attention_bytes(windowed, 24) == 23 * 2 * (3 + 5) * sizeof(float));
}

TEST_CASE("what doesn't fit the cache is refused and leaves it as it was") {
  const Sequence<float> s(1, 9, 2, 2, 3, 5, 73);
  State<float> cache = s.state();
  s.extend(cache, 0, 4, {});
  const auto refuse = [&](const Sequence<float>& t, size_t first, size_t last, const std::string& words) {
    const std::string message = test::message_of([&] { t.extend(cache, first, last, {}); });
    INFO(message);
    CHECK(message.find(words) != std::string::npos);
  };
  refuse(Sequence<float>(2, 9, 2, 2, 3, 5, 1), 0, 2, "the cache holds [1, tokens, 2, 3]");
  refuse(Sequence<float>(1, 9, 4, 4, 3, 5, 1), 0, 2, "the cache holds");
  refuse(Sequence<float>(1, 9, 3, 2, 3, 5, 1), 0, 2, "3 query heads can't share 2");
  refuse(s, 4, 4, "at least one");
  CHECK(cache.length == 4);
  CHECK(difference(s.extend(cache, 4, 9, {}), slice(s.whole({}), 1, 4, 9)) <= 1e-6);
}

}  // namespace storytape
