// Linear attention's numbers, gradients and memory: reported faults of others by name, and the course's own
// tests.
#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <vector>

#include "autograd/gradcheck.h"
#include "autograd/ops.h"
#include "nn/mixers/linear_attention.h"
#include "nn/mixers/reference.h"
#include "nn/mixers/registry.h"
#include "tensor/buffer.h"
#include "tests/catch.h"
#include "tests/error_message.h"
#include "tests/kernel_testing.h"
#include "tests/linear_attention_testing.h"

namespace storytape {
namespace {

using namespace test;

template <class T>
Tensor<T> repeat(const Tensor<T>& x, size_t times) {
  Tape<T> tape;
  return concat(std::vector<Var<T>>(times, tape.constant(x)), 0).value();
}

TEST_CASE("linear attention's gradients are proven at every example") {
  register_mixers();
  for (const GradRow& row : gradcheck("linear_attention")) {
    INFO(row.face << " (" << row.example << ") " << row.input << ": " << row.why);
    CHECK(row.ok);
  }
}

TEST_CASE("B020 the decay's gradient is summed over the batch") {
  for (const Face face : kFaces) {
    INFO(to_string(face));
    const auto one = Inputs<double>::random(1, 19, 2, 3, 5, true);
    auto three = one;
    for (Tensor<double>* x : {&three.q, &three.k, &three.v, &three.S, &three.z}) *x = repeat(*x, 3);
    const auto d_o = random_tensor<double>(one.v.shape(), 9);
    const auto single = run(one, with(face, 8), d_o), triple = run(three, with(face, 8), repeat(d_o, 3));
    for (size_t h = 0; h < 2; ++h) {
      CHECK(single.gradients[3][h] != 0);
      CHECK(triple.gradients[3][h] == Approx(3 * single.gradients[3][h]).epsilon(1e-14));
    }

    const auto batch = Inputs<double>::random(3, 19, 2, 3, 5, true, 30);
    const auto d_batch = random_tensor<double>(batch.v.shape(), 39);
    std::vector<double> sum(2, 0.0);
    for (size_t b = 0; b < 3; ++b) {
      auto row = batch;
      for (Tensor<double>* x : {&row.q, &row.k, &row.v, &row.S, &row.z}) *x = x->rows(b, b + 1);
      const auto part = run(row, with(face, 8), d_batch.rows(b, b + 1));
      for (size_t h = 0; h < 2; ++h) sum[h] += part.gradients[3][h];
    }
    const auto all = run(batch, with(face, 8), d_batch);
    for (size_t h = 0; h < 2; ++h) CHECK(all.gradients[3][h] == Approx(sum[h]).epsilon(1e-13));
  }
}

TEST_CASE("B024 small features keep their digits, value and derivative") {
  // One token, one channel, not normalised: S = φ(k) v with v = 1.
  LinearAttentionOptions options;
  options.normalise = false;
  on_every_target([&] {
    for (const Face face : kFaces) {
      options.face = face;
      for (const float x : {-5.0f, -10.0f, -15.0f, -17.0f, -20.0f, -50.0f, -0.0f, 0.0f, 1e-8f, 3.5f}) {
        INFO(to_string(face) << " at " << x);
        Inputs<float> in;
        in.q = in.v = Tensor<float>({1, 1, 1, 1}, 1.0f);
        in.k = Tensor<float>({1, 1, 1, 1}, x);
        const auto got = run(in, options, Tensor<float>(), Tensor<float>({1, 1, 1, 1}, 1.0f));
        const double feature = x > 0 ? x + 1.0 : std::exp(static_cast<double>(x));
        CHECK(got.S.item() == Approx(feature).epsilon(1e-6).margin(0));
        CHECK(got.gradients[1].item() == Approx(x > 0 ? 1 : feature).epsilon(1e-6).margin(0));
      }
    }
  });
}

TEST_CASE("B025 a small normaliser gives an average, and epsilon takes its documented share") {
  constexpr size_t kD = 4;
  for (const Face face : kFaces) {
    INFO(to_string(face));
    Inputs<float> in;
    in.q = in.k = Tensor<float>({1, 1, 1, kD}, -30.0f);
    in.v = random_tensor<float>({1, 1, 1, kD}, 3);
    const auto d_o = random_tensor<float>({1, 1, 1, kD}, 4);
    const auto exact = run(in, with(face, 64, 0), d_o);
    CHECK(distance(exact.o, in.v) <= 2e-7);
    CHECK(distance(exact.gradients[2], d_o) <= 2e-7);
    for (size_t i = 0; i < kD; ++i) {
      CHECK(std::abs(exact.gradients[0][i]) <= 1e-6);
      CHECK(std::abs(exact.gradients[1][i]) <= 1e-6);
    }
    // o = v d / (d + ε): nothing is left of it where d = 4 exp(-60) ≪ ε, and all but ε / d where d = 4.
    const auto faded = run(in, with(face), d_o);
    for (size_t i = 0; i < kD; ++i) CHECK(std::abs(faded.o[i]) <= 1e-18);
    in.q = in.k = Tensor<float>({1, 1, 1, kD}, 0.0f);
    const auto near = run(in, with(face), d_o);
    for (size_t i = 0; i < kD; ++i) CHECK(near.o[i] == Approx(in.v[i] * 4 / (4 + 1e-6)).epsilon(3e-7));

    for (const float key : {-30.0f, 60.0f}) {
      INFO("keys at " << key);
      in.q = random_tensor<float>({1, 50, 1, kD}, 5);
      in.k = Tensor<float>({1, 50, 1, kD}, key);
      in.v = random_tensor<float>({1, 50, 1, kD}, 6);
      const auto got = run(in, with(face, 16, 0), random_tensor<float>({1, 50, 1, kD}, 7));
      float low = in.v[0], high = in.v[0];
      size_t outside = 0;
      for (size_t t = 0; t < 50; ++t) {
        for (size_t i = 0; i < kD; ++i) low = std::min(low, in.v[t * kD + i]);
        for (size_t i = 0; i < kD; ++i) high = std::max(high, in.v[t * kD + i]);
        for (size_t i = 0; i < kD; ++i) {
          const float o = got.o[t * kD + i];
          outside += !(o >= low - 1e-6f && o <= high + 1e-6f);
        }
      }
      CHECK(outside == 0);
      for (const Tensor<float>& g : got.gradients) {
        for (const float x : g.values()) CHECK(std::isfinite(x));
      }
    }
  }
}

// Loss on the last state, and on all outputs where told so, over equal segments chained on one tape.
Results<double> chained(const Inputs<double>& in, size_t segments, const LinearAttentionOptions& options,
                        bool outputs) {
  const size_t tokens = in.q.size(1), step = tokens / segments;
  Tape<double> tape;
  const auto var = [&](const Tensor<double>& t) { return t.defined() ? tape.input(t) : Var<double>(); };
  const Var<double> q = var(in.q), k = var(in.k), v = var(in.v), gamma = var(in.gamma), S0 = var(in.S),
                    z0 = var(in.z);
  Var<double> S = S0, z = z0;
  std::vector<Var<double>> parts;
  for (size_t first = 0; first < tokens; first += step) {
    const auto y = linear_attention(slice(q, 1, first, first + step), slice(k, 1, first, first + step),
                                    slice(v, 1, first, first + step), gamma, S, z, options);
    parts.push_back(y.o);
    S = y.S;
    z = y.z;
  }
  const Var<double> o = concat(parts, 1);
  Results<double> results{o.value(), S.value(), z.value(), {}};
  const Tensor<double> none;
  tape.backward(std::vector<Var<double>>{o, S, z},
                std::vector<Tensor<double>>{outputs ? random_tensor<double>(o.shape(), 50) : none,
                                            random_tensor<double>(S.shape(), 51),
                                            random_tensor<double>(z.shape(), 52)});
  for (const Var<double>& x : {q, k, v, gamma, S0, z0})
    results.gradients.push_back(x.defined() ? x.grad() : none);
  return results;
}

TEST_CASE("B054 the gradient through the final state reaches every segment") {
  const auto in = Inputs<double>::random(2, 64, 3, 5, 11, true);
  for (const Face face : kFaces) {
    for (const bool outputs : {false, true}) {
      const auto whole = chained(in, 1, with(face, 16), outputs);
      for (const Tensor<double>& g : whole.gradients) {
        const bool is_query = &g == whole.gradients.data();  // the state does not depend on queries
        const bool zero = std::all_of(g.values().begin(), g.values().end(), [](double x) { return x == 0; });
        CHECK(zero == (is_query && !outputs));
      }
      for (const size_t segments : {2, 4, 64}) {
        INFO(to_string(face) << ", " << segments << " segments");
        CHECK(distance(chained(in, segments, with(face, 16), outputs), whole) <= 1e-12);
      }
    }
  }
}

// The reference's results with a complex step of one element of one input.
std::vector<std::complex<double>> stepped(const Inputs<double>& in, int which, size_t element, double step) {
  using C = std::complex<double>;
  std::vector<std::vector<C>> x;
  for (const Tensor<double>* t : {&in.q, &in.k, &in.v, &in.gamma, &in.S, &in.z})
    x.emplace_back(t->values().begin(), t->values().end());
  x[static_cast<size_t>(which)][element] += C(0, step);
  const reference::MixerSize size{in.q.size(0), in.q.size(1), in.q.size(2), in.q.size(3), in.v.size(3)};
  std::vector<C> o(in.v.size());
  reference::linear_attention<C>(size, true, 1e-6, x[0].data(), x[1].data(), x[2].data(), x[3].data(),
                                 x[4].data(), x[5].data(), o.data());
  o.insert(o.end(), x[4].begin(), x[4].end());
  return o;
}

TEST_CASE("B055 initial states get their gradient; without one there is none") {
  for (const size_t tokens : {1, 70}) {
    const auto in = Inputs<double>::random(1, tokens, 2, 3, 5, true);
    const auto d_o = random_tensor<double>(in.v.shape(), 60), d_S = random_tensor<double>(in.S.shape(), 61);
    for (const Face face : kFaces) {
      INFO(to_string(face) << ", " << tokens << " tokens");
      const auto got = run(in, with(face, 16), d_o, d_S);
      for (const int which : {4, 5}) {
        const Tensor<double>& gradient = got.gradients[static_cast<size_t>(which)];
        REQUIRE(gradient.defined());
        for (size_t e = 0; e < gradient.size(); ++e) {
          const auto y = stepped(in, which, e, 1e-30);
          double want = 0;
          for (size_t i = 0; i < d_o.size(); ++i) want += d_o[i] * y[i].imag() / 1e-30;
          for (size_t i = 0; i < d_S.size(); ++i) want += d_S[i] * y[d_o.size() + i].imag() / 1e-30;
          CHECK(std::abs(gradient[e] - want) <= 1e-12 * (1 + std::abs(want)));
        }
      }
      auto without = in;
      without.S = without.z = Tensor<double>();
      const auto none = run(without, with(face, 16), d_o, d_S);
      CHECK_FALSE(none.gradients[4].defined());
      auto zeros = in;
      zeros.S.fill(0);
      zeros.z.fill(0);
      const auto zero = run(zeros, with(face, 16), d_o, d_S);
      CHECK(distance(none.o, zero.o) <= 1e-14);
      for (size_t i = 0; i < 4; ++i) CHECK(distance(none.gradients[i], zero.gradients[i]) <= 1e-13);
    }
  }
}

TEST_CASE("B113 sizes that are all different primes") {
  const auto in = Inputs<double>::random(2, 7, 3, 5, 11, true);
  Tensor<double> S = in.S.clone(), z = in.z.clone(), o(in.v.shape());
  reference::linear_attention<double>({2, 7, 3, 5, 11}, true, 1e-6, in.q.data(), in.k.data(), in.v.data(),
                                      in.gamma.data(), S.data(), z.data(), o.data());
  for (const Face face : kFaces) {
    INFO(to_string(face));
    const auto got = run(in, with(face, 3), random_tensor<double>(in.v.shape(), 9));
    CHECK(distance(got.o, o) <= 1e-14);
    CHECK(distance(got.S, S) <= 1e-14);
    CHECK(distance(got.z, z) <= 1e-14);
  }
}

TEST_CASE("B137 training memory is activations and a state per chunk") {
  constexpr size_t kHeads = 2, kDim = 64, kChunk = 64;
  for (const Face face : {Face::kRecurrent, Face::kChunkwise}) {
    INFO(to_string(face));
    std::vector<double> peak;
    for (const size_t tokens : {128, 256, 512, 1024, 2048}) {
      auto in = Inputs<float>::random(1, tokens, kHeads, kDim, kDim, false);
      const auto d_o = random_tensor<float>(in.v.shape(), 9);
      trim_pool();
      const size_t before = pooled_bytes();
      run(in, with(face, kChunk), d_o);
      peak.push_back(
          static_cast<double>(pooled_bytes() - before));  // nothing goes back to the system meanwhile
    }
    // Per token: o, its gradient and those of q, k, v; a chunk's share of a state. Half as much again for padded
    // records and the pool's steps; a state per token would be 65 times the share.
    const double activations = 5.0 * kHeads * kDim * sizeof(float);
    const double state = face == Face::kChunkwise ? kHeads * kDim * (kDim + 1.0) * sizeof(float) / kChunk : 0;
    const double slope = (peak.back() - peak.front()) / (2048 - 128);
    CHECK(slope <= 1.5 * (activations + state) + 64);
    CHECK(slope > 0);
  }
}

TEST_CASE("linear attention takes nothing from the system the second time") {
  auto in = Inputs<float>::random(1, 256, 4, 32, 32, false);
  const auto d_o = random_tensor<float>(in.v.shape(), 9);
  for (const Face face : {Face::kRecurrent, Face::kChunkwise}) {
    Tape<float> tape;
    uint64_t before = 0;
    for (int step = 0; step < 3; ++step) {
      if (step == 1) before = allocation_count();
      tape.reset();
      const auto y = linear_attention(tape.input(in.q), tape.input(in.k), tape.input(in.v),
                                      tape.input(in.gamma), {}, {}, with(face));
      tape.backward(std::vector<Var<float>>{y.o}, std::vector<Tensor<float>>{d_o});
    }
    CHECK(allocation_count() == before);
  }
}

TEST_CASE("linear attention gives the same bits every time, on dirty memory too") {
  auto in = Inputs<float>::random(2, 100, 3, 20, 24, true);
  const auto d_o = random_tensor<float>(in.v.shape(), 9), d_S = random_tensor<float>(in.S.shape(), 10);
  for (const Face face : {Face::kRecurrent, Face::kChunkwise}) {
    const auto a = run(in, with(face, 48), d_o, d_S);
    const std::vector<Tensor<float>> dirt(40,
                                          Tensor<float>({50'000}, std::numeric_limits<float>::quiet_NaN()));
    const auto b = run(in, with(face, 48), d_o, d_S);
    CHECK(same_bits(a.o.data(), b.o.data(), a.o.size()));
    for (size_t i = 0; i < 6; ++i)
      CHECK(same_bits(a.gradients[i].data(), b.gradients[i].data(), a.gradients[i].size()));
  }
}

TEST_CASE("linear attention says what does not fit") {
  const auto in = Inputs<double>::random(2, 7, 3, 5, 11, true);
  const auto message = [&](auto&& change) {
    auto other = in;
    auto options = with(Face::kChunkwise);
    change(other, options);
    return message_of([&] { run(other, options, in.v); });
  };
  const auto says = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(message([](auto&, auto&) {}) == "");
  CHECK(says(message([](auto& x, auto&) { x.k = x.v; }), "k is [2, 7, 3, 11], wanted [2, 7, 3, 5]"));
  CHECK(
      says(message([](auto& x, auto&) { x.gamma = Tensor<double>({2}, 1.0); }), "gamma is [2], wanted [3]"));
  CHECK(says(message([](auto& x, auto&) { x.gamma = Tensor<double>({3}, 1.5); }), "gamma of head 0 is 1.5"));
  CHECK(says(message([](auto& x, auto&) { x.S = x.z; }), "initial S is [2, 3, 5], wanted [2, 3, 5, 11]"));
  CHECK(says(message([](auto&, auto& o) { o.normalise = false; }), "nothing is normalised"));
  CHECK(says(message([](auto&, auto& o) { o.eps = -1; }), "eps is -1"));
  CHECK(says(message([](auto& x, auto&) { x.q = x.k = x.q.rows(0, 0); }), "at least one element"));
}

// ------------------------------------------------------------------ the course's tests of its
// LinearAttention core

TEST_CASE("course 1: features are positive and do not decrease") {
  double before = 0;
  for (int i = 0; i <= 100; ++i) {
    LinearAttentionOptions options;
    options.normalise = false;
    Inputs<double> in;
    in.q = in.v = Tensor<double>({1, 1, 1, 1}, 1.0);
    in.k = Tensor<double>({1, 1, 1, 1}, -10 + 0.2 * i);
    const double feature = run(in, options, in.v).S.item();
    CHECK(feature > before);
    before = feature;
  }
}

TEST_CASE("course 9: causal") {
  for (const Face face : kFaces) {
    const auto in = Inputs<float>::random(2, 8, 4, 4, 4, false);
    auto later = in;
    for (Tensor<float>* x : {&later.q, &later.k, &later.v}) {
      for (size_t b = 0; b < 2; ++b) {
        for (size_t i = 5 * 16; i < 8 * 16; ++i) (*x)[b * 128 + i] += 1;
      }
    }
    const auto a = run(in, with(face), in.v), b = run(later, with(face), in.v);
    for (size_t i = 0; i < a.o.size(); ++i) {
      const float change = std::abs(a.o[i] - b.o[i]);
      if (i % 128 < 5 * 16) CHECK(change == 0);
      if (i % 128 >= 5 * 16) CHECK(change > 1e-4f);
    }
  }
}

TEST_CASE("course 10: a decay of 1 is no decay") {
  for (const Face face : kFaces) {
    auto in = Inputs<float>::random(2, 6, 4, 4, 4, false);
    in.gamma = Tensor<float>({4}, static_cast<float>(1 / (1 + std::exp(-50.0))));
    auto undecayed = in;
    undecayed.gamma = Tensor<float>();
    CHECK(distance(run(in, with(face), in.v).o, run(undecayed, with(face), in.v).o) <= 1e-6);
  }
}

TEST_CASE("course 11: a step's state keeps its size") {
  const LinearAttentionOptions options;
  auto state = linear_attention_state<float>(2, 4, 4, 4, options);
  CHECK(state["S"].shape() == Shape{2, 4, 4, 4});
  CHECK(state["z"].shape() == Shape{2, 4, 4});
  const size_t bytes = state.bytes();
  for (uint64_t t = 0; t < 20; ++t) {
    const auto in = Inputs<float>::random(2, 1, 4, 4, 4, false, t);
    const auto kept = state;
    const auto before = kept["S"].clone();
    CHECK(linear_attention_extend(state, in.q, in.k, in.v, in.gamma, options).shape() == Shape{2, 1, 4, 4});
    CHECK(distance(kept["S"], before) == 0);  // a copy is a snapshot
    CHECK(distance(state["S"], before) > 1e-3);
  }
  CHECK(state.bytes() == bytes);
  CHECK(state.length == 20);
}

TEST_CASE("course 12 and 13: parallel is recurrent") {
  for (const auto& [tokens, gamma] : {std::pair{12, 0.990048}, std::pair{10, 0.5}}) {
    auto in = Inputs<float>::random(2, static_cast<size_t>(tokens), 4, 4, 4, false);
    in.gamma = Tensor<float>({4}, static_cast<float>(gamma));
    const auto parallel = run(in, with(Face::kParallel), in.v),
               recurrent = run(in, with(Face::kRecurrent), in.v);
    CHECK(distance(parallel, recurrent) <= 2e-6);
  }
}

}  // namespace
}  // namespace storytape
