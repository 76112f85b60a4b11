// The short convolution held against its definition; its state handed on anywhere gives what one pass gives.
#include "nn/short_convolution.h"

#include <cmath>
#include <string>
#include <vector>

#include "autograd/ops_shape.h"
#include "tensor/index.h"
#include "tests/error_message.h"
#include "tests/kernel_testing.h"

namespace storytape {
namespace {

template <class T>
Tensor<T> normal(const Shape& shape, uint64_t seed) {
  Random random(seed);
  Tensor<T> t(shape);
  for (T& x : t.values()) x = static_cast<T>(static_cast<float>(random.normal()));
  return t;
}

template <class T>
struct Inputs {
  Tensor<T> x, w, b, state, dy, d_state;
  Inputs(size_t batch, size_t tokens, size_t channels, size_t width, uint64_t seed)
      : x(normal<T>({batch, tokens, channels}, seed)),
        w(normal<T>({channels, width}, seed + 1)),
        b(normal<T>({channels}, seed + 2)),
        state(normal<T>({batch, width - 1, channels}, seed + 3)),
        dy(normal<T>({batch, tokens, channels}, seed + 4)),
        d_state(normal<T>({batch, width - 1, channels}, seed + 5)) {}
};

// y of (C1) and (C2).
template <class T>
std::vector<long double> by_definition(const Inputs<T>& in, bool silu) {
  const size_t tokens = in.x.size(1), channels = in.x.size(2), width = in.w.size(1);
  std::vector<long double> y;
  for (size_t i = 0; i < in.x.size(); ++i) {
    const size_t c = i % channels, t = i / channels % tokens, b = i / channels / tokens;
    long double z = in.b[c];
    for (size_t j = 0; j < width; ++j) {
      const size_t e = t + j;
      const long double row = e < width - 1 ? in.state[(b * (width - 1) + e) * channels + c]
                                            : in.x[(b * tokens + e - width + 1) * channels + c];
      z += row * in.w[c * width + j];
    }
    y.push_back(silu ? z / (1 + std::exp(-z)) : z);
  }
  return y;
}

// max |a - b|; infinite for unequal shapes and NaN, 0 for two tensors without values.
template <class T>
double difference(const Tensor<T>& a, const Tensor<T>& b) {
  if (!(a.shape() == b.shape())) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(d <= worst)) worst = std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
  }
  return worst;
}

struct Results {
  Tensor<double> y, state, dx, dw, db, d_state;
};

// The sequence in pieces that end at `ends`, the state handed on, all on one tape.
Results run(const Inputs<double>& in, const std::vector<size_t>& ends) {
  Tape<double> tape;
  const Var<double> x = tape.input(in.x), w = tape.input(in.w), b = tape.input(in.b),
                    initial = tape.input(in.state);
  Var<double> state = initial;
  std::vector<Var<double>> parts;
  size_t first = 0;
  for (const size_t end : ends) {
    const auto result = short_convolution(slice(x, 1, first, end), w, b, state);
    parts.push_back(result.y);
    state = result.state;
    first = end;
  }
  const Var<double> outputs[] = {concat(parts, 1), state};
  const Tensor<double> cotangents[] = {in.dy, in.d_state};
  const Results values{outputs[0].value(), state.value(), {}, {}, {}, {}};
  tape.backward(std::span<const Var<double>>(outputs), std::span<const Tensor<double>>(cotangents));
  return {values.y, values.state, x.grad(), w.grad(), b.grad(), initial.grad()};
}

}  // namespace

TEST_CASE("the short convolution is its definition for every width and channel count, on every target") {
  test::on_every_target([] {
    for (const size_t channels : {1, 3, 8, 16, 37}) {
      for (const size_t width : {1, 2, 3, 4, 9}) {
        for (const bool silu : {false, true}) {
          INFO(channels << " channels, width " << width);
          const Inputs<float> in(2, 6, channels, width, 10 * channels + width);
          const Inputs<double> exact(2, 6, channels, width, 10 * channels + width);
          Tape<float> tape;
          const auto y = short_convolution(tape.constant(in.x), tape.constant(in.w), tape.constant(in.b),
                                           tape.constant(in.state), {silu});
          CHECK(test::all_close(y.y.value().data(), by_definition(in, silu), 2e-6));
          Tape<double> tape64;
          const auto y64 = short_convolution(tape64.constant(exact.x), tape64.constant(exact.w),
                                             tape64.constant(exact.b), tape64.constant(exact.state), {silu});
          CHECK(test::all_close(y64.y.value().data(), by_definition(exact, silu), 1e-14));
        }
      }
    }
  });
}

TEST_CASE("cut anywhere, the state handed on, a sequence gives one pass's outputs, state and gradients") {
  constexpr size_t kTokens = 9;
  for (const size_t width : {1, 2, 4, 6}) {
    const Inputs<double> in(2, kTokens, 5, width, 70 + width);
    const Results whole = run(in, {kTokens});
    const std::vector<std::vector<size_t>> cuts = {
        {1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 9}, {8, 9}, {2, 3, 7, 9}, {4, 5, 9}};
    for (const auto& ends : cuts) {
      INFO("width " << width << ", " << ends.size() << " pieces, the first of " << ends[0]);
      const Results pieces = run(in, ends);
      CHECK(difference(pieces.y, whole.y) <= 1e-15);
      CHECK(difference(pieces.state, whole.state) == 0);
      CHECK(difference(pieces.dx, whole.dx) <= 1e-14);
      CHECK(difference(pieces.dw, whole.dw) <= 1e-14);
      CHECK(difference(pieces.db, whole.db) <= 1e-14);
      CHECK(difference(pieces.d_state, whole.d_state) <= 1e-14);
    }
  }
}

TEST_CASE("decoding by the state gives the same bits as one pass, and a copied state is a snapshot") {
  for (const size_t width : {1, 2, 4, 6}) {
    INFO("width " << width);
    Inputs<float> in(2, 12, 19, width, 80 + width);
    State<float> state = short_convolution_state<float>(2, 19, width);
    CHECK(state.bytes() == 2 * (width - 1) * 19 * sizeof(float));
    std::vector<Tensor<float>> parts;
    State<float> snapshot;
    for (const auto& [first, last] : {std::pair<size_t, size_t>{0, 2}, {2, 3}, {3, 4}, {4, 11}, {11, 12}}) {
      if (first == 4) snapshot = state;
      parts.push_back(short_convolution_extend(state, slice(in.x, 1, first, last), in.w, in.b));
    }
    CHECK(state.length == 12);
    Tape<float> tape;
    const auto whole = short_convolution(tape.constant(in.x), tape.constant(in.w), tape.constant(in.b));
    CHECK(difference(concat(std::span<const Tensor<float>>(parts), 1), whole.y.value()) == 0);
    CHECK(difference(std::as_const(state)["rows"], whole.state.value()) == 0);
    CHECK(snapshot.length == 4);
    CHECK(difference(short_convolution_extend(snapshot, slice(in.x, 1, 4, 12), in.w, in.b),
                     slice(whole.y.value(), 1, 4, 12)) == 0);
  }
}

TEST_CASE("a token reaches itself and the width - 1 tokens after it, no other and no other channel") {
  const Inputs<double> in(1, 10, 3, 4, 90);
  Inputs<double> changed = in;
  changed.x = in.x.clone();
  changed.x[4 * 3 + 1] += 1;
  const auto outputs = [](const Inputs<double>& of) {
    Tape<double> tape;
    return short_convolution(tape.constant(of.x), tape.constant(of.w)).y.value();
  };
  const Tensor<double> before = outputs(in), after = outputs(changed);
  for (size_t i = 0; i < before.size(); ++i) {
    const bool reached = i % 3 == 1 && i / 3 >= 4 && i / 3 < 8;
    CHECK((before[i] != after[i]) == reached);
  }
}

TEST_CASE(
    "only the wanted gradients of the short convolution are made, and nothing is asked of a state unseen") {
  const Inputs<double> in(2, 5, 3, 4, 95);
  const Results all = run(in, {5});
  Tape<double> tape;
  const Var<double> state = tape.input(in.state);
  const auto result = short_convolution(tape.constant(in.x), tape.constant(in.w), tape.constant(in.b), state);
  // No path from y.
  tape.backward(std::span<const Var<double>>(&result.state, 1),
                std::span<const Tensor<double>>(&in.d_state, 1));
  for (const double d : state.grad().to_vector()) CHECK(d == 0);  // 5 tokens have pushed all of it out
  CHECK(difference(all.d_state, state.grad()) > 0);
}

TEST_CASE("a short convolution that doesn't fit is refused by name and leaves its state") {
  const auto refuse = [](auto call, const std::string& words) {
    const std::string message = test::message_of(call);
    INFO(message);
    CHECK(message.find(words) != std::string::npos);
  };
  Tape<float> tape;
  const auto ones = [&](const Shape& shape) { return tape.input(Tensor<float>(shape, 1.0f)); };
  const Var<float> x = ones({2, 5, 3}), w = ones({3, 4});
  refuse([&] { short_convolution(ones({5, 3}), w); }, "x wants 3 axes [batch, tokens, channels], got [5, 3]");
  refuse([&] { short_convolution(x, ones({3, 0})); }, "the width 0; wanted at least 1");
  refuse([&] { short_convolution(x, ones({4, 3})); }, "x [2, 5, 3] wants w [3, width], got [4, 3]");
  refuse([&] { short_convolution(x, w, ones({4})); }, "the bias is [4], wanted [3]");
  refuse(
      [&] {
        short_convolution(x, w, Var<float>(), ones({2, 4, 3}));
      },
      "the state is [2, 4, 3], wanted [2, 3, 3]");
  refuse(
      [&] {
        short_convolution(x, w, Var<float>(), ones({1, 3, 3}));
      },
      "the state is [1, 3, 3], wanted [2, 3, 3]");
  refuse([] { short_convolution_state<float>(1, 3, 0); }, "the width is 0");

  State<float> state = short_convolution_state<float>(2, 3, 4);
  refuse(
      [&] {
        short_convolution_extend(state, Tensor<float>({2, 1, 4}, 1.0f), Tensor<float>({4, 4}, 1.0f));
      },
      "the state is [2, 3, 3], wanted [2, 3, 4]");
  CHECK(state.length == 0);
  for (const float value : std::as_const(state)["rows"].to_vector()) CHECK(value == 0);
}

}  // namespace storytape
