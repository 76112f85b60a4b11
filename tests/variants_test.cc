// The variants of the matrix-state family as points of one recurrence: each at the gates, rates and steps at
// which it is another one, and what each says where its inputs don't fit. nn/mixers/README.md.
#include <cmath>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "nn/mixers/delta_product.h"
#include "nn/mixers/delta_rule.h"
#include "nn/mixers/gated_delta_rule.h"
#include "nn/mixers/gla.h"
#include "nn/mixers/kda.h"
#include "nn/mixers/retention.h"
#include "nn/mixers/unified.h"
#include "tests/catch.h"
#include "tests/error_message.h"
#include "tests/gated_testing.h"

namespace storytape {
namespace {

using namespace test;

constexpr size_t kBatch = 2, kTokens = 37, kHeads = 3, kKeys = 5, kValues = 6, kChunk = 16;

// Outputs, final state and the gradients to the inputs in their order.
template <class T>
struct Outcome {
  Tensor<T> o, S;
  std::vector<Tensor<T>> gradients;
};

// f(inputs) gives o and S; the cotangents are the same for every f.
template <class T, class F>
Outcome<T> outcome(const std::vector<Tensor<T>>& inputs, const F& f) {
  Tape<T> tape;
  std::vector<Var<T>> x;
  for (const Tensor<T>& input : inputs) x.push_back(tape.input(input));
  const auto y = f(x);
  Outcome<T> result{y.o.value(), y.S.value(), {}};  // released by the backward
  const std::vector<Var<T>> ends{y.o, y.S};
  const std::vector<Tensor<T>> cotangents{random_tensor<T>(y.o.shape(), 90),
                                          random_tensor<T>(y.S.shape(), 91)};
  tape.backward(ends, cotangents);
  for (const Var<T>& v : x) {
    result.gradients.push_back(v.grad());
    REQUIRE(result.gradients.back().defined());
  }
  return result;
}

// The worst distance of outputs, states and the gradients of the first `shared` inputs.
template <class T>
double apart(const Outcome<T>& a, const Outcome<T>& b, size_t shared) {
  double worst = std::max(distance(a.o, b.o), distance(a.S, b.S));
  for (size_t i = 0; i < shared; ++i) worst = std::max(worst, distance(a.gradients[i], b.gradients[i]));
  return worst;
}

template <class T>
bool same_bits(const Tensor<T>& a, const Tensor<T>& b) {
  return a.shape() == b.shape() && a.to_vector() == b.to_vector();
}
template <class T>
bool same_bits(const Outcome<T>& a, const Outcome<T>& b, size_t shared) {
  bool same = same_bits(a.o, b.o) && same_bits(a.S, b.S);
  for (size_t i = 0; i < shared; ++i) same = same && same_bits(a.gradients[i], b.gradients[i]);
  return same;
}

// q, k, v and the initial state, in this order; unit keys.
template <class T>
std::vector<Tensor<T>> rows(size_t tokens, size_t writes) {
  Tensor<T> k = random_tensor<T>({kBatch, writes, kHeads, kKeys}, 2);
  normalise_rows(k);
  return {random_tensor<T>({kBatch, tokens, kHeads, kKeys}, 1), k,
          random_tensor<T>({kBatch, writes, kHeads, kValues}, 3),
          random_tensor<T>({kBatch, kHeads, kKeys, kValues}, 4)};
}
template <class T>
std::vector<Tensor<T>> and_also(std::vector<Tensor<T>> inputs, std::initializer_list<Tensor<T>> more) {
  inputs.insert(inputs.end(), more);
  return inputs;
}
template <class T>
Tensor<T> betas(size_t writes) {
  return random_tensor<T>({kBatch, writes, kHeads}, 5, 0, 2);
}
// Gates [B, T, H] written into all channels, [B, T, H, dk].
template <class T>
Tensor<T> in_all_channels(const Tensor<T>& gates) {
  Tensor<T> wide({kBatch, kTokens, kHeads, kKeys});
  for (size_t i = 0; i < wide.size(); ++i) wide[i] = gates[i / kKeys];
  return wide;
}
// The gradient of such gates, summed over channels.
template <class T>
Tensor<T> over_channels(const Tensor<T>& wide) {
  Tensor<T> sums({kBatch, kTokens, kHeads}, T{0});
  for (size_t i = 0; i < wide.size(); ++i) sums[i / kKeys] += wide[i];
  return sums;
}

template <class T>
constexpr double kRounding = sizeof(T) == 8 ? 1e-13 : 2e-5;

TEMPLATE_TEST_CASE("GLA and the scalar gate with a constant gate are retention", "", float, double) {
  using T = TestType;
  const Tensor<T> gamma = multiscale_decays<T>(kHeads);
  Tensor<T> scalar({kBatch, kTokens, kHeads});
  for (size_t i = 0; i < scalar.size(); ++i) scalar[i] = gamma[i % kHeads];
  for (const Face face : kFaces) {
    INFO(to_string(face));
    const auto by_constant = outcome<T>(and_also(rows<T>(kTokens, kTokens), {gamma}), [&](const auto& x) {
      return retention(x[0], x[1], x[2], x[4], x[3], retention_options(face, kChunk));
    });
    const auto by_scalar = outcome<T>(and_also(rows<T>(kTokens, kTokens), {scalar}), [&](const auto& x) {
      return unified(x[0], x[1], x[2], x[4], x[3], gated(face, kChunk));
    });
    const auto by_vector =
        outcome<T>(and_also(rows<T>(kTokens, kTokens), {in_all_channels(scalar)}),
                   [&](const auto& x) { return gla(x[0], x[1], x[2], x[4], x[3], gated(face, kChunk)); });
    CHECK(apart(by_scalar, by_constant, 4) <= kRounding<T>);
    CHECK(apart(by_vector, by_constant, 4) <= kRounding<T>);
    CHECK(distance(over_channels(by_vector.gradients[4]), by_scalar.gradients[4]) <= kRounding<T>);
    Tensor<T> over_tokens({kHeads}, T{0});
    for (size_t i = 0; i < scalar.size(); ++i) over_tokens[i % kHeads] += by_scalar.gradients[4][i];
    CHECK(distance(over_tokens, by_constant.gradients[4]) <= 10 * kRounding<T>);
  }
}

TEMPLATE_TEST_CASE("GLA and the scalar gate with gates of 1 are linear attention without features", "", float,
                   double) {
  using T = TestType;
  const Tensor<T> open({kBatch, kTokens, kHeads}, T{1});
  for (const Face face : kFaces) {
    INFO(to_string(face));
    const auto ungated = outcome<T>(rows<T>(kTokens, kTokens), [&](const auto& x) {
      return linear_attention<T>(x[0], x[1], x[2], {}, x[3], {}, retention_options(face, kChunk));
    });
    const auto by_mode = outcome<T>(rows<T>(kTokens, kTokens), [&](const auto& x) {
      return unified_recurrence<T>(ForgetMode::kLinear, x[0], x[1], x[2], {}, x[3], gated(face, kChunk));
    });
    const auto by_scalar = outcome<T>(and_also(rows<T>(kTokens, kTokens), {open}), [&](const auto& x) {
      return unified(x[0], x[1], x[2], x[4], x[3], gated(face, kChunk));
    });
    const auto by_vector =
        outcome<T>(and_also(rows<T>(kTokens, kTokens), {in_all_channels(open)}),
                   [&](const auto& x) { return gla(x[0], x[1], x[2], x[4], x[3], gated(face, kChunk)); });
    CHECK(apart(by_mode, ungated, 4) <= kRounding<T>);
    CHECK(same_bits(by_scalar, by_mode, 4));
    CHECK(apart(by_vector, ungated, 4) <= kRounding<T>);
  }
}

TEMPLATE_TEST_CASE("KDA with equal channels is the gated delta rule", "", float, double) {
  using T = TestType;
  const Tensor<T> scalar = random_tensor<T>({kBatch, kTokens, kHeads}, 6, 0, 1);
  for (const Face face : kFaces) {
    INFO(to_string(face));
    const auto by_scalar =
        outcome<T>(and_also(rows<T>(kTokens, kTokens), {betas<T>(kTokens), scalar}), [&](const auto& x) {
          return gated_delta_rule(x[0], x[1], x[2], x[5], x[4], x[3], gated(face, kChunk));
        });
    const auto by_vector = outcome<T>(
        and_also(rows<T>(kTokens, kTokens), {betas<T>(kTokens), in_all_channels(scalar)}),
        [&](const auto& x) { return kda(x[0], x[1], x[2], x[5], x[4], x[3], gated(face, kChunk)); });
    CHECK(apart(by_vector, by_scalar, 5) <= kRounding<T>);
    CHECK(distance(over_channels(by_vector.gradients[5]), by_scalar.gradients[5]) <= kRounding<T>);
  }
}

TEMPLATE_TEST_CASE("the gated delta rule with gates of 1 is the delta rule, bit for bit", "", float, double) {
  using T = TestType;
  const Tensor<T> open({kBatch, kTokens, kHeads}, T{1});
  for (const Face face : kFaces) {
    INFO(to_string(face));
    const auto ungated = outcome<T>(
        and_also(rows<T>(kTokens, kTokens), {betas<T>(kTokens)}),
        [&](const auto& x) { return delta_rule(x[0], x[1], x[2], x[4], x[3], gated(face, kChunk)); });
    const auto with_gate =
        outcome<T>(and_also(rows<T>(kTokens, kTokens), {betas<T>(kTokens), open}), [&](const auto& x) {
          return gated_delta_rule(x[0], x[1], x[2], x[5], x[4], x[3], gated(face, kChunk));
        });
    CHECK(same_bits(with_gate, ungated, 5));
  }
}

TEMPLATE_TEST_CASE("DeltaProduct with one write per token is the delta rule, bit for bit", "", float,
                   double) {
  using T = TestType;
  const Tensor<T> gates = random_tensor<T>({kBatch, kTokens, kHeads}, 6, 0, 1);
  for (const Face face : kFaces) {
    INFO(to_string(face));
    const auto inputs = and_also(rows<T>(kTokens, kTokens), {betas<T>(kTokens), gates});
    const auto product = outcome<T>({inputs.begin(), inputs.begin() + 5}, [&](const auto& x) {
      return delta_product<T>(x[0], x[1], x[2], {}, x[4], x[3], gated(face, kChunk));
    });
    const auto delta = outcome<T>({inputs.begin(), inputs.begin() + 5}, [&](const auto& x) {
      return delta_rule(x[0], x[1], x[2], x[4], x[3], gated(face, kChunk));
    });
    CHECK(same_bits(product, delta, 5));
    const auto gated_product = outcome<T>(inputs, [&](const auto& x) {
      return delta_product<T>(x[0], x[1], x[2], x[5], x[4], x[3], gated(face, kChunk));
    });
    const auto gated_delta = outcome<T>(inputs, [&](const auto& x) {
      return gated_delta_rule(x[0], x[1], x[2], x[5], x[4], x[3], gated(face, kChunk));
    });
    CHECK(same_bits(gated_product, gated_delta, 6));
  }
}

TEMPLATE_TEST_CASE("DeltaProduct is the delta rule on its writes, read at each last one", "", float, double) {
  using T = TestType;
  constexpr size_t kSteps = 3, kWrites = kTokens * kSteps;
  // [B, T, n_h, H, d] lies as the sequence of writes does.
  const Tensor<T> keys = random_tensor<T>({kBatch, kTokens, kSteps, kHeads, kKeys}, 2);
  const Tensor<T> flat = flatten_micro_sequence(keys);
  CHECK(flat.shape() == Shape{kBatch, kWrites, kHeads, kKeys});
  CHECK(flat.to_vector() == keys.to_vector());

  // Queries of 0 where a write is not read.
  const auto spread = [](const Tensor<T>& q) {
    Tensor<T> all({kBatch, kWrites, kHeads, q.size(3)}, T{0});
    const size_t row = kHeads * q.size(3);
    for (size_t i = 0; i < kBatch * kTokens; ++i) {
      for (size_t j = 0; j < row; ++j) all[(i * kSteps + kSteps - 1) * row + j] = q[i * row + j];
    }
    return all;
  };
  const auto inputs = rows<T>(kTokens, kWrites);
  const Tensor<T> beta = betas<T>(kWrites);
  for (const Face face : kFaces) {
    INFO(to_string(face));
    Tape<T> tape;
    const auto c = [&](const Tensor<T>& t) { return tape.constant(t); };
    GatedOptions options = gated(face, kChunk);
    const auto longer =
        delta_rule(c(spread(inputs[0])), c(inputs[1]), c(inputs[2]), c(beta), c(inputs[3]), options);
    options.steps = kSteps;
    const auto product =
        delta_product<T>(c(inputs[0]), c(inputs[1]), c(inputs[2]), {}, c(beta), c(inputs[3]), options);
    const Tensor<T> o = spread(product.o.value());
    if (face == Face::kRecurrent) {
      CHECK(same_bits(product.S.value(), longer.S.value()));
      CHECK(same_bits(o, longer.o.value()));
    } else {
      CHECK(distance(product.S.value(), longer.S.value()) <= kRounding<T>);
      CHECK(distance(o, longer.o.value()) <= kRounding<T>);
    }
  }
}

// What a call says, without a line break; empty if it throws nothing.
template <class F>
std::string said(const F& f) {
  const std::string message = message_of([&] {
    Tape<double> tape;
    f([&](const Shape& shape, double value) { return tape.input(Tensor<double>(shape, value)); });
  });
  CHECK(message.find('\n') == std::string::npos);
  return message;
}

TEST_CASE("a variant names the gate, the rate or the option that doesn't fit") {
  const Shape rows{1, 4, 2, 3}, per_head{1, 4, 2};
  CHECK(said([&](auto x) { unified(x(rows, 1), x(rows, 1), x(rows, 1), {}); }) ==
        "unified: no gate is given, wanted [B, T, H]");
  CHECK(said([&](auto x) { unified(x(rows, 1), x(rows, 1), x(rows, 1), x(rows, 1)); }) ==
        "unified: the gate is [1, 4, 2, 3], wanted [B, T, H]");
  CHECK(said([&](auto x) { gla(x(rows, 1), x(rows, 1), x(rows, 1), x(per_head, 1)); }) ==
        "gla: the gate is [1, 4, 2], wanted [B, T, H, dk]");
  CHECK(said([&](auto x) { gla(x(rows, 1), x(rows, 1), x(rows, 1), x(rows, 1.5)); }) ==
        "gla: alpha holds 1.5 at element 0, wanted numbers in [0, 1]");
  CHECK(said([&](auto x) { delta_rule(x(rows, 1), x(rows, 1), x(rows, 1), {}); }) ==
        "delta_rule: no beta is given, wanted one number per write and head");
  CHECK(said([&](auto x) { delta_rule(x(rows, 1), x(rows, 1), x(rows, 1), x(per_head, 2.5)); }) ==
        "delta_rule: beta holds 2.5 at element 0, wanted numbers in [0, 2]");
  CHECK(said([&](auto x) { delta_rule(x(rows, 1), x(rows, 1), x(rows, 1), x(per_head, -0.5)); }) ==
        "delta_rule: beta holds -0.5 at element 0, wanted numbers in [0, 2]");
  CHECK(said([&](auto x) { gated_delta_rule(x(rows, 1), x(rows, 1), x(rows, 1), {}, x(per_head, 1)); }) ==
        "gated_delta_rule: no gate is given, wanted [B, T, H]");
  CHECK(said([&](auto x) { kda(x(rows, 1), x(rows, 1), x(rows, 1), x(per_head, 1), x(per_head, 1)); }) ==
        "kda: the gate is [1, 4, 2], wanted [B, T, H, dk]");
  CHECK(said([&](auto x) {
          GatedOptions options;
          options.steps = 2;
          delta_product<double>(x(rows, 1), x(rows, 1), x(rows, 1), {}, x(per_head, 1), {}, options);
        }) == "delta_product: k is [1, 4, 2, 3], wanted [1, 8, 2, 3]");
  CHECK(said([&](auto x) {
          GatedOptions options;
          options.steps = 0;
          delta_product<double>(x(rows, 1), x(rows, 1), x(rows, 1), {}, x(per_head, 1), {}, options);
        }) == "delta_product: 0 writes per token, wanted at least 1");
  CHECK(said([&](auto x) {
          kda<double>(x(rows, 1), x(rows, 1), x(rows, 1), x(rows, 1), x(per_head, 1), {},
                      gated(Face::kChunkwise, 0));
        }) == "kda: the chunk is 0 tokens long, wanted at least 1");
  CHECK(said([&](auto x) { retention<double>(x(rows, 1), x(rows, 1), x(rows, 1), {}); }) ==
        "retention: no gamma is given, wanted one decay per head, [H]");
  CHECK(said([&](auto x) {
          retention<double>(x(rows, 1), x(rows, 1), x(rows, 1), x({2}, 1), {}, LinearAttentionOptions{});
        }) == "retention: the options ask for features or a normaliser, wanted those of retention_options()");
  CHECK(said([&](auto x) {
          retention<double>(x(rows, 1), x(rows, 1), x(rows, 1), x({3}, 1));
        }).find("gamma is [3], wanted [2]") != std::string::npos);
  CHECK(said([&](auto x) {
          unified_recurrence(ForgetMode::kRetention, x(rows, 1), x(rows, 1), x(rows, 1));
        }) == "unified_recurrence: mode retention wants a gate of one number per head");
}

}  // namespace
}  // namespace storytape
