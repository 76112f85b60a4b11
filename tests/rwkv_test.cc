// RWKV-4: WKV's numbers in the seed and the pitfalls it warns of, the token shift, and the time mixing.
#include <array>
#include <cmath>
#include <vector>

#include "autograd/gradcheck.h"
#include "autograd/ops.h"
#include "nn/examples.h"
#include "nn/mixers/rwkv_time_mix.h"
#include "nn/token_shift.h"
#include "tests/catch.h"
#include "tests/error_message.h"
#include "tests/kernel_testing.h"
#include "tests/shared.h"
#include "tests/wkv_testing.h"
#include "train/verify_operations.h"

namespace storytape {
namespace {

using namespace test;

TEST_CASE("token shift and time mixing agree with the golden data on every SIMD target") {
  STORYTAPE_NEED_SHARED(shared);
  OperationOptions options;
  options.only = {"token_shift", "rwkv4_time_mix"};
  on_every_target([&] {
    const std::vector<OperationRow> rows = verify_operations(shared / "golden", options);
    CHECK(rows.size() >= 3 * 2 + 3 * 2 * 5);  // cases, types, ways
    for (const OperationRow& row : rows) {
      INFO(row.variant << " " << row.case_name << " " << row.face << " " << row.dtype << ": " << row.detail);
      CHECK(row.ok);
    }
  });
}

// The weights that the last of 12 tokens gives to all, flat keys: what o_12 answers to each value.
std::vector<double> weights_of_last(Face face, double w, double u) {
  WkvCall<double> in;
  in.w = Tensor<double>({1}, w);
  in.u = Tensor<double>({1}, u);
  in.k = Tensor<double>({1, 12, 1}, 0.5);
  in.v = uniform_tensor<double>({1, 12, 1}, 1);
  Tensor<double> d_o({1, 12, 1}, 0.0);
  d_o[11] = 1;
  const auto d_v = run(in, by(face, 5), d_o).gradients[3].values();
  return {d_v.begin(), d_v.end()};
}

TEST_CASE("seed: the weights of flat keys over 12 tokens") {
  for (const Face face : kWkvFaces) {
    INFO(to_string(face));
    for (const double weight : weights_of_last(face, 0, 0)) CHECK(weight == Approx(1.0 / 12).epsilon(1e-12));
    const auto steep = weights_of_last(face, 2, 0);
    CHECK(steep[9] == Approx(0.0628).margin(5e-5));
    CHECK(steep[10] == Approx(0.4637).margin(5e-5));
    CHECK(steep[11] == Approx(0.4637).margin(5e-5));
    const auto boosted = weights_of_last(face, 0, 1);
    for (size_t i = 0; i < 11; ++i) CHECK(boosted[i] == Approx(0.0729).margin(5e-5));
    CHECK(boosted[11] == Approx(0.1982).margin(5e-5));
    // ∝ e^(-(10-i)w), and e^u for the token itself.
    const auto general = weights_of_last(face, 0.3, -0.7);
    for (size_t i = 0; i < 11; ++i) {
      const double ratio = std::exp(-(10 - static_cast<double>(i)) * 0.3 + 0.7);
      CHECK(general[i] / general[11] == Approx(ratio).epsilon(1e-12));
    }
  }
}

TEST_CASE("seed: the first token returns its own value exactly") {
  on_every_target([] {
    for (const Face face : kWkvFaces) {
      for (uint64_t seed = 0; seed < 20; ++seed) {
        auto in = WkvCall<float>::random(2, 5, 17, false, seed);
        for (float& k : in.k.values()) k *= 50;
        for (float& u : in.u.values()) u *= 25;
        const auto o = run(in, by(face), in.v).o;
        for (const size_t b : {0, 1}) {
          CHECK(same_bits(std::as_const(o).data() + b * 85, std::as_const(in.v).data() + b * 85, 17));
        }
      }
    }
  });
}

TEST_CASE("WKV of a constant value is that value") {
  for (const Face face : kWkvFaces) {
    auto in = WkvCall<float>::random(1, 300, 5, false);
    in.v.fill(-3.7f);
    const auto o = run(in, by(face), in.k).o;
    size_t wrong = 0;
    for (const float x : o.values()) wrong += face == Face::kParallel ? !close(x, -3.7, 1e-6) : x != -3.7f;
    INFO(to_string(face));
    CHECK(wrong == 0);
  }
}

TEST_CASE("pitfall 15: raw exponentials of keys overflow; a running maximum does not") {
  WkvCall<float> in = WkvCall<float>::random(1, 24, 1, false);
  for (float& k : in.k.values()) k += 88;  // e^88 is a float, the sum of two is none
  const auto d_o = uniform_tensor<float>(in.v.shape(), 9);
  // The seed's recurrence as it stands there.
  float num = 0, den = 0, last = 0;
  for (size_t t = 0; t < 24; ++t) {
    const float k = std::as_const(in.k)[t], v = std::as_const(in.v)[t];
    const float now = std::exp(in.u.item() + k);
    last = (num + now * v) / (den + now);
    num = std::exp(-in.w.item()) * num + std::exp(k) * v;
    den = std::exp(-in.w.item()) * den + std::exp(k);
  }
  CHECK_FALSE(std::isfinite(last));

  WkvCall<double> wide;
  for (const auto& [to, from] :
       {std::pair{&wide.w, &in.w}, {&wide.u, &in.u}, {&wide.k, &in.k}, {&wide.v, &in.v}})
    *to = cast<double>(*from);
  for (const Face face : kWkvFaces) {
    const auto got = run(in, by(face), d_o);
    const auto want = run(wide, by(face), cast<double>(d_o));  // e^88 is far from double's end
    CHECK(distance(cast<double>(got.o), want.o) <= 1e-4);
    for (size_t i = 0; i < 4; ++i) CHECK(distance(cast<double>(got.gradients[i]), want.gradients[i]) <= 1e-3);
  }
}

TEST_CASE("pitfall 16: the bonus is for now, and not carried on") {
  auto in = WkvCall<double>::random(1, 9, 4, false);
  in.u.fill(1.5);
  const auto parallel = run(in, by(Face::kParallel), in.v);
  // The mistake: a state that was written with the bonus. It is the recurrence for keys k + u, read without one.
  auto mistaken = in;
  for (double& k : mistaken.k.values()) k += 1.5;
  mistaken.u.fill(0);
  CHECK(distance(run(mistaken, by(Face::kRecurrent), in.v).o, parallel.o) > 1e-2);
  for (const Face face : {Face::kRecurrent, Face::kChunkwise}) {
    const auto got = run(in, by(face, 4), in.v);
    CHECK(distance(got, parallel) <= 1e-13);
    // Another bonus is another output but for the first token, and the same state.
    auto other = in;
    other.u.fill(-3);
    const auto moved = run(other, by(face, 4), in.v);
    CHECK(distance(moved.mean, got.mean) == 0);
    CHECK(distance(moved.logden, got.logden) == 0);
    CHECK(distance(moved.o, got.o) > 1e-2);
  }
}

TEST_CASE("WKV names what doesn't fit") {
  const auto in = WkvCall<float>::random(2, 3, 4, true);
  const auto message = [](const WkvCall<float>& call) {
    return message_of([&] { run(call, {}, Tensor<float>({2, 3, 4}, 1.0f)); });
  };
  CHECK(message(in) == "");
  auto wrong = in;
  wrong.v = Tensor<float>({2, 3, 5}, 0.0f);
  CHECK(message(wrong) == "wkv: v is [2, 3, 5], wanted [2, 3, 4]");
  wrong = in;
  wrong.u = Tensor<float>({3}, 0.0f);
  CHECK(message(wrong) == "wkv: u is [3], wanted [4]");
  wrong = in;
  wrong.w[2] = -0.5f;
  CHECK(message(wrong) == "wkv: w of channel 2 is -0.5, wanted a decay of at least 0");
  wrong = in;
  wrong.logden = Tensor<float>();
  CHECK(message(wrong) == "wkv: of an initial state the logden is missing");
  wrong = in;
  wrong.mean = Tensor<float>({4}, 0.0f);
  CHECK(message(wrong) == "wkv: the initial mean is [4], wanted [2, 4]");
  wrong = in;
  wrong.k = wrong.v = Tensor<float>({2, 0, 4});
  CHECK(message(wrong) == "wkv: k [2, 0, 4] wants at least one element");
}

TEST_CASE("a NaN in WKV's inputs is seen in its outputs") {
  for (const Face face : kWkvFaces) {
    for (const int which : {0, 1, 2, 3, 4, 5}) {
      auto in = WkvCall<float>::random(1, 5, 3, true);
      Tensor<float>* tensors[] = {&in.w, &in.u, &in.k, &in.v, &in.mean, &in.logden};
      (*tensors[which])[1] = std::numeric_limits<float>::quiet_NaN();
      const auto o = run(in, by(face, 2), Tensor<float>(in.v.shape(), 1.0f)).o;
      INFO(to_string(face) << ", input " << which);
      CHECK_FALSE(all_finite(o));
    }
  }
}

TEST_CASE("token shift's gradients are proven on every SIMD target") {
  register_nn_ops();
  on_every_target([] {
    for (const GradRow& row : gradcheck("token_shift")) {
      INFO("(" << row.example << ") " << row.input << ": " << row.why);
      CHECK(row.ok);
    }
  });
}

TEST_CASE("seed: token shift is the identity at 1 and the token before at 0") {
  const Tensor<float> x({1, 3, 2}, {1, 2, 3, 4, 5, 6});
  const auto shift = [&](const std::vector<float>& mu, const Tensor<float>& before = {}) {
    Tape<float> tape;
    const auto result = token_shift(tape.constant(x), tape.constant(Tensor<float>({mu.size()}, mu)),
                                    before.defined() ? tape.constant(before) : Var<float>());
    const auto last = result.last.value().values(), y = result.y.value().values();
    CHECK(std::vector<float>(last.begin(), last.end()) == std::vector<float>{5, 6});
    return std::vector<float>(y.begin(), y.end());
  };
  CHECK(shift({1, 1}) == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(shift({0, 0}) == std::vector<float>{0, 0, 1, 2, 3, 4});
  CHECK(shift({1, 0}) == std::vector<float>{1, 0, 3, 2, 5, 4});
  CHECK(shift({0, 0.5f}, Tensor<float>({1, 2}, {7, 8})) == std::vector<float>{7, 5, 1, 3, 3, 5});
  CHECK(message_of([&] { shift({1, 1, 1}); }) == "token_shift: mu is [3], wanted [2]");
  CHECK(message_of([&] {
          shift({1, 1}, Tensor<float>({2, 2}, 0.0f));
        }) == "token_shift: x_prev is [2, 2], wanted [1, 2]");
}

template <class T>
TimeMixWeights<Tensor<T>> time_mix_weights(size_t channels) {
  const Shape vector = {channels}, matrix = {channels, channels};
  return {uniform_tensor<T>(vector, 1, 0, 1),  uniform_tensor<T>(vector, 2, 0, 1),
          uniform_tensor<T>(vector, 3, 0, 1),  uniform_tensor<T>(matrix, 4, -1, 1),
          uniform_tensor<T>(matrix, 5, -1, 1), uniform_tensor<T>(matrix, 6, -1, 1),
          uniform_tensor<T>(matrix, 7, -1, 1), uniform_tensor<T>(vector, 8, 0, 1),
          uniform_tensor<T>(vector, 9, -1, 1)};
}

template <class T>
Tensor<T> time_mix(const TimeMixWeights<Tensor<T>>& weights, const Tensor<T>& x, Face face) {
  Tape<T> tape;
  const auto var = [&](const Tensor<T>& t) { return tape.constant(t); };
  const TimeMixWeights<Var<T>> vars{var(weights.mu_r), var(weights.mu_k), var(weights.mu_v),
                                    var(weights.W_r),  var(weights.W_k),  var(weights.W_v),
                                    var(weights.W_o),  var(weights.w),    var(weights.u)};
  return rwkv_time_mix<T>(vars, var(x), {}, {}, {}, by(face, 7)).y.value();
}

TEST_CASE("seed: decoding RWKV's time mixing token by token is the parallel pass") {
  const auto x = uniform_tensor<float>({1, 32, 16}, 20);
  const auto weights = time_mix_weights<float>(16);
  const auto whole = time_mix(weights, x, Face::kParallel);
  CHECK(distance(time_mix(weights, x, Face::kRecurrent), whole) <= 1e-6);
  CHECK(distance(time_mix(weights, x, Face::kChunkwise), whole) <= 1e-6);
  for (const std::vector<size_t>& lengths : {std::vector<size_t>(32, 1), {7, 1, 1, 20, 3}, {32}}) {
    auto state = rwkv_time_mix_state<float>(1, 16);
    std::vector<Tensor<float>> parts;
    size_t first = 0;
    for (const size_t n : lengths) {
      parts.push_back(rwkv_time_mix_extend(weights, state, slice(x, 1, first, first + n)));
      first += n;
      CHECK(state.bytes() == 192);  // 3·d numbers of 4 bytes, however long the past
    }
    CHECK(distance(concat(std::span<const Tensor<float>>(parts), 1), whole) <= 1e-6);
    CHECK(state.length == 32);
  }
}

}  // namespace
}  // namespace storytape
