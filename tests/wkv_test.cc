// WKV: its proofs, where lengths, chunks, pieces and SIMD targets meet, and reported faults of others by name. Its
// numbers in the seed, and what is built of it: rwkv_test.cc.
#include <array>
#include <limits>
#include <utility>

#include "autograd/evaluate.h"
#include "autograd/gradcheck.h"
#include "autograd/ops.h"
#include "nn/mixers/faces.h"
#include "nn/mixers/kernels/wkv.h"
#include "nn/mixers/reference_wkv.h"
#include "nn/mixers/registry.h"
#include "tests/catch.h"
#include "tests/error_message.h"
#include "tests/kernel_testing.h"
#include "tests/shared.h"
#include "tests/wkv_testing.h"
#include "train/verify_operations.h"

namespace storytape {
namespace {

using namespace test;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST_CASE("WKV agrees with the golden data on every SIMD target") {
  STORYTAPE_NEED_SHARED(shared);
  OperationOptions options;
  options.only = {"rwkv4_wkv"};
  on_every_target([&] {
    const std::vector<OperationRow> rows = verify_operations(shared / "golden", options);
    CHECK(rows.size() >= 6 * 2 * 5);  // cases, types, ways
    for (const OperationRow& row : rows) {
      INFO(row.variant << " " << row.case_name << " " << row.face << " " << row.dtype << ": " << row.detail);
      CHECK(row.ok);
    }
  });
}

TEST_CASE("WKV's gradients and faces are proven on every SIMD target") {
  register_mixers();
  on_every_target([] {
    const std::vector<GradRow> gradients = gradcheck("wkv");
    CHECK(gradients.size() > 300);
    for (const GradRow& row : gradients) {
      INFO(row.face << " (" << row.example << ") " << row.input << ": " << row.why);
      CHECK(row.ok);
    }
    for (const FaceRow& row : check_faces("wkv")) {
      INFO(row.face << " " << row.dtype << ": " << row.why);
      CHECK(row.ok);
    }
  });
}

template <class T>
Tensor<T> piece(const Tensor<T>& x, size_t first, size_t last) {
  return slice(x, 1, first, last);
}

// The outputs of the pieces one after another through wkv_extend, and the state after them.
template <class T>
std::pair<Tensor<T>, State<T>> in_pieces(const WkvCall<T>& in, const std::vector<size_t>& lengths) {
  State<T> state = wkv_state<T>(in.k.size(0), in.k.size(2));
  std::vector<Tensor<T>> parts;
  size_t first = 0;
  for (const size_t n : lengths) {
    parts.push_back(
        wkv_extend(state, in.w, in.u, piece(in.k, first, first + n), piece(in.v, first, first + n)));
    first += n;
  }
  return {concat(std::span<const Tensor<T>>(parts), 1), state};
}

TEST_CASE("B012 a WKV sequence in pieces is the sequence in one") {
  const auto in = WkvCall<double>::random(2, 130, 5, false);
  const auto in32 = WkvCall<float>::random(2, 130, 5, false);
  const auto [whole, end] = in_pieces(in, {130});
  const auto [whole32, end32] = in_pieces(in32, {130});
  std::vector<std::vector<size_t>> cuts = {std::vector<size_t>(130, 1), {64, 66}, {63, 67}, {5, 60, 1, 64}};
  Random random(12);
  for (int i = 0; i < 8; ++i) {
    cuts.emplace_back();
    for (size_t left = 130; left > 0; left -= cuts.back().back())
      cuts.back().push_back(1 + random.below(left));
  }
  on_every_target([&, &a = whole, &b = end, &a32 = whole32, &b32 = end32] {
    for (const auto& lengths : cuts) {
      INFO("pieces " << lengths.size() << ", first " << lengths[0]);
      const auto [o, state] = in_pieces(in, lengths);
      CHECK(distance(o, a) <= 1e-13);
      CHECK(distance(state["mean"], b["mean"]) <= 1e-13);
      CHECK(distance(state["logden"], b["logden"]) <= 1e-13);
      CHECK(state.length == 130);
      const auto [o32, state32] = in_pieces(in32, lengths);
      CHECK(distance(o32, a32) <= 2e-6);
      CHECK(distance(state32["mean"], b32["mean"]) <= 2e-6);
      CHECK(distance(state32["logden"], b32["logden"]) <= 2e-6);
    }
  });
}

TEST_CASE("the chunk's length changes no bit of WKV's outputs") {
  const auto in = WkvCall<float>::random(2, 130, 37, true);
  on_every_target([&] {
    const auto want = run(in, by(Face::kChunkwise, 64), in.v);
    for (const size_t chunk : {1, 7, 130, 1000}) {
      INFO("chunks of " << chunk);
      const auto got = run(in, by(Face::kChunkwise, chunk), in.v);
      CHECK(same_bits(std::as_const(got.o).data(), std::as_const(want.o).data(), got.o.size()));
      CHECK(
          same_bits(std::as_const(got.logden).data(), std::as_const(want.logden).data(), got.logden.size()));
    }
  });
}

TEST_CASE("B013 the last, incomplete chunk leaves the state of WKV's recurrence") {
  for (size_t tokens = 1; tokens <= 130; ++tokens) {
    INFO(tokens << " tokens");
    const auto in = WkvCall<double>::random(1, tokens + 1, 3, false, tokens);
    const auto [one, state] = in_pieces(in, {tokens, 1});
    const auto [all, expected] = in_pieces(in, std::vector<size_t>(tokens + 1, 1));
    CHECK(distance(state["mean"], expected["mean"]) <= 1e-13);
    CHECK(distance(state["logden"], expected["logden"]) <= 1e-13);
    CHECK(distance(one, all) <= 1e-13);
  }
}

// A kernel on arrays between NaN guards, results poisoned, against the parallel face.
template <class T>
void check_between_guards(size_t tokens, size_t channels, bool chunkwise, double tolerance) {
  const size_t batch = 2, chunk = std::min(size_t{64}, tokens), chunks = (tokens + chunk - 1) / chunk;
  const size_t all = batch * tokens * channels, states = batch * channels;
  constexpr T kPoison = std::numeric_limits<T>::quiet_NaN();
  const auto w = random_values<T>(channels, 1, 0, 1), u = random_values<T>(channels, 2);
  const auto k = random_values<T>(all, 3), v = random_values<T>(all, 4), d_o = random_values<T>(all, 5);
  const auto m0 = random_values<T>(states, 6), l0 = random_values<T>(states, 7);
  const auto d_m = random_values<T>(states, 8), d_l = random_values<T>(states, 9);
  Guarded<T> o(all, kPoison), m(states, kPoison), l(states, kPoison),
      records(batch * chunks * wkv_record({batch, tokens, channels}), kPoison);
  Guarded<T> d_w(channels, kPoison), d_u(channels, kPoison), d_k(all, kPoison), d_v(all, kPoison),
      d_m0(states, kPoison), d_l0(states, kPoison);
  internal::poison_pool<T>(size_t{1} << 18, 4);
  WkvForward<T> forward{};
  forward.in = {
      {batch, tokens, channels}, chunk, w.data(), u.data(), k.data(), v.data(), m0.data(), l0.data()};
  forward.o = o.data();
  forward.mean = m.data();
  forward.logden = l.data();
  forward.records = records.data();
  chunkwise ? wkv_chunkwise_forward(forward) : wkv_recurrent_forward(forward);
  WkvBackward<T> backward{};
  backward.in = forward.in;
  backward.records = records.data();
  backward.d_o = d_o.data();
  backward.d_mean = d_m.data();
  backward.d_logden = d_l.data();
  backward.d_w = d_w.data();
  backward.d_u = d_u.data();
  backward.d_k = d_k.data();
  backward.d_v = d_v.data();
  backward.d_mean_init = d_m0.data();
  backward.d_logden_init = d_l0.data();
  chunkwise ? wkv_chunkwise_backward(backward) : wkv_recurrent_backward(backward);
  for (const Guarded<T>* g : {&o, &m, &l, &records, &d_w, &d_u, &d_k, &d_v, &d_m0, &d_l0}) CHECK(g->intact());

  const auto tensor = [](const Guarded<T>& g, const Shape& s) {
    return Tensor<T>(s, std::span(g.data(), g.size()));
  };
  const Shape c = {channels}, btc = {batch, tokens, channels}, bc = {batch, channels};
  const WkvCall<T> in{tensor(w, c),   tensor(u, c),   tensor(k, btc),
                      tensor(v, btc), tensor(m0, bc), tensor(l0, bc)};
  const auto want = run(in, by(Face::kParallel), tensor(d_o, btc), tensor(d_m, bc), tensor(d_l, bc));
  const WkvAnswer<T> got{tensor(o, btc),
                         tensor(m, bc),
                         tensor(l, bc),
                         {tensor(d_w, c), tensor(d_u, c), tensor(d_k, btc), tensor(d_v, btc),
                          tensor(d_m0, bc), tensor(d_l0, bc)}};
  CHECK(distance(got, want) <= tolerance);
}

TEST_CASE("B014 WKV's tails read nothing outside and lose no gradient") {
  on_every_target([] {
    for (const bool chunkwise : {false, true}) {
      for (const size_t tokens : {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129}) {
        INFO(tokens << " tokens, " << (chunkwise ? "chunkwise" : "recurrent"));
        check_between_guards<double>(tokens, 5, chunkwise, 1e-13);
        check_between_guards<float>(tokens, 5, chunkwise, 1e-5);
      }
      for (const size_t channels : {1, 3, 7, 8, 15, 16, 17, 33}) {
        INFO(channels << " channels, " << (chunkwise ? "chunkwise" : "recurrent"));
        check_between_guards<double>(19, channels, chunkwise, 1e-13);
        check_between_guards<float>(19, channels, chunkwise, 1e-5);
      }
    }
  });
}

TEST_CASE("B015 WKV of sequences shorter than a chunk, chunks that don't divide") {
  const auto check = [](size_t batch, size_t tokens, size_t chunk) {
    INFO(batch << " × " << tokens << " tokens, chunk " << chunk);
    const auto in = WkvCall<double>::random(batch, tokens, 3, true, tokens);
    const auto d_o = uniform_tensor<double>(in.v.shape(), 9),
               d_mean = uniform_tensor<double>(in.mean.shape(), 10),
               d_logden = uniform_tensor<double>(in.mean.shape(), 11);
    const auto want = run(in, by(Face::kRecurrent), d_o, d_mean, d_logden);
    CHECK(distance(run(in, by(Face::kChunkwise, chunk), d_o, d_mean, d_logden), want) <= 1e-12);
  };
  for (const size_t batch : {1, 3}) {
    for (size_t tokens = 1; tokens <= 8; ++tokens) {
      for (const size_t chunk : {16, 64, 256}) check(batch, tokens, chunk);
    }
    check(batch, 1334, 83);
  }
  const auto in = WkvCall<double>::random(1, 4, 3, false);
  CHECK(message_of([&] { run(in, by(Face::kChunkwise, 0), in.v); }).find("chunk is 0") != std::string::npos);
}

TEST_CASE("B016 the tail of a very long WKV sequence") {
  for (const size_t tokens : {65'535, 65'537, 70'001}) {
    for (const WkvOptions options :
         {by(Face::kChunkwise, 64), by(Face::kChunkwise, 4096), by(Face::kRecurrent)}) {
      INFO(tokens << " tokens, " << to_string(options.face) << " " << options.chunk);
      WkvCall<float> in;
      in.w = in.u = Tensor<float>({8}, 0.0f);
      in.k = Tensor<float>({1, tokens, 8}, 0.0f);
      in.v = Tensor<float>({1, tokens, 8}, 1.0f);
      Tensor<float> d_o({1, tokens, 8}, 0.0f);
      d_o[tokens * 8 - 1] = 1;  // the last token's last channel
      const auto got = run(in, options, d_o);
      size_t wrong = 0;
      for (const float x : got.o.values()) wrong += x != 1;
      CHECK(wrong == 0);
      CHECK(std::as_const(got.logden)[0] == Approx(std::log(static_cast<double>(tokens))).epsilon(1e-6));
      // Every value counts alike.
      for (const size_t t : {size_t{0}, size_t{65'534}, tokens - 1}) {
        const double share = static_cast<double>(std::as_const(got.gradients[3])[t * 8 + 7]);
        CHECK(share * static_cast<double>(tokens) == Approx(1).epsilon(1e-4));
        CHECK(std::as_const(got.gradients[3])[t * 8] == 0);
      }
    }
  }
}

// o, mean and logden in double by the definition.
template <class T>
std::array<std::vector<double>, 3> reference_of(const WkvCall<T>& in) {
  const auto wide = [](const Tensor<T>& x) {
    return std::vector<double>(x.values().begin(), x.values().end());
  };
  const size_t states = in.k.size(0) * in.k.size(2);
  std::vector<double> o(in.k.size()), mean(states, 0.0), logden(states, -kInfinity);
  reference::wkv<double>(in.k.size(0), in.k.size(1), in.k.size(2), wide(in.w).data(), wide(in.u).data(),
                         wide(in.k).data(), wide(in.v).data(), mean.data(), logden.data(), o.data());
  return {o, mean, logden};
}

// What B019 asks of one call: a weighted mean of the values, everything finite, and the definition's numbers within
// `tolerance`.
template <class T>
void check_large_keys(const WkvCall<T>& in, double tolerance) {
  const auto values = std::as_const(in.v).values();
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const auto [o, mean, logden] = reference_of(in);
  for (const Face face : kWkvFaces) {
    INFO(to_string(face));
    const auto got = run(in, by(face, 16), uniform_tensor<T>(in.v.shape(), 9),
                         uniform_tensor<T>({in.k.size(0), in.k.size(2)}, 10),
                         uniform_tensor<T>({in.k.size(0), in.k.size(2)}, 11));
    // The parallel face adds up to 512 shares of a value one after another.
    const T slack = face == Face::kParallel && sizeof(T) == 4 ? T(5e-6) : T(1e-6);
    const double allowed = std::max(tolerance, static_cast<double>(slack));
    size_t outside = 0;
    for (const T x : got.o.values()) outside += !(x >= *low - slack && x <= *high + slack);
    CHECK(outside == 0);
    CHECK(all_close(std::as_const(got.o).data(), o, allowed));
    CHECK(all_close(std::as_const(got.mean).data(), mean, allowed));
    CHECK(all_close(std::as_const(got.logden).data(), logden, allowed));
    for (size_t c = 0; c < in.k.size(2); ++c)
      CHECK(std::as_const(got.o)[c] == std::as_const(in.v)[c]);  // o_1 = v_1
    for (size_t i = 0; i < 4; ++i) CHECK(all_finite(got.gradients[i]));
  }
}

template <class T>
void check_large_keys(double tolerance) {
  for (const double bonus : {-50, 0, 50}) {
    for (const double decay : {0.0, 1e-6, 0.9, 1.0, 40.0, 1e30}) {
      INFO("bonus " << bonus << ", decay " << decay);
      WkvCall<T> in;
      in.w = Tensor<T>({3}, static_cast<T>(decay));
      in.u = Tensor<T>({3}, static_cast<T>(bonus));
      for (const size_t tokens : {8, 64, 512}) {
        if (tokens == 512 && decay != 0) continue;
        in.v = uniform_tensor<T>({1, tokens, 3}, tokens);
        in.k = Tensor<T>(in.v.shape(), T{100});
        check_large_keys(in, tolerance);
        in.v = Tensor<T>(in.v.shape(), T(0.7));
        check_large_keys(in, 1e-6);
      }
      in.v = uniform_tensor<T>({1, 41, 3}, 7);
      in.k = Tensor<T>(in.v.shape());
      for (const bool rising : {true, false}) {
        for (size_t i = 0; i < in.k.size(); ++i) {
          const double key = -1e4 + 500 * static_cast<double>(i / 3);
          in.k[i] = static_cast<T>(rising ? key : -key);
        }
        check_large_keys(in, tolerance);
      }
    }
  }
}

TEST_CASE("B019 WKV of large keys is a weighted mean of the values") {
  on_every_target([] {
    check_large_keys<double>(1e-9);
    check_large_keys<float>(2e-4);  // exponents of 100 are 2^-17 apart, and 512 of them add up
  });
}

TEST_CASE("B020 the gradients of w and u are summed over the batch") {
  for (const Face face : kWkvFaces) {
    INFO(to_string(face));
    const auto one = WkvCall<double>::random(1, 19, 3, true);
    const auto d_o = uniform_tensor<double>(one.v.shape(), 9);
    const auto thrice = [](const Tensor<double>& x) {
      const std::vector<Tensor<double>> copies(3, x);
      return concat(std::span<const Tensor<double>>(copies), 0);
    };
    const WkvCall<double> three{
        one.w, one.u, thrice(one.k), thrice(one.v), thrice(one.mean), thrice(one.logden)};
    const auto single = run(one, by(face, 8), d_o), triple = run(three, by(face, 8), thrice(d_o));
    for (const size_t i : {0, 1}) {
      for (size_t c = 0; c < 3; ++c) {
        const double alone = std::as_const(single.gradients[i])[c];
        CHECK(alone != 0);
        CHECK(std::as_const(triple.gradients[i])[c] == Approx(3 * alone).epsilon(1e-13));
      }
    }

    const auto batch = WkvCall<double>::random(3, 19, 3, true, 30);
    const auto d_batch = uniform_tensor<double>(batch.v.shape(), 39);
    const auto all = run(batch, by(face, 8), d_batch);
    std::vector<double> d_w(3, 0.0), d_u(3, 0.0);
    for (size_t b = 0; b < 3; ++b) {
      const auto row = [b](const Tensor<double>& x) { return x.rows(b, b + 1); };
      const auto part = run(
          WkvCall<double>{batch.w, batch.u, row(batch.k), row(batch.v), row(batch.mean), row(batch.logden)},
          by(face, 8), row(d_batch));
      for (size_t c = 0; c < 3; ++c) {
        d_w[c] += std::as_const(part.gradients[0])[c];
        d_u[c] += std::as_const(part.gradients[1])[c];
      }
    }
    CHECK(all_close(std::as_const(all.gradients[0]).data(), d_w, 1e-13));
    CHECK(all_close(std::as_const(all.gradients[1]).data(), d_u, 1e-13));
  }
}

// Loss on the last state, and on all outputs where told so, over equal segments chained on one tape.
WkvAnswer<double> chained(const WkvCall<double>& in, size_t segments, const WkvOptions& options,
                          bool outputs) {
  const size_t tokens = in.k.size(1), step = tokens / segments;
  Tape<double> tape;
  const std::vector<Var<double>> x{tape.input(in.w), tape.input(in.u),    tape.input(in.k),
                                   tape.input(in.v), tape.input(in.mean), tape.input(in.logden)};
  Var<double> mean = x[4], logden = x[5];
  std::vector<Var<double>> parts;
  for (size_t first = 0; first < tokens; first += step) {
    const auto y = wkv(x[0], x[1], slice(x[2], 1, first, first + step), slice(x[3], 1, first, first + step),
                       mean, logden, options);
    parts.push_back(y.o);
    mean = y.mean;
    logden = y.logden;
  }
  const Var<double> o = concat(parts, 1);
  WkvAnswer<double> answer{o.value(), mean.value(), logden.value(), {}};
  tape.backward(std::vector<Var<double>>{o, mean, logden},
                std::vector<Tensor<double>>{
                    outputs ? uniform_tensor<double>(o.shape(), 50) : Tensor<double>(),
                    uniform_tensor<double>(mean.shape(), 51), uniform_tensor<double>(mean.shape(), 52)});
  for (const Var<double>& var : x) {
    answer.gradients.push_back(var.grad().defined() ? var.grad() : Tensor<double>::zeros(var.shape()));
  }
  return answer;
}

TEST_CASE("B054 the gradient through WKV's final state reaches every segment") {
  const auto in = WkvCall<double>::random(2, 64, 3, true);
  for (const Face face : kWkvFaces) {
    for (const bool outputs : {false, true}) {
      const auto whole = chained(in, 1, by(face, 16), outputs);
      for (size_t i = 0; i < whole.gradients.size(); ++i) {
        const auto values = whole.gradients[i].values();
        const bool zero = std::all_of(values.begin(), values.end(), [](double x) { return x == 0; });
        CHECK(zero == (i == 1 && !outputs));  // the state does not depend on the bonus
      }
      for (const size_t segments : {2, 4, 64}) {
        INFO(to_string(face) << ", " << segments << " segments");
        CHECK(distance(chained(in, segments, by(face, 16), outputs), whole) <= 1e-12);
      }
    }
  }
}

TEST_CASE("B055 an empty state given is no state, and its gradients are zeros") {
  for (const Face face : kWkvFaces) {
    for (const size_t tokens : {1, 70}) {
      INFO(to_string(face) << ", " << tokens << " tokens");
      auto in = WkvCall<double>::random(2, tokens, 3, true);
      in.logden.fill(-kInfinity);  // whatever the mean
      auto without = in;
      without.mean = without.logden = Tensor<double>();
      const auto d_o = uniform_tensor<double>(in.v.shape(), 60),
                 d = uniform_tensor<double>(in.mean.shape(), 61);
      const auto given = run(in, by(face, 16), d_o, d, d), none = run(without, by(face, 16), d_o, d, d);
      CHECK(distance(given.o, none.o) <= 1e-15);
      CHECK(distance(given.logden, none.logden) <= 1e-15);
      for (size_t i = 0; i < 4; ++i) CHECK(distance(given.gradients[i], none.gradients[i]) <= 1e-14);
      for (const size_t i : {4, 5}) {
        REQUIRE(given.gradients[i].defined());
        CHECK_FALSE(none.gradients[i].defined());
        for (const double x : given.gradients[i].values()) CHECK(x == 0);
      }
    }
  }
}

}  // namespace
}  // namespace storytape
