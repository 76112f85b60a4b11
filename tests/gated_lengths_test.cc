// The gated mixers where lengths, chunks, pieces and memory meet, under reported faults of others, by name.
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "autograd/evaluate.h"
#include "autograd/ops.h"
#include "nn/mixers/kernels/gated.h"
#include "tensor/buffer.h"
#include "tests/catch.h"
#include "tests/error_message.h"
#include "tests/gated_testing.h"
#include "tests/kernel_testing.h"

namespace storytape {
namespace {

using namespace test;

// The outputs of the pieces one after another through gated_extend, and the state after them.
template <class T>
std::pair<Tensor<T>, State<T>> in_pieces(const GatedCall<T>& call, const std::vector<size_t>& lengths) {
  GatedOptions options;
  options.steps = call.variant.steps;
  State<T> state = gated_state<T>(call.q.size(0), call.q.size(2), call.q.size(3), call.v.size(3));
  if (call.S.defined()) state["S"] = call.S.clone();
  Tape<T> tape;
  std::vector<Var<T>> parts;
  size_t first = 0;
  for (const size_t n : lengths) {
    const auto part = call.tokens(first, first + n);
    parts.push_back(tape.constant(
        gated_extend(call.variant.op, state, part.q, part.k, part.v, part.alpha, part.beta, options)));
    first += n;
  }
  return {concat(parts, 1).value(), state};
}

TEST_CASE("B012 a gated mixer's sequence in pieces is the sequence in one") {
  std::vector<std::vector<size_t>> cuts = {std::vector<size_t>(130, 1), {64, 66}, {63, 67}, {5, 60, 1, 64}};
  Random random(12);
  for (int i = 0; i < 4; ++i) {
    cuts.emplace_back();
    for (size_t left = 130; left > 0; left -= cuts.back().back())
      cuts.back().push_back(1 + random.below(left));
  }
  for (const GatedVariant& variant : kGatedVariants) {
    const auto call = GatedCall<double>::random(variant, 2, 130, 2, 5, 11, true);
    const auto call32 = cast_call<float>(call);
    const auto want = witness_outcome(call);
    on_every_target([&] {
      for (const auto& lengths : cuts) {
        INFO(variant.op << ", pieces " << lengths.size() << ", first " << lengths[0]);
        const auto [o, state] = in_pieces(call, lengths);
        CHECK(distance(o, want.o) <= 1e-12);
        CHECK(distance(state["S"], want.S) <= 1e-12);
        CHECK(state.length == 130);
        const auto [o32, state32] = in_pieces(call32, lengths);
        CHECK(distance(cast<double>(o32), want.o) <= 1e-5);
        CHECK(distance(cast<double>(state32["S"]), want.S) <= 1e-5);
      }
    });
    // The state that is handed in counts.
    auto without = call;
    without.S = Tensor<double>();
    CHECK(distance(in_pieces(without, {130}).first, want.o) > 1e-3);
  }
}

TEST_CASE("B013 the last, incomplete chunk leaves a gated mixer the state of the recurrence") {
  for (const GatedVariant& variant : kGatedVariants) {
    for (size_t tokens = 1; tokens <= 130; ++tokens) {
      INFO(variant.op << ", " << tokens << " tokens");
      const auto call = GatedCall<double>::random(variant, 1, tokens + 1, 1, 3, 5, false, tokens);
      const auto prefix = call.tokens(0, tokens);
      const auto chunkwise = run(prefix, gated(Face::kChunkwise, 64)),
                 recurrent = run(prefix, gated(Face::kRecurrent));
      CHECK(distance(chunkwise.S, recurrent.S) <= 1e-12);
      auto next = call.tokens(tokens, tokens + 1);
      next.S = chunkwise.S;
      CHECK(distance(run(next, gated(Face::kRecurrent)).S, run(call, gated(Face::kRecurrent)).S) <= 1e-12);
    }
  }
}

// n values whose end is the end of a page, before one that must not be touched.
template <class T>
class BeforePage {
 public:
  explicit BeforePage(size_t n) : n_(n) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    readable_ = (n * sizeof(T) + page - 1) / page * page;
    bytes_ = readable_ + page;
    start_ =
        static_cast<char*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (start_ == MAP_FAILED || mprotect(start_ + readable_, page, PROT_NONE) != 0) fail("no memory");
    std::fill_n(data(), n, std::numeric_limits<T>::quiet_NaN());
  }
  explicit BeforePage(const Tensor<T>& values) : BeforePage(values.size()) {
    std::copy_n(values.data(), n_, data());
  }
  BeforePage(const BeforePage&) = delete;
  BeforePage& operator=(const BeforePage&) = delete;
  ~BeforePage() { munmap(start_, bytes_); }
  T* data() const { return n_ ? reinterpret_cast<T*>(start_ + readable_) - n_ : nullptr; }
  Tensor<T> tensor(const Shape& shape) const {
    return n_ ? Tensor<T>(shape, std::span<const T>(data(), n_)) : Tensor<T>();
  }

 private:
  size_t n_, readable_, bytes_;
  char* start_;
};

// The kernels on arrays in storage of this kind, results poisoned and scratch memory too; what they give.
template <template <class> class Storage, class T>
GatedOutcome<T> run_kernels(const GatedCall<T>& call, bool chunkwise, const Tensor<T>& d_o,
                            const Tensor<T>& d_S) {
  const size_t chunk = 64, chunks = (call.q.size(1) + chunk - 1) / chunk;
  const Storage<T> q(call.q), k(call.k), v(call.v), alpha(call.alpha), beta(call.beta), S0(call.S), d_o_(d_o),
      d_S_(d_S);
  Storage<T> o(d_o.size()), S(d_S.size()), records(chunks * d_S.size());
  Storage<T> d_q(call.q.size()), d_k(call.k.size()), d_v(call.v.size()), d_alpha(call.alpha.size()),
      d_beta(call.beta.size()), d_S0(call.S.size());
  const GatedShape shape{call.q.size(0), call.q.size(1), call.variant.steps,
                         call.q.size(2), call.q.size(3), call.v.size(3)};
  GatedForward<T> forward{};
  forward.in = {shape,        call.variant.gate, std::min(chunk, call.q.size(1)),
                q.data(),     k.data(),          v.data(),
                alpha.data(), beta.data(),       S0.data()};
  forward.o = o.data();
  forward.S = S.data();
  forward.records = records.data();
  internal::poison_pool<T>(size_t{1} << 16, 4);
  chunkwise ? gated_chunkwise_forward(forward) : gated_recurrent_forward(forward);
  GatedBackward<T> backward{};
  backward.in = forward.in;
  backward.records = records.data();
  backward.d_o = d_o_.data();
  backward.d_S = d_S_.data();
  backward.d_q = d_q.data();
  backward.d_k = d_k.data();
  backward.d_v = d_v.data();
  backward.d_alpha = d_alpha.data();
  backward.d_beta = d_beta.data();
  backward.d_S_init = d_S0.data();
  internal::poison_pool<T>(size_t{1} << 16, 4);
  chunkwise ? gated_chunkwise_backward(backward) : gated_recurrent_backward(backward);
  const auto shape_of = [](const Tensor<T>& t) { return t.defined() ? t.shape() : Shape{0}; };
  return {o.tensor(d_o.shape()),
          S.tensor(d_S.shape()),
          {d_q.tensor(call.q.shape()), d_k.tensor(call.k.shape()), d_v.tensor(call.v.shape()),
           d_alpha.tensor(shape_of(call.alpha)), d_beta.tensor(shape_of(call.beta)),
           d_S0.tensor(call.S.shape())}};
}

// Between NaN guards, checked when it goes.
template <class T>
class BetweenGuards {
 public:
  explicit BetweenGuards(size_t n) : values_(n, std::numeric_limits<T>::quiet_NaN()) {}
  explicit BetweenGuards(const Tensor<T>& values) : values_(values.to_vector()) {}
  ~BetweenGuards() { CHECK(values_.intact()); }
  T* data() const { return values_.size() ? const_cast<T*>(values_.data()) : nullptr; }
  Tensor<T> tensor(const Shape& shape) const {
    return values_.size() ? Tensor<T>(shape, std::span<const T>(values_.data(), values_.size()))
                          : Tensor<T>();
  }

 private:
  Guarded<T> values_;
};

template <template <class> class Storage, class T>
void check_kernels(const GatedVariant& variant, size_t tokens, size_t dk, size_t dv, double tolerance) {
  const auto call = GatedCall<T>::random(variant, 2, tokens, 2, dk, dv, true, tokens);
  const auto d_o = random_tensor<T>(call.output_shape(), 90), d_S = random_tensor<T>(call.state_shape(), 91);
  const auto want = run(call, gated(Face::kParallel), d_o, d_S);
  for (const bool chunkwise : {false, true}) {
    INFO(variant.op << ", " << tokens << " tokens, dk " << dk << ", dv " << dv
                    << (chunkwise ? ", chunkwise" : ", recurrent"));
    CHECK(distance(run_kernels<Storage>(call, chunkwise, d_o, d_S), want) <= tolerance);
  }
}

TEST_CASE("B014 a gated mixer's tails read nothing outside and lose no gradient") {
  on_every_target([] {
    for (const GatedVariant& variant : kGatedVariants) {
      for (const size_t tokens : {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129}) {
        if (tokens > 65 && variant.gate == GateKind::kVector && tokens != 129) continue;  // O(T²·d) to check
        check_kernels<BetweenGuards, double>(variant, tokens, 5, 11, 1e-11);
      }
      check_kernels<BetweenGuards, float>(variant, 65, 5, 11, 1e-4);
      for (const size_t dk : {1, 8, 17, 33}) {
        check_kernels<BetweenGuards, double>(variant, 19, dk, 37 - dk, 1e-11);
        check_kernels<BetweenGuards, float>(variant, 19, 37 - dk, dk, 1e-4);
      }
    }
  });
}

TEST_CASE("B126 a gated mixer's kernels load nothing behind the end of an array") {
  on_every_target([] {
    for (const GatedVariant& variant : kGatedVariants) {
      for (size_t n = 1; n <= 17; ++n) check_kernels<BeforePage, float>(variant, n, 1 + n % 5, 18 - n, 1e-4);
      check_kernels<BeforePage, double>(variant, 65, 7, 3, 1e-11);
      check_kernels<BeforePage, float>(variant, 17, 32, 16, 1e-4);
    }
  });
}

TEST_CASE("B015 gated sequences shorter than a chunk, chunks that don't divide") {
  const auto check = [](const GatedVariant& variant, size_t batch, size_t tokens, size_t chunk) {
    INFO(variant.op << ", " << batch << " × " << tokens << " tokens, chunk " << chunk);
    const auto call = GatedCall<double>::random(variant, batch, tokens, 2, 3, 5, true, tokens);
    const auto d_o = random_tensor<double>(call.output_shape(), 9),
               d_S = random_tensor<double>(call.state_shape(), 10);
    CHECK(distance(run(call, gated(Face::kChunkwise, chunk), d_o, d_S),
                   run(call, gated(Face::kRecurrent), d_o, d_S)) <= 1e-11);
  };
  for (const GatedVariant& variant : kGatedVariants) {
    for (const size_t batch : {1, 3}) {
      for (size_t tokens = 1; tokens <= 8; ++tokens) {
        for (const size_t chunk : {16, 64, 256}) check(variant, batch, tokens, chunk);
      }
      check(variant, batch, 1334, 83);
    }
    const auto call = GatedCall<double>::random(variant, 1, 4, 2, 3, 5, false);
    const std::string message = message_of([&] { run(call, gated(Face::kChunkwise, 0)); });
    CHECK(message.find("the chunk is 0 tokens long, wanted at least 1") != std::string::npos);
  }
  // More writes per token than a tile has rows.
  check({"gated_delta_product", GateKind::kScalar, true, 19}, 2, 5, 3);
}

TEST_CASE("B016 the tail of a very long gated sequence") {
  constexpr size_t kDim = 8;
  for (const size_t tokens : {65'535, 65'536, 65'537, 70'001}) {
    for (const GatedVariant& variant : kGatedVariants) {
      INFO(variant.op << ", " << tokens << " tokens");
      const size_t writes = tokens * variant.steps;
      GatedCall<float> call{variant,
                            Tensor<float>({1, tokens, 1, kDim}, 1),
                            Tensor<float>({1, writes, 1, kDim}, 1),
                            Tensor<float>({1, writes, 1, kDim}, 1),
                            {},
                            {},
                            {}};
      if (variant.gate == GateKind::kScalar) call.alpha = Tensor<float>({1, tokens, 1}, 1);
      if (variant.gate == GateKind::kVector) call.alpha = Tensor<float>({1, tokens, 1, kDim}, 1);
      if (variant.delta) {
        // Unit keys of √(1/8), values of 1: the state comes to v/√8 and every read to 8/√8.
        call.k.fill(std::sqrt(0.125f));
        call.beta = Tensor<float>({1, writes, 1}, 0.5f);
      }
      const auto got = run(call, gated(Face::kChunkwise));
      size_t wrong = 0;
      for (size_t t = 0; t < tokens; ++t) {
        for (size_t i = 0; i < kDim; ++i) {
          const float o = got.o[t * kDim + i];
          const double left = std::pow(0.5, static_cast<double>((t + 1) * variant.steps));
          wrong += variant.delta ? !(std::abs(o - std::sqrt(8.0) * (1 - left)) <= 1e-4)
                                 : o != static_cast<float>(kDim * (t + 1));
        }
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("B137 a gated mixer's training memory is activations and a state per chunk") {
  constexpr size_t kHeads = 2, kDim = 64, kChunk = 64;
  for (const GatedVariant& variant : kGatedVariants) {
    for (const Face face : {Face::kRecurrent, Face::kChunkwise}) {
      INFO(variant.op << ", " << to_string(face));
      std::vector<double> peak;
      const std::vector<size_t> lengths = {128, 256, 512, 1024, 2048};
      for (const size_t tokens : lengths) {
        const auto call = GatedCall<float>::random(variant, 1, tokens, kHeads, kDim, kDim, false);
        const auto d_o = random_tensor<float>(call.output_shape(), 9);
        trim_pool();
        const size_t before = pooled_bytes();
        run(call, gated(face, kChunk), d_o);
        peak.push_back(static_cast<double>(pooled_bytes() - before));  // nothing goes back meanwhile
      }
      // Per token: o, its gradient, those of q, of the writes' k and v and of the gates; a chunk's share of a state.
      // Half as much again for the pool's steps; a state per token would be 64 times the share.
      const double writes = static_cast<double>(variant.steps);
      const double gates = variant.gate == GateKind::kVector ? kDim : 1;
      const double activations = kHeads * sizeof(float) * ((3 + 2 * writes) * kDim + gates + writes);
      const double state = kHeads * kDim * kDim * sizeof(float) / kChunk;
      const double slope =
          (peak.back() - peak.front()) / static_cast<double>(lengths.back() - lengths.front());
      CHECK(slope <= 1.5 * (activations + state) + 64);
      CHECK(slope > 0);
    }
  }
}

}  // namespace
}  // namespace storytape
