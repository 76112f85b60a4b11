// The tape itself: sharing, order, release, errors, depth, memory.
#include "autograd/tape.h"

#include <cmath>
#include <memory>

#include "autograd/ops.h"
#include "autograd/registry.h"
#include "tests/catch.h"
#include "tests/error_message.h"

using namespace storytape;
using storytape::test::message_of;

namespace {

Var<double> scalar(Tape<double>& tape, double x) {
  return tape.input(Tensor<double>(Shape(), x));
}

}  // namespace

TEST_CASE("B043 a value used twice collects both gradients") {
  Tape<double> tape;
  const Var<double> a = scalar(tape, 1);
  const Var<double> b = a + a;
  const Var<double> c = b + b;
  tape.backward(c);
  CHECK(a.grad().item() == 4.0);
}

TEST_CASE("B043 shared products are differentiated once per use") {
  Tape<double> tape;
  const Var<double> x = scalar(tape, 1), a = scalar(tape, 1);
  const Var<double> f = x * (x * a) + (x * x) * a + x * (x * a);
  tape.backward(f);
  CHECK(x.grad().item() == 6.0);
  CHECK(a.grad().item() == 3.0);
}

TEST_CASE("B043 a diamond of 20 levels takes linear time") {
  Tape<double> tape;
  const Var<double> x = scalar(tape, 1);
  Var<double> y = x;
  for (int level = 0; level < 20; ++level) y = y + y;
  CHECK(tape.size() == 21);
  tape.backward(y);
  CHECK(x.grad().item() == 1048576.0);
}

TEST_CASE("x + x and x * x with one variable in both places") {
  Tape<double> tape;
  const Var<double> x = tape.input(Tensor<double>({3}, {1, -2, 0.5}));
  const Var<double> y = sum(x * x + (x + x) - x / x);
  tape.backward(y);
  CHECK(x.grad().to_vector() == std::vector<double>{4, -2, 3});
}

TEST_CASE("B044 backward twice on one tape is an error that says so") {
  Tape<double> tape;
  const Var<double> x = scalar(tape, 3);
  const Var<double> y = x * x;
  tape.backward(y);
  CHECK_THAT(message_of([&] { tape.backward(y); }), Catch::Matchers::Contains("backward ran twice"));
  CHECK(x.grad().item() == 6.0);
  CHECK_THAT(message_of([&] { x* x; }), Catch::Matchers::Contains("reset it before recording again"));
}

TEST_CASE("B044 two losses over one sub-graph give the sum of their gradients in one walk") {
  Tape<double> tape;
  const Var<double> x = scalar(tape, 3);
  const Var<double> shared = x * x;
  const Var<double> losses[] = {scale(shared, 2.0), shared * x};
  const Tensor<double> seeds[] = {Tensor<double>(Shape(), 1.0), Tensor<double>(Shape(), 10.0)};
  tape.backward(losses, seeds);
  CHECK(x.grad().item() == 2 * 2 * 3 + 10 * 3 * 9);
}

TEST_CASE("gradients of a parameter add up over tapes") {
  Parameter<double> w("w", Tensor<double>({2}, {1, 2}));
  for (int round = 0; round < 2; ++round) {
    Tape<double> tape;
    tape.backward(sum(tape.parameter(w) * tape.parameter(w)));
  }
  CHECK(w.grad().to_vector() == std::vector<double>{4, 8});
  w.zero_grad();
  CHECK_FALSE(w.grad().defined());
}

TEST_CASE("B050 a tied weight gets the gradients of both its uses") {
  // Embedding and head share E [vocabulary 7, width 4]; loss = cross-entropy of E[ids]·Eᵀ.
  Parameter<double> e("embedding", example_normal({7, 4}, 3));
  const std::vector<int32_t> ids = {0, 3, 3, 6, 1}, targets = {3, 3, 6, 1, 0};
  const auto loss = [&](Var<double> lookup, Var<double> head) {
    return cross_entropy(
        matmul(gather_rows(lookup, std::span<const int32_t>(ids)), head, Trans::kNo, Trans::kYes),
        std::span<const int32_t>(targets));
  };
  Tape<double> tied;
  const Var<double> both = tied.parameter(e);
  CHECK(&both.value() == &tied.parameter(e).value());
  tied.backward(loss(both, both));

  Tape<double> untied;
  const Var<double> lookup = untied.input(e.value()), head = untied.input(e.value());
  untied.backward(loss(lookup, head));
  double largest = 0;
  for (size_t i = 0; i < e.size(); ++i) {
    const double parts = lookup.grad()[i] + head.grad()[i];
    CHECK(std::as_const(e).grad()[i] == Approx(parts).epsilon(1e-13));
    largest = std::max(largest, std::abs(lookup.grad()[i]));
  }
  CHECK(largest > 0.01);
}

TEST_CASE("a sink takes parameter gradients in its own block") {
  Parameter<double> a("a", Tensor<double>({2}, {1, 2})), b("b", Tensor<double>({1}, {3}));
  b.index = 1;
  std::vector<double> block(4, 0.0);
  const std::vector<size_t> offsets = {0, 3};
  for (int round = 0; round < 2; ++round) {
    Tape<double> tape;
    tape.set_sink({block.data(), offsets});
    tape.backward(sum(tape.parameter(a) * tape.parameter(b)));
  }
  CHECK(block == std::vector<double>{6, 6, 0, 6});
  CHECK_FALSE(a.grad().defined());
}

TEST_CASE("B047 writing to a value after the forward does not reach what an op saved") {
  // Every op that saves its output, or that reads an input in backward: the written tensor takes a buffer of
  // its own.
  Tape<double> tape;
  const Var<double> x = tape.input(Tensor<double>({4}, {0.1, 0.2, 0.3, 0.4}));
  const Var<double> y = exp(x);
  Tensor<double> mine = y.value();
  mine.fill(7);
  Tensor<double> view = y.value().reshape({2, 2}).rows(0, 1);
  view.fill(-1);
  Tensor<double> input = x.value();
  input.fill(100);
  const Var<double> loss = sum(y);
  tape.backward(loss);
  for (size_t i = 0; i < 4; ++i) CHECK(x.grad()[i] == Approx(std::exp(0.1 * static_cast<double>(i + 1))));
}

TEST_CASE("a gradient that is shared between two variables is not changed through one of them") {
  Tape<double> tape;
  const Var<double> a = tape.input(Tensor<double>({2}, {1, 2})), b = tape.input(Tensor<double>({2}, {3, 4}));
  const Var<double> square_of_a = a * a;  // adds to a's gradient after a + b has given both the same tensor
  tape.backward(sum(square_of_a + (a + b)));
  CHECK(a.grad().to_vector() == std::vector<double>{3, 5});
  CHECK(b.grad().to_vector() == std::vector<double>{1, 1});
}

TEST_CASE("a variable of a reset or destroyed tape is refused") {
  auto tape = std::make_unique<Tape<double>>();
  const Var<double> x = scalar(*tape, 1);
  tape->reset();
  CHECK_THAT(message_of([&] { x.value(); }), Catch::Matchers::Contains("reset or destroyed"));
  const Var<double> y = scalar(*tape, 1);
  CHECK_THAT(message_of([&] { add(x, y); }), Catch::Matchers::Contains("reset or destroyed"));
  tape.reset();
  CHECK_THAT(message_of([&] { y.value(); }), Catch::Matchers::Contains("reset or destroyed"));
  // The next tape may lie where the last one lay.
  Tape<double> next;
  scalar(next, 5);
  CHECK_THAT(message_of([&] { y.value(); }), Catch::Matchers::Contains("reset or destroyed"));
}

TEST_CASE("variables of two tapes don't mix, an undefined one is refused") {
  Tape<double> first, second;
  const Var<double> x = scalar(first, 1), y = scalar(second, 1);
  CHECK_THAT(message_of([&] { add(x, y); }), Catch::Matchers::Contains("another tape"));
  CHECK_THAT(message_of([&] { add(Var<double>(), y); }), Catch::Matchers::Contains("undefined"));
}

TEST_CASE("backward refuses what it can't start from") {
  Tape<double> tape;
  const Var<double> x = tape.input(Tensor<double>({2}, {1, 2}));
  CHECK_THAT(message_of([&] { tape.backward(x * x); }), Catch::Matchers::Contains("one element"));
  const Var<double> c = tape.constant(Tensor<double>(Shape(), 1.0));
  CHECK_THAT(message_of([&] { tape.backward(c * c); }), Catch::Matchers::Contains("depends on nothing"));
  const Var<double> outputs[] = {x};
  const Tensor<double> wrong[] = {Tensor<double>({3}, 1.0)};
  CHECK_THAT(message_of([&] { tape.backward(outputs, wrong); }), Catch::Matchers::Contains("[3]"));
}

TEST_CASE("a chain of 100,000 ops is no limit") {
  Tape<float> tape;
  const Var<float> x = tape.input(Tensor<float>({1}, {1.0f}));
  Var<float> y = x;
  for (int i = 0; i < 100000; ++i) y = neg(y);
  tape.backward(y);
  CHECK(x.grad().item() == 1.0f);
}

TEST_CASE("within NoGrad nothing is kept and no gradient is wanted") {
  Tape<double> tape;
  const Var<double> x = scalar(tape, 2);
  {
    const NoGrad no_grad(tape);
    CHECK_FALSE(tape.recording());
    CHECK_FALSE((x * x).requires_grad());
    CHECK_FALSE(scalar(tape, 1).requires_grad());
  }
  const Var<double> y = x * x;
  CHECK(y.requires_grad());
  tape.backward(y);
  CHECK(x.grad().item() == 4.0);
}

TEST_CASE("detach and constants stop gradients") {
  Tape<double> tape;
  const Var<double> x = scalar(tape, 3), c = tape.constant(Tensor<double>(Shape(), 5.0));
  const Var<double> y = x * detach(x * x) + c;
  tape.backward(y);
  CHECK(x.grad().item() == 9.0);
  CHECK_THAT(message_of([&] { c.grad(); }), Catch::Matchers::Contains("no gradient is kept"));
}

TEST_CASE("saved tensors are released as soon as backward is past them") {
  Tape<double> tape;
  const Var<double> x = tape.input(Tensor<double>({2}, {1, 2}));
  const Var<double> y = exp(x);
  const Var<double> loss = sum(y);
  tape.backward(loss);
  CHECK(loss.value().item() == Approx(std::exp(1.0) + std::exp(2.0)));
  CHECK_THAT(message_of([&] { y.value(); }), Catch::Matchers::Contains("released"));
}

TEST_CASE("B059 a tape used again allocates nothing after its first round") {
  Tape<float> tape;
  Parameter<float> w("w", cast<float>(example_normal({64, 64}, 1)));
  const Tensor<float> x = cast<float>(example_normal({32, 64}, 2));
  const auto round = [&] {
    tape.reset();
    Var<float> y = tape.constant(x);
    for (int layer = 0; layer < 5; ++layer) y = y + gelu_tanh(matmul(rms_norm(y), tape.parameter(w)));
    w.zero_grad();
    tape.backward(mean(y * y));
    return y.tape().size();
  };
  const size_t nodes = round();
  round();
  const uint64_t allocations = allocation_count();
  const size_t bytes = pooled_bytes();
  for (int i = 0; i < 200; ++i) CHECK(round() == nodes);
  CHECK(allocation_count() == allocations);
  CHECK(pooled_bytes() == bytes);
}

namespace {

// y = x³, an op of a user's own.
template <class T>
Var<T> cube(Var<T> x) {
  Tensor<T> y(x.shape());
  for (size_t i = 0; i < y.size(); ++i) y[i] = x.value()[i] * x.value()[i] * x.value()[i];
  return x.tape().record("cube", std::move(y), {x}, [x](const Grads<T>& dy) {
    Tensor<T> dx(x.shape());
    for (size_t i = 0; i < dx.size(); ++i) dx[i] = 3 * x.value()[i] * x.value()[i] * dy.one()[i];
    x.accumulate(std::move(dx));
  });
}

// (sin x, cos x), an op with two outputs.
Var<double> sine_and_cosine(Var<double> x, Var<double>& cosine) {
  Tensor<double> values[] = {Tensor<double>(x.shape()), Tensor<double>(x.shape())};
  for (size_t i = 0; i < x.value().size(); ++i) {
    values[0][i] = std::sin(x.value()[i]);
    values[1][i] = std::cos(x.value()[i]);
  }
  Var<double> outs[2];
  x.tape().record_many("sine_and_cosine", values, std::span<const Var<double>>(&x, 1), outs,
                       [x](const Grads<double>& dy) {
                         Tensor<double> dx = Tensor<double>::zeros(x.shape());
                         for (size_t i = 0; i < dx.size(); ++i) {
                           if (dy[0].defined()) dx[i] += std::cos(x.value()[i]) * dy[0][i];
                           if (dy[1].defined()) dx[i] -= std::sin(x.value()[i]) * dy[1][i];
                         }
                         x.accumulate(dx);
                       });
  cosine = outs[1];
  return outs[0];
}

}  // namespace

TEST_CASE("a user's own op takes a few lines") {
  Tape<double> tape;
  const Var<double> x = tape.input(Tensor<double>({3}, {1, -2, 0.5}));
  tape.backward(sum(cube(x) * cube(x)));
  CHECK(x.grad().to_vector() == std::vector<double>{6, -192, 0.1875});
}

TEST_CASE("an op with two outputs sees only the gradients that paths lead to") {
  for (int which = 0; which < 3; ++which) {
    Tape<double> tape;
    const Var<double> x = tape.input(Tensor<double>({2}, {0.3, -1}));
    Var<double> cosine;
    const Var<double> sine = sine_and_cosine(x, cosine);
    const double s = which != 1 ? 1 : 0, c = which != 0 ? 1 : 0;
    Var<double> loss = which == 0 ? sum(sine) : which == 1 ? sum(cosine) : sum(sine + cosine);
    tape.backward(loss);
    for (size_t i = 0; i < 2; ++i) {
      const double a = x.value()[i];
      CHECK(x.grad()[i] == Approx(s * std::cos(a) - c * std::sin(a)));
    }
  }
}
