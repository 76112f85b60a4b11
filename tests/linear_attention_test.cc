// Linear attention where lengths, chunks, pieces and SIMD targets meet. Its faces against each other:
// faces_test.cc; its numbers, gradients and memory: linear_attention_cases_test.cc.
#include <limits>
#include <utility>
#include <vector>

#include "autograd/evaluate.h"
#include "autograd/ops.h"
#include "nn/mixers/kernels/decay.h"
#include "nn/mixers/linear_attention.h"
#include "tensor/random.h"
#include "tests/catch.h"
#include "tests/error_message.h"
#include "tests/kernel_testing.h"
#include "tests/linear_attention_testing.h"
#include "tests/shared.h"
#include "train/verify_operations.h"

namespace storytape {
namespace {

using namespace test;

template <class T>
Tensor<T> piece(const Tensor<T>& x, size_t first, size_t last) {
  Tape<T> tape;
  return slice(tape.constant(x), 1, first, last).value();
}

// The outputs of the pieces one after another through linear_attention_extend, and the state after them.
template <class T>
std::pair<Tensor<T>, State<T>> in_pieces(const Inputs<T>& in, const std::vector<size_t>& lengths) {
  const LinearAttentionOptions options;
  State<T> state = linear_attention_state<T>(in.q.size(0), in.q.size(2), in.q.size(3), in.v.size(3), options);
  Tape<T> tape;
  std::vector<Var<T>> parts;
  size_t first = 0;
  for (const size_t n : lengths) {
    const size_t last = first + n;
    parts.push_back(
        tape.constant(linear_attention_extend(state, piece(in.q, first, last), piece(in.k, first, last),
                                              piece(in.v, first, last), in.gamma, options)));
    first = last;
  }
  return {concat(parts, 1).value(), state};
}

TEST_CASE("linear attention agrees with the golden data on every SIMD target") {
  STORYTAPE_NEED_SHARED(shared);
  OperationOptions options;
  options.only = {"linear_attention", "linear_attention_decay", "linear_attention_identity"};
  on_every_target([&] {
    const std::vector<OperationRow> rows = verify_operations(shared / "golden", options);
    CHECK(rows.size() >= 16 * 2 * 4);  // cases, types, ways
    for (const OperationRow& row : rows) {
      INFO(row.variant << " " << row.case_name << " " << row.face << " " << row.dtype << ": " << row.detail);
      CHECK(row.ok);
    }
  });
}

TEST_CASE("B012 a sequence in pieces is the sequence in one") {
  const auto in = Inputs<double>::random(2, 130, 3, 5, 11, false);
  const auto in32 = Inputs<float>::random(2, 130, 3, 5, 11, false);
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
      CHECK(distance(state["S"], b["S"]) <= 1e-13);
      CHECK(distance(state["z"], b["z"]) <= 1e-13);
      CHECK(state.length == 130);
      const auto [o32, state32] = in_pieces(in32, lengths);
      CHECK(distance(o32, a32) <= 2e-6);
      CHECK(distance(state32["S"], b32["S"]) <= 2e-6);
    }
  });
}

TEST_CASE("B013 the last, incomplete chunk leaves the state of the recurrence") {
  for (size_t tokens = 1; tokens <= 130; ++tokens) {
    INFO(tokens << " tokens");
    const auto in = Inputs<double>::random(1, tokens + 1, 2, 3, 5, false, tokens);
    const auto [one, state] = in_pieces(in, {tokens, 1});
    const auto [all, expected] = in_pieces(in, std::vector<size_t>(tokens + 1, 1));
    CHECK(distance(state["S"], expected["S"]) <= 1e-13);
    CHECK(distance(state["z"], expected["z"]) <= 1e-13);
    CHECK(distance(one, all) <= 1e-13);
  }
}

// The chunkwise or recurrent kernel on arrays between NaN guards, results poisoned; against the parallel
// face.
template <class T>
void check_between_guards(size_t tokens, size_t dk, size_t dv, bool chunkwise, double tolerance) {
  const size_t batch = 2, heads = 3, chunk = 64;
  const DecayShape shape{batch, tokens, heads, dk, dv};
  const size_t queries = batch * tokens * heads * dk, values = batch * tokens * heads * dv;
  const size_t states = batch * heads * dk * dv, norms = batch * heads * dk;
  constexpr T kPoison = std::numeric_limits<T>::quiet_NaN();
  const auto q = random_values<T>(queries, 1), k = random_values<T>(queries, 2),
             v = random_values<T>(values, 3);
  const auto gamma = Guarded<T>({T{0}, T{1}, T{0.75}});
  const auto S0 = random_values<T>(states, 4), z0 = random_values<T>(norms, 5, 0.25, 2);
  const auto d_o = random_values<T>(values, 6), d_S = random_values<T>(states, 7),
             d_z = random_values<T>(norms, 8);
  Guarded<T> o(values, kPoison), S(states, kPoison), z(norms, kPoison),
      denominators(batch * heads * tokens, kPoison);
  const size_t chunks = (tokens + chunk - 1) / chunk;
  Guarded<T> d_q(queries, kPoison), d_k(queries, kPoison), d_v(values, kPoison), d_gamma(heads, kPoison);
  Guarded<T> d_S0(states, kPoison), d_z0(norms, kPoison);

  DecayForward<T> forward{};
  forward.in = {shape,    true,     true,         T{1e-6},   chunk,    q.data(),
                k.data(), v.data(), gamma.data(), S0.data(), z0.data()};
  forward.o = o.data();
  forward.S = S.data();
  forward.z = z.data();
  forward.denominators = denominators.data();
  internal::poison_pool<T>(size_t{1} << 18, 4);
  Tensor<T> records({batch * heads * chunks * decay_record(forward.in)}, kPoison);
  forward.records = records.data();
  chunkwise ? decay_chunkwise_forward(forward) : decay_recurrent_forward(forward);
  internal::poison_pool<T>(size_t{1} << 18, 4);
  DecayBackward<T> backward{};
  backward.in = forward.in;
  backward.o = o.data();
  backward.denominators = denominators.data();
  backward.records = std::as_const(records).data();
  backward.d_o = d_o.data();
  backward.d_S = d_S.data();
  backward.d_z = d_z.data();
  backward.d_q = d_q.data();
  backward.d_k = d_k.data();
  backward.d_v = d_v.data();
  backward.d_gamma = d_gamma.data();
  backward.d_S_init = d_S0.data();
  backward.d_z_init = d_z0.data();
  chunkwise ? decay_chunkwise_backward(backward) : decay_recurrent_backward(backward);

  for (const Guarded<T>* g : {&o, &S, &z, &denominators, &d_q, &d_k, &d_v, &d_gamma, &d_S0, &d_z0})
    CHECK(g->intact());
  const auto tensor = [](const Guarded<T>& g, const Shape& s) {
    return Tensor<T>(s, std::span(g.data(), g.size()));
  };
  const Shape by_q = {batch, tokens, heads, dk}, by_v = {batch, tokens, heads, dv};
  const Shape by_S = {batch, heads, dk, dv}, by_z = {batch, heads, dk};
  const Inputs<T> in{tensor(q, by_q),        tensor(k, by_q),  tensor(v, by_v),
                     tensor(gamma, {heads}), tensor(S0, by_S), tensor(z0, by_z)};
  const Results<T> want =
      run(in, with(Face::kParallel), tensor(d_o, by_v), tensor(d_S, by_S), tensor(d_z, by_z));
  const Results<T> got{tensor(o, by_v),
                       tensor(S, by_S),
                       tensor(z, by_z),
                       {tensor(d_q, by_q), tensor(d_k, by_q), tensor(d_v, by_v), tensor(d_gamma, {heads}),
                        tensor(d_S0, by_S), tensor(d_z0, by_z)}};
  CHECK(distance(got, want) <= tolerance);
}

TEST_CASE("B014 tails read nothing outside and lose no gradient") {
  on_every_target([] {
    for (const size_t tokens : {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129}) {
      for (const bool chunkwise : {false, true}) {
        INFO(tokens << " tokens, " << (chunkwise ? "chunkwise" : "recurrent"));
        check_between_guards<double>(tokens, 5, 11, chunkwise, 1e-13);
        check_between_guards<float>(tokens, 5, 11, chunkwise, 1e-5);
      }
    }
    for (const size_t dk : {1, 3, 8, 16, 17, 33}) {
      INFO("dk " << dk);
      check_between_guards<double>(19, dk, 37 - dk, true, 1e-13);
      check_between_guards<float>(19, 37 - dk, dk, false, 1e-5);
    }
  });
}

TEST_CASE("B015 sequences shorter than a chunk, chunks that don't divide") {
  const auto check = [](size_t batch, size_t tokens, size_t chunk) {
    INFO(batch << " × " << tokens << " tokens, chunk " << chunk);
    const auto in = Inputs<double>::random(batch, tokens, 2, 3, 5, true, tokens);
    const auto d_o = random_tensor<double>(in.v.shape(), 9), d_S = random_tensor<double>(in.S.shape(), 10);
    const auto want = run(in, with(Face::kRecurrent), d_o, d_S);
    CHECK(distance(run(in, with(Face::kChunkwise, chunk), d_o, d_S), want) <= 1e-12);
  };
  for (const size_t batch : {1, 3}) {
    for (size_t tokens = 1; tokens <= 8; ++tokens) {
      for (const size_t chunk : {16, 64, 256}) check(batch, tokens, chunk);
    }
    check(batch, 1334, 83);
  }
  const auto in = Inputs<double>::random(1, 4, 2, 3, 5, false);
  CHECK(message_of([&] { run(in, with(Face::kChunkwise, 0), in.v); }).find("chunk is 0") !=
        std::string::npos);
}

TEST_CASE("B016 the tail of a very long sequence") {
  LinearAttentionOptions options;
  options.phi = FeatureMap::kIdentity;
  options.normalise = false;
  for (const size_t tokens : {65'535, 65'537, 70'001}) {
    for (const size_t chunk : {64, 4096}) {
      options.chunk = chunk;
      const Tensor<float> ones({1, tokens, 1, 8}, 1.0f);
      Inputs<float> in;
      in.q = in.k = in.v = ones;
      Tensor<float> d_o({1, tokens, 1, 8}, 0.0f);
      d_o[tokens * 8 - 1] = 1;  // the last token's last channel
      const auto got = run(in, options, d_o);
      size_t wrong = 0;
      for (size_t i = 0; i < got.o.size(); ++i) wrong += got.o[i] != static_cast<float>(8 * (i / 8 + 1));
      CHECK(wrong == 0);
      // o_T = q_T Σ k_tᵀ v_t: every key and value counts once.
      for (const size_t t : {size_t{0}, size_t{65'534}, tokens - 1}) {
        CHECK(std::as_const(got.gradients[1])[t * 8] == 1);
        CHECK(std::as_const(got.gradients[2])[t * 8 + 7] == 8);
      }
    }
  }
}

}  // namespace
}  // namespace storytape
