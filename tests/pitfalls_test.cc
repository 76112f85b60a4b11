// The pitfalls at the end of the seed chapter "Linear & Recurrent Attention", by number: what goes wrong when one
// falls in, made here, and that ours does not. (15 and 16 are WKV's: rwkv_test.cc.)
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "autograd/ops.h"
#include "nn/mixers/delta_product.h"
#include "nn/mixers/linear_attention.h"
#include "nn/mixers/softmax_attention.h"
#include "tests/catch.h"
#include "tests/error_message.h"
#include "tests/gated_testing.h"
#include "train/demos/cost.h"

namespace storytape {
namespace {

using namespace test;

LinearAttentionOptions features(FeatureMap phi, bool normalise, Face face = Face::kChunkwise,
                                size_t chunk = 64) {
  LinearAttentionOptions options;
  options.face = face;
  options.chunk = chunk;
  options.phi = phi;
  options.normalise = normalise;
  return options;
}

template <class T>
Tensor<T> attend(const Inputs<T>& in, const LinearAttentionOptions& options) {
  Tape<T> tape;
  const auto given = [&](const Tensor<T>& t) { return t.defined() ? tape.constant(t) : Var<T>(); };
  return linear_attention(given(in.q), given(in.k), given(in.v), given(in.gamma), {}, {}, options).o.value();
}

template <class T>
double largest(const Tensor<T>& x) {
  double worst = 0;
  for (const T value : x.values()) {
    if (!std::isfinite(value)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, std::abs(static_cast<double>(value)));
  }
  return worst;
}
template <class T>
bool any_nan(const Tensor<T>& x) {
  return std::any_of(x.values().begin(), x.values().end(), [](T value) { return std::isnan(value); });
}

double norm(const Tensor<double>& x) {
  double sum = 0;
  for (const double value : x.values()) sum += value * value;
  return std::sqrt(sum);
}

// Inputs of one head without a decay.
Inputs<double> one_head(size_t tokens, size_t dim, uint64_t seed = 1) {
  auto in = Inputs<double>::random(1, tokens, 1, dim, dim, false, seed);
  in.gamma = Tensor<double>();
  return in;
}

TEST_CASE("pitfall 1: a feature map that is not positive lets the normaliser vanish or flip its sign") {
  // Two tokens whose keys nearly cancel: q·z is 0.001 with the identity as feature map.
  Inputs<double> in;
  in.q = Tensor<double>({1, 2, 1, 1}, 1.0);
  in.k = Tensor<double>({1, 2, 1, 1}, {1, -0.999});
  in.v = Tensor<double>({1, 2, 1, 1}, {1, -1});
  CHECK(std::abs(attend(in, features(FeatureMap::kIdentity, true))[1]) > 1000);
  in.k[1] = -1.001;
  CHECK(attend(in, features(FeatureMap::kIdentity, true))[1] < -1000);
  for (const double key : {-0.999, -1.001, -30.0}) {
    in.k[1] = key;
    CHECK(std::abs(attend(in, features(FeatureMap::kEluPlusOne, true))[1]) <= 1);
  }
}

TEST_CASE("pitfall 2: linear attention without its normaliser has another scale") {
  auto in = one_head(200, 4);
  in.v.fill(1);
  const auto with_it = attend(in, features(FeatureMap::kEluPlusOne, true));
  const auto without = attend(in, features(FeatureMap::kEluPlusOne, false));
  CHECK(std::abs(without[199 * 4]) > 50);  // grows with the number of tokens
  for (size_t t = 0; t < 200; ++t) CHECK(with_it[t * 4] == Approx(1).epsilon(1e-5));
}

TEST_CASE("pitfall 3: a decay of more than 1 diverges") {
  constexpr size_t kTokens = 2000;
  const Tensor<double> ones({1, kTokens, 1, 1}, 1.0);
  const auto last = [&](double gamma) {
    double state = 0, o = 0;
    double* no_normaliser = nullptr;
    std::vector<double> outputs(kTokens);
    reference::linear_attention<double>({1, kTokens, 1, 1, 1}, false, 0, ones.data(), ones.data(),
                                        ones.data(), &gamma, &state, no_normaliser, outputs.data());
    o = outputs.back();
    return o;
  };
  CHECK(last(1.01) > 1e10);
  CHECK(last(0.99) == Approx(100).epsilon(1e-6));
  Inputs<double> in{ones, ones, ones, Tensor<double>({1}, 1.01), {}, {}};
  const std::string message = message_of([&] { attend(in, features(FeatureMap::kIdentity, false)); });
  CHECK(message.find("gamma of head 0 is 1.01") != std::string::npos);
  in.gamma = Tensor<double>({1}, 0.99);
  CHECK(attend(in, features(FeatureMap::kIdentity, false))[kTokens - 1] == Approx(100).epsilon(1e-6));
  // The gates of the gated mixers are held to the same.
  auto call = GatedCall<double>::random(kUnified, 1, 3, 1, 2, 2, false);
  call.alpha[1] = 1.01;
  CHECK(message_of([&] { run(call, gated(Face::kChunkwise)); }).find("alpha holds 1.01") !=
        std::string::npos);
}

// Retention in chunks, written out; what `read_shift` and `write_shift` add to the exponents of the carried state.
Tensor<double> chunked_retention(const Inputs<double>& in, double gamma, size_t chunk, int read_shift,
                                 int write_shift) {
  const size_t tokens = in.q.size(1), d = in.q.size(3);
  const auto at = [d](const Tensor<double>& x, size_t t) { return x.values().subspan(t * d, d); };
  Tensor<double> o(in.v.shape(), 0.0);
  std::vector<double> R(d * d, 0.0);
  for (size_t first = 0; first < tokens; first += chunk) {
    const size_t B = std::min(chunk, tokens - first);
    for (size_t t = 0; t < B; ++t) {
      const double carried = std::pow(gamma, static_cast<double>(t) + 1 + read_shift);
      for (size_t j = 0; j < d; ++j) {
        double sum = 0;
        for (size_t i = 0; i < d; ++i) sum += carried * at(in.q, first + t)[i] * R[i * d + j];
        for (size_t s = 0; s <= t; ++s) {
          double score = 0;
          for (size_t i = 0; i < d; ++i) score += at(in.q, first + t)[i] * at(in.k, first + s)[i];
          sum += std::pow(gamma, static_cast<double>(t - s)) * score * at(in.v, first + s)[j];
        }
        o[(first + t) * d + j] = sum;
      }
    }
    for (double& x : R) x *= std::pow(gamma, static_cast<double>(B));
    for (size_t s = 0; s < B; ++s) {
      const double weight = std::pow(gamma, static_cast<double>(B - 1 - s) + write_shift);
      for (size_t i = 0; i < d; ++i) {
        for (size_t j = 0; j < d; ++j)
          R[i * d + j] += weight * at(in.k, first + s)[i] * at(in.v, first + s)[j];
      }
    }
  }
  return o;
}

TEST_CASE("pitfall 4: an exponent off by one at the chunk's boundary breaks the equivalence") {
  auto in = one_head(23, 4);
  in.gamma = Tensor<double>({1}, 0.9);
  const auto truth = attend(in, features(FeatureMap::kIdentity, false, Face::kRecurrent));
  for (const size_t chunk : {1, 4, 7, 16, 23, 40}) {
    INFO("chunk " << chunk);
    CHECK(distance(chunked_retention(in, 0.9, chunk, 0, 0), truth) <= 1e-13);
    CHECK(distance(attend(in, features(FeatureMap::kIdentity, false, Face::kChunkwise, chunk)), truth) <=
          1e-13);
    if (chunk >= 23) continue;  // one chunk has no boundary, which is why it proves nothing
    CHECK(distance(chunked_retention(in, 0.9, chunk, -1, 0), truth) > 1e-2);
    CHECK(distance(chunked_retention(in, 0.9, chunk, 0, 1), truth) > 1e-2);
  }
  CHECK(distance(chunked_retention(in, 0.9, 40, -1, 1), truth) <= 1e-13);
}

TEST_CASE("pitfall 5: linear attention is another function than softmax attention, not an approximation") {
  // The last query points at token 3's key, sharply.
  auto in = one_head(16, 8);
  normalise_rows(in.k);
  for (double& x : in.k.values()) x *= 8;
  for (size_t i = 0; i < 8; ++i) in.q[15 * 8 + i] = in.k[3 * 8 + i];
  Tape<double> tape;
  SoftmaxAttentionOptions options;
  options.scale = 1;
  const auto soft =
      softmax_attention(tape.constant(in.q), tape.constant(in.k), tape.constant(in.v), options).value();
  const auto linear = attend(in, features(FeatureMap::kEluPlusOne, true));
  double soft_error = 0, linear_error = 0;
  for (size_t i = 0; i < 8; ++i) {
    soft_error = std::max(soft_error, std::abs(soft[15 * 8 + i] - in.v[3 * 8 + i]));
    linear_error = std::max(linear_error, std::abs(linear[15 * 8 + i] - in.v[3 * 8 + i]));
  }
  CHECK(soft_error <= 1e-2);
  CHECK(linear_error > 0.3);
  // Ours is what its own definition says.
  Tensor<double> S = Tensor<double>::zeros({1, 1, 8, 8}), z = Tensor<double>::zeros({1, 1, 8}),
                 o(in.v.shape());
  const double* no_decay = nullptr;
  reference::linear_attention<double>({1, 16, 1, 8, 8}, true, 1e-6, in.q.data(), in.k.data(), in.v.data(),
                                      no_decay, S.data(), z.data(), o.data());
  CHECK(distance(linear, o) <= 1e-13);
}

TEST_CASE("pitfall 6: the state is d times d, not a state space model's d times 16") {
  const auto bytes_after = [](size_t tokens, size_t d) {
    auto state = gated_state<float>(1, 1, d, d);
    const Tensor<float> x({1, tokens, 1, d}, 0.1f);
    gated_extend<float>("linear", state, x, x, x, {}, {}, {});
    return state.bytes();
  };
  for (const size_t d : {32, 64, 128}) {
    CHECK(bytes_after(1, d) == d * d * sizeof(float));
    CHECK(bytes_after(500, d) == d * d * sizeof(float));
    CHECK(bytes_after(1, d) != d * 16 * sizeof(float));
    CHECK(bytes_after(1, d) / (d * 16 * sizeof(float)) == d / 16);
  }
}

TEST_CASE("pitfall 7: no scalar decay does what GLA's gate, a vector, does") {
  auto call = GatedCall<double>::random(kGla, 1, 32, 1, 2, 3, false);
  for (size_t t = 0; t < 32; ++t) {
    call.alpha[2 * t] = 0.98;     // holds
    call.alpha[2 * t + 1] = 0.2;  // flushes
  }
  const auto vector = run(call, gated(Face::kChunkwise)).o;
  CHECK(distance(vector, witness_outcome(call).o) <= 1e-13);
  Inputs<double> in{call.q, call.k, call.v, Tensor<double>({1}), {}, {}};
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= 1000; ++i) {
    in.gamma[0] = i / 1000.0;
    best = std::min(best, distance(attend(in, features(FeatureMap::kIdentity, false)), vector));
  }
  CHECK(best > 0.1);
  // Where all channels have one gate there is such a decay.
  call.alpha.fill(0.7);
  in.gamma[0] = 0.7;
  CHECK(distance(attend(in, features(FeatureMap::kIdentity, false)), run(call, gated(Face::kChunkwise)).o) <=
        1e-13);
}

TEST_CASE("pitfall 8: GLA's parallel form divided by the running product ends at length") {
  auto call = GatedCall<float>::random(kGla, 1, 400, 1, 8, 8, false);
  call.alpha.fill(0.7f);
  const auto truth = run(call, gated(Face::kRecurrent)).o;
  CHECK(any_nan(run(call, textbook()).o));
  for (const size_t chunk : {16, 64, 400}) {
    CHECK(distance(run(call, gated(Face::kChunkwise, chunk)).o, truth) <= 2e-6);
  }
  CHECK(distance(run(call, gated(Face::kParallel)).o, truth) <= 2e-6);
  // For short spans it is right.
  const auto head = call.tokens(0, 100);
  CHECK(distance(run(head, textbook()).o, run(head, gated(Face::kRecurrent)).o) <= 1e-5);
}

TEST_CASE("pitfall 9: the delta rule with keys that are not of unit length grows without bound") {
  constexpr size_t kTokens = 64;
  auto call = GatedCall<double>::random(kDelta, 1, kTokens, 1, 4, 4, true);
  call.beta.fill(1);
  const double start = norm(call.S);
  double values = 0;
  for (size_t t = 0; t < kTokens; ++t) {
    double sum = 0;
    for (size_t i = 0; i < 4; ++i) sum += call.v[t * 4 + i] * call.v[t * 4 + i];
    values += std::sqrt(sum);
  }
  for (const Face face : kFaces) CHECK(norm(run(call, gated(face)).S) <= start + values);

  // |k|² = 3: the transition's eigenvalue along the key is 1 - 3 = -2.
  auto longer = call;
  for (double& x : longer.k.values()) x *= std::sqrt(3.0);
  CHECK(norm(run(longer, gated(Face::kRecurrent)).S) > 1e4 * (start + values));
  const auto eigenvalue = [](const GatedCall<double>& c) {
    const Tensor<double> key = c.k.reshape({kTokens, 4}).rows(0, 1);
    const Tensor<double> M = delta_product_transition(key, Tensor<double>({1}, 1.0));
    double along = 0, square = 0;
    for (size_t i = 0; i < 4; ++i) {
      for (size_t j = 0; j < 4; ++j) along += key[i] * M[i * 4 + j] * key[j];
      square += key[i] * key[i];
    }
    return along / square;
  };
  CHECK(eigenvalue(longer) == Approx(-2));
  CHECK(eigenvalue(call) == Approx(0).margin(1e-12));
}

// n facts written one after another, then each asked for: the mean distance to what was stored.
double recall_error(const Tensor<double>& keys, const Tensor<double>& values, const GatedVariant& variant) {
  const size_t n = keys.size(1), d = keys.size(3);
  Tape<double> tape;
  const auto twice = [&](const Tensor<double>& a, const Tensor<double>& b) {
    return concat<double>({tape.constant(a), tape.constant(b)}, 1).value();
  };
  const Tensor<double> nothing({1, n, 1, d}, 0.0);
  GatedCall<double> call{variant, twice(keys, keys), twice(keys, nothing), twice(values, nothing), {}, {},
                         {}};
  if (variant.delta) call.beta = twice(Tensor<double>({1, n, 1}, 1.0), Tensor<double>({1, n, 1}, 0.0));
  const auto o = run(call, gated(Face::kChunkwise)).o;
  double sum = 0;
  for (size_t t = 0; t < n; ++t) {
    double square = 0;
    for (size_t i = 0; i < d; ++i) {
      const double apart = o[(n + t) * d + i] - values[t * d + i];
      square += apart * apart;
    }
    sum += std::sqrt(square);
  }
  return sum / static_cast<double>(n);
}

TEST_CASE("pitfall 10: one pass of the delta rule leaves crosstalk between keys that overlap") {
  constexpr size_t kFacts = 8, kDim = 8;
  const auto values = random_tensor<double>({1, kFacts, 1, kDim}, 5);
  Tensor<double> orthonormal({1, kFacts, 1, kDim}, 0.0);
  for (size_t t = 0; t < kFacts; ++t) orthonormal[t * kDim + t] = 1;
  auto overlapping = random_tensor<double>({1, kFacts, 1, kDim}, 6, 0, 1);
  normalise_rows(overlapping);
  CHECK(recall_error(orthonormal, values, kDelta) == 0);
  CHECK(recall_error(overlapping, values, kDelta) > 0.5);
  CHECK(recall_error(overlapping, values, kDelta) < 0.5 * recall_error(overlapping, values, kUngated));
}

TEST_CASE("pitfall 11: the gated delta rule divided by the gates' running product ends at length") {
  auto call = GatedCall<float>::random(kGatedDelta, 1, 768, 1, 8, 8, false);
  call.alpha.fill(0.8f);
  const auto truth = run(call, gated(Face::kRecurrent)).o;
  CHECK(any_nan(run(call, textbook()).o));
  for (const size_t chunk : {16, 64, 768}) {
    CHECK(distance(run(call, gated(Face::kChunkwise, chunk)).o, truth) <= 2e-6);
  }
  const auto head = call.tokens(0, 200);
  CHECK(distance(run(head, textbook()).o, run(head, gated(Face::kRecurrent)).o) <= 1e-5);
}

TEST_CASE("pitfall 12: the gate forgets everything, the delta write one key: neither does the other's work") {
  // Two facts, then the first one's key once more with another value; then both are asked for.
  Tensor<double> k({1, 5, 1, 2}, {1, 0, 0, 1, 1, 0, 0, 0, 0, 0}),
      q({1, 5, 1, 2}, {1, 0, 0, 1, 1, 0, 1, 0, 0, 1});
  const Tensor<double> v({1, 5, 1, 1}, {3, 5, 7, 0, 0});
  const auto ask = [&](const GatedVariant& variant, double alpha) {
    GatedCall<double> call{variant, q, k, v, Tensor<double>({1, 5, 1}, 1.0), {}, {}};
    call.alpha[2] = alpha;
    if (variant.delta) call.beta = Tensor<double>({1, 5, 1}, {1, 1, 1, 0, 0});
    const auto o = run(call, gated(Face::kChunkwise)).o;
    return std::pair{o[3], o[4]};
  };
  // A small gate before an additive write: the old value is gone only as far as the other fact is.
  CHECK(ask(kUnified, 1) == std::pair{10.0, 5.0});
  CHECK(ask(kUnified, 0.5) == std::pair{8.5, 2.5});
  CHECK(ask(kUnified, 0) == std::pair{7.0, 0.0});
  // A full write without a gate: the one key is exact, the other fact stays for good.
  CHECK(ask(kGatedDelta, 1) == std::pair{7.0, 5.0});
  // Both: each does its own.
  CHECK(ask(kGatedDelta, 0.5) == std::pair{7.0, 2.5});
}

TEST_CASE("pitfall 13: DeltaProduct's steps are not free") {
  const uint64_t one = delta_product_multiplications(10, 16, 1);
  CHECK(one == 10 * (2 * 16 * 16 + 16));
  for (const size_t steps : {2, 3, 4}) CHECK(delta_product_multiplications(10, 16, steps) == steps * one);
  // The state they work on stays as it is.
  auto call = GatedCall<double>::random(kDeltaProduct, 1, 6, 1, 5, 5, false);
  CHECK(run(call, gated(Face::kChunkwise)).S.size() == 25);
}

double determinant2(const Tensor<double>& M) {
  return M[0] * M[3] - M[1] * M[2];
}

TEST_CASE("pitfall 14: with beta in [0, 1] no number of steps rotates") {
  Random random(14);
  for (int i = 0; i < 200; ++i) {
    const size_t steps = 1 + random.below(4);
    auto keys = random_tensor<double>({steps, 2}, 100 + static_cast<uint64_t>(i));
    normalise_rows(keys);
    const auto clamped = random_tensor<double>({steps}, 500 + static_cast<uint64_t>(i), 0.01, 1);
    const double determinant = determinant2(delta_product_transition(keys, clamped));
    if (!(determinant >= -1e-15)) FAIL("determinant " << determinant);
    if (!(determinant < 1)) FAIL("no step shrinks anything, determinant " << determinant);
  }
  // Quarter turn: two reflections whose keys are 45 degrees apart.
  const double half = std::sqrt(0.5);
  const Tensor<double> keys({2, 2}, {1, 0, half, half});
  const Tensor<double> turn = delta_product_transition(keys, Tensor<double>({2}, 2.0));
  CHECK(distance(turn, Tensor<double>({2, 2}, {0, -1, 1, 0})) <= 1e-15);
  CHECK(determinant2(turn) == Approx(1));
  const Tensor<double> clamped = delta_product_transition(keys, Tensor<double>({2}, 1.0));
  CHECK(distance(clamped, turn) > 0.5);
  CHECK(determinant2(clamped) == Approx(0).margin(1e-15));
}

}  // namespace
}  // namespace storytape
