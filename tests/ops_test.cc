// What single ops promise beside their gradients: shapes, extremes, ties, refusals.
#include "autograd/ops.h"

#include <cmath>
#include <limits>

#include "autograd/evaluate.h"
#include "autograd/gradcheck.h"
#include "tests/catch.h"
#include "tests/error_message.h"

using namespace storytape;
using storytape::test::message_of;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

template <class T>
Var<T> loss_of(Var<T> logits, const std::vector<int32_t>& targets) {
  return cross_entropy(logits, std::span<const int32_t>(targets));
}

template <class T>
bool all_finite_values(const Tensor<T>& t) {
  for (const T x : t.values()) {
    if (!std::isfinite(x)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("B046 a broadcast operand gets a gradient of its own shape, summed over what was repeated") {
  struct Pair {
    Shape a, b;
  };
  const Pair pairs[] = {
      {{3, 4}, {1, 4}}, {{3, 4}, {4}}, {{3, 4}, {3, 1}}, {{4, 1}, {1, 4}}, {{2, 1, 4, 64}, {2, 1, 4, 1}},
      {{}, {5}},        {{1}, {1}},    {{0, 3}, {3}},    {{2, 0}, {1}},    {{3, 1, 1}, {2, 5}}};
  for (const auto& [a_shape, b_shape] : pairs) {
    INFO(to_string(a_shape) << " and " << to_string(b_shape));
    const Tensor<double> a_value = example_normal(a_shape, 1), b_value = example_uniform(b_shape, 2, 1, 2);
    const Shape big = broadcast(a_shape, b_shape);
    for (int op = 0; op < 4; ++op) {
      Tape<double> tape;
      const Var<double> a = tape.input(a_value), b = tape.input(b_value);
      const Var<double> y = op == 0 ? a + b : op == 1 ? a - b : op == 2 ? a * b : a / b;
      REQUIRE(y.shape() == big);
      const Tensor<double> dy = example_normal(big, 3);
      tape.backward(std::span<const Var<double>>(&y, 1), std::span<const Tensor<double>>(&dy, 1));
      REQUIRE(a.grad().shape() == a_shape);
      REQUIRE(b.grad().shape() == b_shape);
      // The full gradients, summed here index by index.
      std::vector<double> da(a_value.size()), db(b_value.size());
      for (size_t i = 0; i < big.elements(); ++i) {
        size_t ia = 0, ib = 0, sa = 1, sb = 1, rest = i;
        for (size_t axis = 0; axis < big.rank(); ++axis) {
          const size_t at = rest % big.back(axis);
          rest /= big.back(axis);
          if (axis < a_shape.rank()) ia += a_shape.back(axis) == 1 ? 0 : at * sa, sa *= a_shape.back(axis);
          if (axis < b_shape.rank()) ib += b_shape.back(axis) == 1 ? 0 : at * sb, sb *= b_shape.back(axis);
        }
        const double x = a_value[ia], z = b_value[ib];
        da[ia] += dy[i] * (op < 2 ? 1 : op == 2 ? z : 1 / z);
        db[ib] += dy[i] * (op == 0 ? 1 : op == 1 ? -1 : op == 2 ? x : -x / (z * z));
      }
      for (size_t i = 0; i < da.size(); ++i) CHECK(std::as_const(a.grad())[i] == Approx(da[i]).margin(1e-13));
      for (size_t i = 0; i < db.size(); ++i) CHECK(std::as_const(b.grad())[i] == Approx(db[i]).margin(1e-13));
    }
  }
  Tape<double> tape;
  const Var<double> a = tape.input(example_normal({3, 4}, 1)), b = tape.input(example_normal({3}, 1));
  CHECK(message_of([&] { add(a, b); }).find("[3, 4]") != std::string::npos);
}

TEST_CASE("B047 for every op: writing to its values after the forward changes no gradient") {
  register_basic_ops();
  for (const GradCase& c : gradient_cases()) {
    INFO(c.name());
    std::vector<Tensor<double>> grads[2];
    for (const bool write : {false, true}) {
      Tape<double> tape;
      std::vector<Var<double>> vars;
      for (const NamedInput& input : c.inputs) vars.push_back(tape.input(input.value.clone()));
      const std::vector<Var<double>> outputs = c.run64(tape, vars);
      std::vector<Tensor<double>> seeds;
      for (const Var<double>& y : outputs) seeds.push_back(example_normal(y.shape(), 9));
      if (write) {
        for (const std::vector<Var<double>>* list :
             {&outputs, static_cast<const std::vector<Var<double>>*>(&vars)}) {
          for (const Var<double>& v : *list) {
            Tensor<double> mine = v.value();
            mine.fill(77);
            Tensor<double> view = v.value().reshape({v.value().size()});
            view.fill(-5);
          }
        }
      }
      tape.backward(outputs, seeds);
      for (const Var<double>& x : vars) grads[write].push_back(x.grad());
    }
    for (size_t i = 0; i < grads[0].size(); ++i) CHECK(internal::same_bits(grads[0][i], grads[1][i]));
  }
}

TEST_CASE("B049 the branch that was not chosen gives no gradient, whatever overflowed there") {
  Tape<double> tape;
  const Var<double> a = tape.input(Tensor<double>({3}, {1000, -2, 1e4}));
  const Tensor<double> negative({3}, {0, 1, 0});
  tape.backward(sum(select(negative, exp(a), add_constant(a, 1))));
  CHECK(a.grad()[0] == 1.0);
  CHECK(a.grad()[1] == Approx(std::exp(-2.0)));
  CHECK(a.grad()[2] == 1.0);

  Tape<double> logs;
  const Var<double> x = logs.input(Tensor<double>({2}, {0, 3}));
  logs.backward(sum(select(Tensor<double>({2}, {0, 1}), log(x), scale(x, 5))));
  CHECK(x.grad()[0] == 5.0);
  CHECK(x.grad()[1] == Approx(1.0 / 3));

  Tape<double> quotients;
  const Var<double> a0 = quotients.input(Tensor<double>({2}, {3, 3})),
                    b0 = quotients.input(Tensor<double>({2}, {0, 2}));
  quotients.backward(sum(select(Tensor<double>({2}, {0, 1}), a0 / b0 * reciprocal(b0) + sqrt(b0), neg(b0))));
  CHECK(a0.grad().to_vector() == std::vector<double>{0, 0.25});
  CHECK(b0.grad()[0] == -1.0);
  CHECK(b0.grad()[1] == Approx(-2 * 3.0 / 8 + 0.5 / std::sqrt(2.0)));
}

TEMPLATE_TEST_CASE("B049 activations are finite at any size, with the gradient of their own branch", "",
                   float, double) {
  using T = TestType;
  using Function = Var<T> (*)(Var<T>);
  const Function functions[] = {elu_plus_one<T>, softplus<T>, log_sigmoid<T>, sigmoid<T>,
                                silu<T>,         gelu_erf<T>, gelu_tanh<T>,   tanh<T>};
  // Slopes at -1e4 and 1e4.
  const T slopes[][2] = {{0, 1}, {0, 1}, {1, 0}, {0, 0}, {0, 1}, {0, 1}, {0, 1}, {0, 0}};
  for (size_t f = 0; f < std::size(functions); ++f) {
    INFO("function " << f);
    Tape<T> tape;
    const Var<T> x = tape.input(Tensor<T>({2}, {T(-1e4), T(1e4)}));
    const Var<T> y = functions[f](x);
    CHECK(all_finite_values(y.value()));
    tape.backward(sum(y));
    CHECK(x.grad()[0] == slopes[f][0]);
    CHECK(x.grad()[1] == slopes[f][1]);
  }
}

TEMPLATE_TEST_CASE("B031 a loss with every target ignored is 0 with gradient 0", "", float, double) {
  using T = TestType;
  Tape<T> tape;
  const Var<T> logits = tape.input(Tensor<T>({2, 3}, {1, 2, 3, T(kInf), 0, 1}));
  const Var<T> loss = loss_of(logits, {kIgnoreTarget, kIgnoreTarget});
  CHECK(loss.value().item() == T{0});
  tape.backward(loss);
  for (const T d : logits.grad().values()) CHECK(d == T{0});
  // Beside a batch that counts.
  Tape<T> both;
  const Var<T> padded = both.input(Tensor<T>({1, 3}, {1, 2, 3})),
               counted = both.input(Tensor<T>({1, 2}, {0, 0}));
  const Var<T> total = loss_of(padded, {kIgnoreTarget}) + loss_of(counted, {1});
  CHECK(total.value().item() == Approx(std::log(2.0)));
  both.backward(total);
  CHECK(padded.grad()[0] == T{0});
  CHECK(counted.grad()[1] == Approx(-0.5));
  // No rows at all.
  Tape<T> none;
  CHECK(loss_of(none.input(Tensor<T>({0, 3})), {}).value().item() == T{0});
}

TEST_CASE("B032 a target outside the classes is refused with position and value") {
  Tape<double> tape;
  const Var<double> logits = tape.input(example_normal({3, 5}, 1));
  for (const int32_t bad :
       {-4, -1, 5, 6, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
    const std::string message = message_of([&] { loss_of(logits, {0, bad, 1}); });
    INFO(message);
    CHECK(message.find(std::to_string(bad)) != std::string::npos);
    CHECK(message.find("position 1") != std::string::npos);
    CHECK(message.find("5") != std::string::npos);
  }
  CHECK(message_of([&] { loss_of(logits, {0, 1}); }).find("2 targets") != std::string::npos);
  // -100 is an id like any other where something else is ignored.
  const std::vector<int32_t> targets = {0, -100, 1};
  CHECK_FALSE(message_of([&] { cross_entropy(logits, std::span<const int32_t>(targets), -1); }).empty());
}

TEMPLATE_TEST_CASE("B033 log-sum-exp and cross-entropy of huge and infinite logits", "", float, double) {
  using T = TestType;
  const T inf = std::numeric_limits<T>::infinity();
  const auto lse = [](std::vector<T> x) {
    Tape<T> tape;
    return log_sum_exp(tape.input(Tensor<T>({x.size()}, std::span<const T>(x)))).value().item();
  };
  CHECK(lse({4, 5, 6}) == Approx(6.407606));
  CHECK(lse({inf, 2, 3}) == inf);
  CHECK(lse({-inf, 2, -inf}) == T{2});
  CHECK(lse({-inf, -inf}) == -inf);
  CHECK(lse({10000, 0, 0}) == T{10000});
  CHECK(lse({-10000, -10000}) == Approx(-10000 + std::log(2.0)));

  for (const int32_t target : {0, 1}) {
    Tape<T> tape;
    const Var<T> logits = tape.input(Tensor<T>({1, 3}, {10000, 0, -inf}));
    const Var<T> loss = loss_of(logits, {target});
    CHECK(loss.value().item() == (target == 0 ? T{0} : T{10000}));
    tape.backward(loss);
    CHECK(all_finite_values(logits.grad()));
    CHECK(logits.grad()[0] + logits.grad()[1] + logits.grad()[2] == T{0});
    CHECK(logits.grad()[1] == (target == 0 ? T{0} : T{-1}));
    CHECK(logits.grad()[2] == T{0});
  }
  // A row of -inf alone passes no gradient on.
  Tape<T> masked;
  const Var<T> x = masked.input(Tensor<T>({2, 2}, {-inf, -inf, 1, 1}));
  masked.backward(sum(slice(log_sum_exp(x), 0, 1, 2)));
  CHECK(x.grad().to_vector() == std::vector<T>{0, 0, T(0.5), T(0.5)});
}

TEMPLATE_TEST_CASE("B028 a row of -inf alone passes no gradient through log_softmax and cross-entropy", "",
                   float, double) {
  using T = TestType;
  const T inf = std::numeric_limits<T>::infinity();
  const Tensor<T> values({3, 2}, {1, 2, -inf, -inf, 3, 3}), seen({2, 2}, {1, 2, 3, 3});
  const Tensor<T> dy({3, 2}, {2, -1, 5, 7, 1, 4}), dy_seen({2, 2}, {2, -1, 1, 4});
  const auto pulled = [](const Tensor<T>& x, const Tensor<T>& cotangent) {
    Tape<T> tape;
    const Var<T> in = tape.input(x), y = log_softmax(in);
    tape.backward(std::span<const Var<T>>(&y, 1), std::span<const Tensor<T>>(&cotangent, 1));
    return std::pair(y.value().to_vector(), in.grad().to_vector());
  };
  auto [y, dx] = pulled(values, dy);
  CHECK((y[2] == -inf && y[3] == -inf));
  CHECK((dx[2] == 0 && dx[3] == 0));
  for (std::vector<T>* rows : {&y, &dx}) rows->erase(rows->begin() + 2, rows->begin() + 4);
  CHECK(std::pair(y, dx) == pulled(seen, dy_seen));

  Tape<T> tape;
  const Var<T> logits = tape.input(values);
  const Var<T> loss = loss_of(logits, {1, 0, 0});
  CHECK(loss.value().item() == inf);
  tape.backward(loss);
  CHECK((logits.grad()[2] == 0 && logits.grad()[3] == 0));
  CHECK((logits.grad()[4] == Approx(-0.5 / 3) && logits.grad()[5] == Approx(0.5 / 3)));
  CHECK(logits.grad()[0] == Approx(1 / (3 * (1 + std::exp(1.0)))));
}

TEST_CASE("gradient rows of the cross-entropy sum to 0") {
  Tape<double> tape;
  const Var<double> logits = tape.input(example_normal({4, 37}, 1, 0, 30));
  tape.backward(loss_of(logits, {0, 36, kIgnoreTarget, 7}));
  for (size_t row = 0; row < 4; ++row) {
    double sum = 0;
    for (size_t i = 0; i < 37; ++i) sum += logits.grad()[row * 37 + i];
    CHECK(std::abs(sum) < 1e-15);
  }
}

TEST_CASE("B057 rows that are looked up several times collect all gradients") {
  Tape<double> tape;
  const Var<double> table = tape.input(example_normal({7, 3}, 1));
  const std::vector<int32_t> same(512, 4);
  const Tensor<double> dy = example_normal({512, 3}, 2);
  const Var<double> y = gather_rows(table, std::span<const int32_t>(same));
  tape.backward(std::span<const Var<double>>(&y, 1), std::span<const Tensor<double>>(&dy, 1));
  std::vector<double> sums(3);
  for (size_t i = 0; i < dy.size(); ++i) sums[i % 3] += dy[i];
  for (size_t i = 0; i < 21; ++i) {
    if (i / 3 == 4) {
      CHECK(table.grad()[i] == Approx(sums[i % 3]).epsilon(1e-13));
    } else {
      CHECK(table.grad()[i] == 0.0);
    }
  }
  for (const int32_t bad : {-1, 7}) {
    Tape<double> refused;
    const Var<double> t = refused.input(example_normal({7, 3}, 1));
    const std::vector<int32_t> ids = {0, bad};
    const std::string message = message_of([&] { gather_rows(t, std::span<const int32_t>(ids)); });
    INFO(message);
    CHECK(message.find(std::to_string(bad)) != std::string::npos);
    CHECK(message.find("position 1") != std::string::npos);
  }
}

TEMPLATE_TEST_CASE("B058 of equal maxima the first gets the gradient", "", float, double) {
  using T = TestType;
  for (const size_t n : {5, 70000}) {
    Tape<T> tape;
    const Var<T> x = tape.input(Tensor<T>({n}, T{3}));
    tape.backward(max(x), T{2});
    double sum = 0;
    for (const T d : x.grad().values()) sum += d;
    CHECK(sum == 2.0);
    CHECK(x.grad()[0] == T{2});
  }
  Tape<T> tape;
  const Var<T> x = tape.input(Tensor<T>({2, 3}, {1, 5, 5, 2, 2, 1}));
  tape.backward(sum(max(x, 1)));
  CHECK(x.grad().to_vector() == std::vector<T>{0, 1, 0, 1, 0, 0});
}

TEST_CASE("dropout keeps what it keeps by the seed alone") {
  const Tensor<double> ones({10000}, 1.0);
  const auto mask = [&](double p, Random random) {
    Tape<double> tape;
    return dropout(tape.input(ones), p, random).value().to_vector();
  };
  Random random(5);
  const std::vector<double> first = mask(0.25, random);
  CHECK(first == mask(0.25, random));
  CHECK(first != mask(0.25, Random(6)));
  const double kept = static_cast<double>(std::count(first.begin(), first.end(), 1 / 0.75));
  CHECK(kept + static_cast<double>(std::count(first.begin(), first.end(), 0.0)) == 10000);
  CHECK(std::abs(kept - 7500) < 5 * std::sqrt(10000 * 0.25 * 0.75));
  // The stream's position moves the mask along.
  random.seek(1);
  const std::vector<double> next = mask(0.25, random);
  CHECK(std::equal(next.begin(), next.end() - 1, first.begin() + 1));

  Tape<double> tape;
  const Var<double> x = tape.input(ones);
  const size_t nodes = tape.size();
  CHECK(&dropout(x, 0, random).value() == &x.value());
  CHECK(tape.size() == nodes);
  for (const double bad : {-0.1, 1.0, 1.5, std::nan("")}) {
    CHECK(message_of([&] { dropout(x, bad, random); }).find("[0, 1)") != std::string::npos);
  }
}

TEST_CASE("matmul of shapes that don't fit names both") {
  Tape<double> tape;
  const auto of = [&](const Shape& shape) { return tape.input(example_normal(shape, 1)); };
  CHECK(message_of([&] { matmul(of({3, 4}), of({3, 4})); }).find("[3, 4] and [3, 4]") != std::string::npos);
  CHECK(message_of([&] {
          matmul(of({3, 4}), of({3, 4}), Trans::kYes, Trans::kYes);
        }).find("transposed") != std::string::npos);
  CHECK_FALSE(message_of([&] { matmul(of({2, 3, 4}), of({3, 4, 5})); }).empty());
  CHECK_FALSE(message_of([&] { matmul(of({4}), of({4, 5})); }).empty());
  CHECK(matmul(of({3, 4}), of({3, 4}), Trans::kYes).shape() == Shape{4, 4});
}

TEST_CASE("shape ops refuse what lies outside") {
  Tape<double> tape;
  const Var<double> x = tape.input(example_normal({3, 4}, 1));
  const Var<double> y = tape.input(example_normal({3, 5}, 1));
  CHECK(message_of([&] { reshape(x, {5, 2}); }).find("[3, 4] to [5, 2]") != std::string::npos);
  CHECK_FALSE(message_of([&] { slice(x, 2, 0, 1); }).empty());
  CHECK_FALSE(message_of([&] { slice(x, 1, 3, 5); }).empty());
  CHECK_FALSE(message_of([&] { slice(x, 1, 3, 2); }).empty());
  CHECK_FALSE(message_of([&] { concat(std::vector{x, y}, 0); }).empty());
  CHECK_FALSE(message_of([&] { concat(std::vector<Var<double>>(), 0); }).empty());
  CHECK_FALSE(message_of([&] { concat(std::vector{x, x}, 2); }).empty());
  CHECK_FALSE(message_of([&] { transpose(x, {0, 0}); }).empty());
  CHECK_FALSE(message_of([&] { transpose(x, {0}); }).empty());
  CHECK_FALSE(message_of([&] { sum(x, 2); }).empty());
  CHECK_FALSE(message_of([&] { cumsum(x, 2); }).empty());
  CHECK_FALSE(message_of([&] { layer_norm(x, tape.input(example_normal({3}, 1))); }).empty());
  CHECK_FALSE(message_of([&] { select(Tensor<double>({3}, 1.0), x, x); }).empty());
  CHECK(concat(std::vector{x, y}, 1).shape() == Shape{3, 9});
}
