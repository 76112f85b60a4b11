// The gated mixers under reported faults of others, by name: gates, chunks and the order of things.
// Lengths, pieces and memory: gated_lengths_test.cc.
#include <cmath>
#include <vector>

#include "autograd/ops.h"
#include "nn/mixers/linear_attention.h"
#include "tests/catch.h"
#include "tests/gated_testing.h"

namespace storytape {
namespace {

using namespace test;

// Outputs, final state and gradients against the definition.
template <class T>
void check_against_definition(const GatedCall<T>& call, const GatedOptions& options, double values,
                              double gradients) {
  const auto d_o = random_tensor<T>(call.output_shape(), 90), d_S = random_tensor<T>(call.state_shape(), 91);
  const auto got = run(call, options, d_o, d_S);
  const auto want = witness_outcome(cast_call<double>(call));
  CHECK(distance(cast<double>(got.o), want.o) <= values);
  CHECK(distance(cast<double>(got.S), want.S) <= values);
  CHECK(gradient_error(call, got, d_o, d_S) <= gradients);
}

TEST_CASE("B001 tiny gates leave the first row of a chunk whole") {
  constexpr size_t kTokens = 512, kDim = 4;
  for (const GatedVariant& variant : {kUnified, kGla, kGatedDelta, kKda, kGatedDeltaProduct}) {
    for (const size_t chunk : {16, 64}) {
      for (const bool everywhere : {true, false}) {
        INFO(variant.op << ", chunk " << chunk << (everywhere ? ", every gate tiny" : ", first gates tiny"));
        auto call = GatedCall<float>::random(variant, 1, kTokens, 1, kDim, 3, true);
        const size_t width = call.alpha.size() / kTokens;
        for (size_t i = 0; i < call.alpha.size(); ++i) {
          call.alpha[i] = everywhere || i / width % chunk == 0 ? 1e-6f : 0.99f;
        }
        check_against_definition(call, gated(Face::kChunkwise, chunk), 1e-5, 1e-4);
        if (variant.delta) continue;
        // What is left of a token alone: o_t = (q_t·k_t) v_t, the rest fades by 1e-6.
        const auto o = run(call, gated(Face::kChunkwise, chunk)).o;
        for (size_t t = everywhere ? 1 : 0; t < kTokens; t += everywhere ? 1 : chunk) {
          double score = 0, scale = 0;
          for (size_t i = 0; i < kDim; ++i)
            score += static_cast<double>(call.q[t * kDim + i]) * call.k[t * kDim + i];
          for (size_t i = 0; i < kDim; ++i) scale += std::abs(call.q[t * kDim + i]);
          for (size_t j = 0; j < 3; ++j) {
            // States stay below 8 sqrt(kTokens) where gates are 0.99.
            const double bound = 1e-6 * scale * (everywhere ? 8 : 200) + 1e-6;
            if (!(std::abs(o[t * 3 + j] - score * call.v[t * 3 + j]) <= bound)) FAIL("token " << t);
          }
        }
      }
    }
  }
}

TEST_CASE("B003 a mask comes before what may overflow: strong gates in one chunk") {
  for (const GatedVariant& variant : {kUnified, kGla, kGatedDelta, kKda}) {
    INFO(variant.op);
    auto call = GatedCall<float>::random(variant, 1, 64, 2, 5, 3, true);
    call.alpha.fill(std::exp(-5.0f));
    for (const Face face : kFaces) {
      INFO(to_string(face));
      check_against_definition(call, gated(face, 64), 1e-5, 1e-4);
    }
    // No step of the composed face overflows either.
    Tape<float> tape;
    std::vector<Var<float>> x;
    for (const Tensor<float>* t : call.tensors()) x.push_back(t->defined() ? tape.input(*t) : Var<float>());
    gated_recurrence(variant.op, x[0], x[1], x[2], x[3], x[4], x[5], gated(Face::kParallel));
    CHECK(tape.first_non_finite() == "no recorded value");
    // The textbook's form does: exp(+5·64) passes 3.4e38.
    const auto bad = run(call, textbook());
    CHECK_FALSE(std::isfinite(distance(bad.o, bad.o)));
  }
}

TEST_CASE("B005 a chunk of nearly full writes under gates that alternate between open and shut") {
  for (const GatedVariant& variant : {kGatedDelta, kKda, kGatedDeltaProduct}) {
    for (const Face face : kFaces) {
      INFO(variant.op << ", " << to_string(face));
      auto call = GatedCall<float>::random(variant, 1, 64, 1, 8, 8, true);
      call.beta.fill(1 - 1e-7f);
      const size_t width = call.alpha.size() / 64;
      for (size_t i = 0; i < call.alpha.size(); ++i)
        call.alpha[i] = std::exp(i / width % 2 ? -30.0f : -0.001f);
      check_against_definition(call, gated(face, 64), 1e-5, 1e-4);
    }
  }
}

TEST_CASE("B007 decay comes before the error term") {
  // d = 1, k = v = beta = 1, alpha = 1/2: decay first gives S_2 = 1, the other order 1/2.
  const Tensor<double> ones({1, 2, 1, 1}, 1.0);
  for (const GatedVariant& variant : {kGatedDelta, kKda}) {
    GatedCall<double> call{variant, ones, ones, ones, {}, Tensor<double>({1, 2, 1}, 1.0), {}};
    call.alpha = variant.gate == GateKind::kVector ? Tensor<double>({1, 2, 1, 1}, 0.5)
                                                   : Tensor<double>({1, 2, 1}, 0.5);
    for (const Face face : kFaces) {
      INFO(variant.op << ", " << to_string(face));
      const auto got = run(call, gated(face));
      CHECK(got.S.item() == 1);
      CHECK(got.o[1] == 1);
    }
    auto state = gated_state<double>(1, 1, 1, 1);
    for (size_t t = 0; t < 2; ++t) {
      const auto one = call.tokens(t, t + 1);
      gated_extend(variant.op, state, one.q, one.k, one.v, one.alpha, one.beta, {});
    }
    CHECK(state["S"].item() == 1);
  }
}

TEST_CASE("B008 the incoming state and the values take coefficients of their own") {
  constexpr size_t kTokens = 50, kChunk = 12;
  for (const GatedVariant& variant : {kUnified, kGla, kGatedDelta, kKda, kGatedDeltaProduct}) {
    INFO(variant.op);
    auto call = GatedCall<double>::random(variant, 2, kTokens, 2, 5, 7, true);
    Random random(8);
    for (double& a : call.alpha.values()) a = std::exp(random.uniform(-3, 0));
    const auto want = witness_outcome(call);
    for (const Face face : kFaces) {
      INFO(to_string(face));
      CHECK(distance(run(call, gated(face, kChunk)).o, want.o) <= 1e-13);
      for (size_t t = 1; t <= kTokens; ++t) {
        const auto head = call.tokens(0, t);
        if (!(distance(run(head, gated(face, kChunk)).S, witness_outcome(head).S) <= 1e-13)) {
          FAIL("state after token " << t);
        }
      }
    }
    // The initial state weighs in: without it the results are others.
    auto without = call;
    without.S = Tensor<double>();
    CHECK(distance(run(without, gated(Face::kChunkwise, kChunk)).o, want.o) > 1e-3);
  }
}

// Retention by the constant decay's op and by the scalar gate's, against their definition.
Tensor<double> retention_definition(const Inputs<double>& in) {
  Tensor<double> S = Tensor<double>::zeros({in.q.size(0), in.q.size(2), in.q.size(3), in.v.size(3)});
  Tensor<double> o(in.v.shape());
  const reference::MixerSize size{in.q.size(0), in.q.size(1), in.q.size(2), in.q.size(3), in.v.size(3)};
  double* no_normaliser = nullptr;
  reference::linear_attention<double>(size, false, 0, in.q.data(), in.k.data(), in.v.data(), in.gamma.data(),
                                      S.data(), no_normaliser, o.data());
  return o;
}
template <class T>
Tensor<T> retention(const Inputs<T>& in, Face face, size_t chunk) {
  auto options = with(face, chunk);
  options.phi = FeatureMap::kIdentity;
  options.normalise = false;
  Tape<T> tape;
  return linear_attention(tape.constant(in.q), tape.constant(in.k), tape.constant(in.v),
                          tape.constant(in.gamma), {}, {}, options)
      .o.value();
}
// Each head's outputs to mean 0 and variance 1, as the norm around retention does.
template <class T>
Tensor<T> head_norm(const Tensor<T>& o, double eps) {
  Tape<T> tape;
  return layer_norm(tape.constant(o), {}, {}, eps).value();
}
Inputs<float> narrow(const Inputs<double>& in) {
  return {cast<float>(in.q), cast<float>(in.k), cast<float>(in.v), cast<float>(in.gamma), {}, {}};
}

TEST_CASE("B010 retention's three forms agree, before and after the output norm") {
  struct Size {
    size_t tokens, chunk;
  };
  for (const auto& [tokens, chunk] : {Size{12, 3}, Size{12, 1}, Size{12, 12}, Size{16, 4}, Size{17, 4}}) {
    auto in = Inputs<double>::random(1, tokens, 4, 6, 6, false);
    for (size_t h = 0; h < 4; ++h) in.gamma[h] = 1 - std::ldexp(1.0, -5 - static_cast<int>(h));
    const Tensor<double> want = retention_definition(in);
    GatedCall<double> scalar{kUnified, in.q, in.k, in.v, Tensor<double>({1, tokens, 4}), {}, {}};
    for (size_t i = 0; i < scalar.alpha.size(); ++i) scalar.alpha[i] = in.gamma[i % 4];
    for (const Face face : kFaces) {
      INFO(tokens << " tokens, chunk " << chunk << ", " << to_string(face));
      const auto wide = retention(in, face, chunk);
      CHECK(distance(wide, want) <= 1e-13);
      CHECK(distance(run(scalar, gated(face, chunk)).o, want) <= 1e-13);
      CHECK(distance(head_norm(wide, 1e-5), head_norm(want, 1e-5)) <= 1e-12);
      const auto single = retention(narrow(in), face, chunk);
      CHECK(distance(cast<double>(single), want) <= 1e-5);
    }
  }
}

TEST_CASE("B011 no form carries a factor that a norm would have to remove") {
  auto in = Inputs<double>::random(1, 40, 2, 8, 8, false);
  for (double& x : in.q.values()) x *= 1e-6;
  const Tensor<double> want = retention_definition(in);
  double largest = 0;
  for (const double x : want.values()) largest = std::max(largest, std::abs(x));
  REQUIRE(largest < 1e-4);
  const auto apart = [](const Tensor<double>& a, const Tensor<double>& b, double scale) {
    double worst = 0;
    for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
    return worst / scale;
  };
  for (const Face face : kFaces) {
    INFO(to_string(face));
    const auto got = retention(in, face, 16);
    CHECK(apart(got, want, largest) <= 1e-13);
    for (const double eps : {1e-5, 1e-10}) {
      CHECK(apart(head_norm(got, eps), head_norm(want, eps), 1) <= 1e-10);
      // A form off by a factor of 2 differs after the norm where eps is not small beside the outputs, and would
      // not where it is: only the comparison before the norm is safe.
      Tensor<double> doubled = got.clone();
      for (double& x : doubled.values()) x *= 2;
      CHECK(apart(doubled, want, largest) > 0.4);
      if (eps == 1e-5) CHECK(apart(head_norm(doubled, eps), head_norm(want, eps), 1) > 1e-3);
    }
  }
}

}  // namespace
}  // namespace storytape
