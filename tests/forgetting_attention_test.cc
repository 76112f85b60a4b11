// Softmax attention with forget gates: hard resets, long sequences in float, and decoding from the cache.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "nn/mixers/reference_softmax.h"
#include "nn/mixers/softmax_attention.h"
#include "tensor/index.h"
#include "tests/error_message.h"
#include "tests/kernel_testing.h"

namespace storytape {
namespace {

constexpr Face kFaces[] = {Face::kRecurrent, Face::kParallel, Face::kChunkwise};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class T>
Tensor<T> normal(const Shape& shape, uint64_t seed) {
  Random random(seed);
  Tensor<T> t(shape);
  for (T& x : t.values()) x = static_cast<T>(static_cast<float>(random.normal()));
  return t;
}

// Inputs of T tokens, the same numbers in float and double; gates uniform in [lowest, 0].
template <class T>
struct Inputs {
  Tensor<T> q, k, v, log_f, d_o;
  Inputs(size_t batch, size_t tokens, size_t heads, size_t kv_heads, uint64_t seed, double lowest = -1)
      : q(normal<T>({batch, tokens, heads, 5}, seed)),
        k(normal<T>({batch, tokens, kv_heads, 5}, seed + 1)),
        v(normal<T>({batch, tokens, kv_heads, 7}, seed + 2)),
        log_f({batch, tokens, heads}),
        d_o(normal<T>({batch, tokens, heads, 7}, seed + 3)) {
    Random random(seed + 4);
    for (T& x : log_f.values()) x = static_cast<T>(static_cast<float>(random.uniform(lowest, 0)));
  }
  // The gate of every head at one token.
  void set_gate(size_t t, double value) {
    const size_t tokens = log_f.size(1), heads = log_f.size(2);
    for (size_t b = 0; b < log_f.size(0); ++b) {
      for (size_t h = 0; h < heads; ++h) log_f[(b * tokens + t) * heads + h] = static_cast<T>(value);
    }
  }
  Inputs piece(size_t first, size_t last) const {
    Inputs p = *this;
    for (Tensor<T>* x : {&p.q, &p.k, &p.v, &p.log_f, &p.d_o}) *x = slice(*x, 1, first, last);
    return p;
  }
};

template <class T>
struct Results {
  Tensor<T> o, dq, dk, dv, d_log_f;
  std::vector<const Tensor<T>*> all() const { return {&o, &dq, &dk, &dv, &d_log_f}; }
};

template <class T>
Results<T> run(const Inputs<T>& in, const SoftmaxAttentionOptions& options) {
  Tape<T> tape;
  const Var<T> q = tape.input(in.q), k = tape.input(in.k), v = tape.input(in.v), f = tape.input(in.log_f);
  const Var<T> o = softmax_attention(q, k, v, options, f);
  const Tensor<T> value = o.value();
  tape.backward(std::span<const Var<T>>(&o, 1), std::span<const Tensor<T>>(&in.d_o, 1));
  return {value, q.grad(), k.grad(), v.grad(), f.grad()};
}

// max |a - b| relative to max |b|; infinite for values that aren't finite and unequal shapes.
template <class A, class B>
double difference(const Tensor<A>& a, const Tensor<B>& b) {
  if (!(a.shape() == b.shape()) || a.size() == 0) return kInfinity;
  double worst = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    if (!std::isfinite(x) || !std::isfinite(y)) return kInfinity;
    worst = std::max(worst, std::abs(x - y));
    largest = std::max(largest, std::abs(y));
  }
  return worst / std::max(largest, 1e-3);
}

template <class A, class B>
double worst_difference(const Results<A>& a, const Results<B>& b) {
  double worst = 0;
  for (size_t i = 0; i < 5; ++i) worst = std::max(worst, difference(*a.all()[i], *b.all()[i]));
  return worst;
}

SoftmaxAttentionOptions with(Face face, size_t window = 0) {
  SoftmaxAttentionOptions options;
  options.face = face;
  options.window = window;
  return options;
}

}  // namespace

TEST_CASE("with forget gates the three faces are the definition at every length, on every target") {
  test::on_every_target([] {
    for (size_t tokens = 1; tokens <= 200; tokens += tokens < 20 ? 1 : 13) {
      for (const size_t window : {0, 7}) {
        Inputs<double> in(2, tokens, 4, 2, 90 + tokens);
        in.set_gate(tokens / 2, -60);
        INFO(tokens << " tokens, window " << window);
        Tensor<double> o(in.d_o.shape());
        reference::softmax_attention<double>({2, tokens, tokens, 4, 2, 5, 7, 0, window}, 1 / std::sqrt(5.0),
                                             in.q.data(), in.k.data(), in.v.data(), o.data(),
                                             std::as_const(in).log_f.data());
        const Results<double> rows = run(in, with(Face::kRecurrent, window));
        CHECK(difference(rows.o, o) <= 1e-13);
        CHECK(worst_difference(run(in, with(Face::kParallel, window)), rows) <= 1e-11);
        CHECK(worst_difference(run(in, with(Face::kChunkwise, window)), rows) <= 1e-11);
      }
    }
  });
}

TEST_CASE("open gates give softmax attention without gates") {
  const Inputs<double> in(2, 70, 3, 3, 21, 0);
  for (const Face face : kFaces) {
    Tape<double> tape;
    const Var<double> plain =
        softmax_attention(tape.constant(in.q), tape.constant(in.k), tape.constant(in.v), with(face));
    CHECK(difference(run(in, with(face)).o, plain.value()) <= 1e-15);
  }
}

TEST_CASE("a hard reset cuts the sequence: -inf, -1e30 and -1e38 alike, in every face, on every target") {
  constexpr size_t kTokens = 150;
  test::on_every_target([] {
    for (const size_t at : {1, 7, 63, 64, 65, 96, 149}) {
      for (const double gate : {-kInfinity, -1e30, -1e38}) {
        Inputs<float> in(1, kTokens, 2, 1, 300 + at);
        in.set_gate(at, gate);
        for (const Face face : kFaces) {
          INFO("reset at " << at << " by " << gate << ", " << to_string(face));
          const Results<float> whole = run(in, with(face));
          const Results<float> first = run(in.piece(0, at), with(face));
          const Results<float> second = run(in.piece(at, kTokens), with(face));
          for (size_t i = 0; i < 5; ++i) {
            CHECK(difference(slice(*whole.all()[i], 1, 0, at), *first.all()[i]) <= 1e-5);
            CHECK(difference(slice(*whole.all()[i], 1, at, kTokens), *second.all()[i]) <= 1e-5);
          }
          // The first gate of a piece is never used; nor has the one that shut a gradient.
          for (size_t h = 0; h < 2; ++h) {
            CHECK(whole.d_log_f[at * 2 + h] == 0);
            CHECK(whole.d_log_f[h] == 0);
          }
        }
      }
    }
  });
}

TEST_CASE("all gates shut: every token sees itself alone, exactly") {
  test::on_every_target([] {
    Inputs<float> in(1, 100, 2, 2, 31);
    for (float& x : in.log_f.values()) x = -std::numeric_limits<float>::infinity();
    for (const Face face : kFaces) {
      INFO(to_string(face));
      const Results<float> r = run(in, with(face));
      CHECK(difference(r.o, in.v) <= 1e-6);
      CHECK(difference(r.dv, in.d_o) <= 1e-6);
      for (const Tensor<float>* d : {&r.dq, &r.dk, &r.d_log_f}) {
        bool small = true;
        for (const float x : d->values()) small = small && std::abs(x) <= 1e-6f;
        CHECK(small);
      }
    }
  });
}

TEST_CASE("gates of a long sequence are summed over their segments alone: float keeps its digits") {
  // Running sums would reach -1500 here, where a float steps by 1.2e-4, and two of them would differ by that.
  constexpr size_t kTokens = 3000;
  const Inputs<double> exact(1, kTokens, 1, 1, 41);
  const Inputs<float> in(1, kTokens, 1, 1, 41);
  test::on_every_target([&] {
    for (const Face face : {Face::kRecurrent, Face::kChunkwise}) {
      INFO(to_string(face));
      const Results<float> got = run(in, with(face));
      const Results<double> want = run(exact, with(face));
      CHECK(worst_difference(got, want) <= 3e-6);
      // At the end as good as at the beginning.
      const auto tail = [](const auto& x) { return slice(x, 1, kTokens - 100, kTokens); };
      CHECK(difference(tail(got.o), tail(want.o)) <= 3e-6);
      CHECK(difference(tail(got.d_log_f), tail(want.d_log_f)) <= 3e-6);
    }
  });
}

TEST_CASE("a gradient to the gates is added to what is there, and made alone if wanted alone") {
  const Inputs<double> in(2, 37, 4, 2, 51);
  for (const Face face : kFaces) {
    INFO(to_string(face));
    Tape<double> tape;
    const Var<double> f = tape.input(in.log_f);
    const Var<double> q = tape.constant(in.q), k = tape.constant(in.k), v = tape.constant(in.v);
    const Var<double> both[] = {softmax_attention(q, k, v, with(face), f),
                                softmax_attention(q, k, v, with(face), f)};
    const Tensor<double> d_both[] = {in.d_o, in.d_o};
    tape.backward(std::span<const Var<double>>(both), std::span<const Tensor<double>>(d_both));
    Tensor<double> twice = run(in, with(face)).d_log_f.clone();
    for (double& x : twice.values()) x *= 2;
    CHECK(difference(f.grad(), twice) <= 1e-14);
  }
}

TEST_CASE("NaN in a gate is seen in every output that it reaches, and in no other") {
  Inputs<float> in(1, 20, 1, 1, 61);
  in.log_f[9] = std::numeric_limits<float>::quiet_NaN();
  test::on_every_target([&] {
    for (const Face face : {Face::kRecurrent, Face::kChunkwise}) {
      INFO(to_string(face));
      Tape<float> tape;
      const Tensor<float> o = softmax_attention(tape.constant(in.q), tape.constant(in.k), tape.constant(in.v),
                                                with(face), tape.constant(in.log_f))
                                  .value();
      for (size_t t = 0; t < 20; ++t) CHECK(std::isnan(o[t * 7]) == (t >= 9));
    }
  });
}

TEST_CASE("B012 decoding with forget gates from the cache gives one pass's outputs, whatever the cuts") {
  for (const size_t window : {0, 11}) {
    for (const size_t piece : {1, 3, 5, 40}) {
      INFO("window " << window << ", pieces of " << piece);
      Inputs<double> in(2, 90, 4, 2, 71);
      in.set_gate(50, -kInfinity);
      State<double> cache = softmax_attention_state<double>(2, 2, 5, 7, 4);
      std::vector<Tensor<double>> parts;
      for (size_t t = 0; t < 90; t += piece) {
        const Inputs<double> p = in.piece(t, std::min<size_t>(90, t + piece));
        parts.push_back(
            softmax_attention_extend(cache, p.q, p.k, p.v, with(Face::kChunkwise, window), p.log_f));
      }
      CHECK(difference(concat(std::span<const Tensor<double>>(parts), 1),
                       run(in, with(Face::kRecurrent, window)).o) <= 1e-13);
      const size_t held = window ? window - 1 : 90;
      CHECK(softmax_attention_bytes(cache, window) == held * 2 * (2 * 5 + 2 * 7 + 4) * sizeof(double));
    }
  }
}

TEST_CASE("forget gates that don't fit are refused by name") {
  const Inputs<float> in(2, 6, 4, 2, 81);
  const auto refuse = [&](const std::string& message, const std::string& words) {
    INFO(message);
    CHECK(message.find(words) != std::string::npos);
  };
  const auto op = [&](const Shape& gates, SoftmaxAttentionOptions options = {}) {
    return test::message_of([&] {
      Tape<float> tape;
      softmax_attention(tape.input(in.q), tape.input(in.k), tape.input(in.v), options,
                        tape.input(Tensor<float>(gates, -1.0f)));
    });
  };
  refuse(op({2, 6, 2}), "log_f is [2, 6, 2], wanted [2, 6, 4]");
  refuse(op({2, 4, 6}), "log_f is [2, 4, 6], wanted [2, 6, 4]");
  SoftmaxAttentionOptions late;
  late.offset = 1;
  refuse(op({2, 6, 4}, late), "the last query stands at 6, past the last of 6 keys");

  State<float> with_gates = softmax_attention_state<float>(2, 2, 5, 7, 4);
  State<float> without = softmax_attention_state<float>(2, 2, 5, 7);
  const auto extend = [&](State<float>& cache, const Tensor<float>& gates) {
    return test::message_of([&] { softmax_attention_extend(cache, in.q, in.k, in.v, {}, gates); });
  };
  refuse(extend(with_gates, {}), "log_f is not given, the cache was made for forget gates");
  refuse(extend(without, in.log_f), "log_f is given, the cache was made without forget gates");
  refuse(extend(with_gates, Tensor<float>({2, 6, 2}, -1.0f)), "log_f is [2, 6, 2], wanted [2, 6, 4]");
  CHECK(with_gates.length == 0);
  CHECK(extend(with_gates, in.log_f).empty());
}

}  // namespace storytape
