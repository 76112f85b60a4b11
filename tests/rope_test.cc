// The rotary embedding held against its definition, in pieces, far out, and in front of attention.
#include "nn/rope.h"

#include <cmath>
#include <string>
#include <vector>

#include "autograd/ops_shape.h"
#include "nn/mixers/softmax_attention.h"
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

// y by the definition, x [B, T, H, d].
template <class T>
std::vector<long double> by_definition(const Tensor<T>& x, size_t width, double base, size_t offset,
                                       RopePairs pairs = RopePairs::kHalves) {
  std::vector<long double> y(x.values().begin(), x.values().end());
  const size_t heads = x.size(2), size = x.size(3), half = width / 2;
  for (size_t row = 0; row < x.size() / size; ++row) {
    const auto position = static_cast<long double>(offset + row / heads % x.size(1));
    for (size_t i = 0; i < half; ++i) {
      const long double exponent = -2.0L * static_cast<long double>(i) / static_cast<long double>(width);
      const long double angle = position * std::pow(static_cast<long double>(base), exponent);
      const bool halves = pairs == RopePairs::kHalves;
      const size_t first = row * size + (halves ? i : 2 * i),
                   second = row * size + (halves ? half + i : 2 * i + 1);
      const long double a = x[first], b = x[second];
      y[first] = a * std::cos(angle) - b * std::sin(angle);
      y[second] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
  return y;
}

template <class T>
void check_definition() {
  for (const size_t half : {1, 2, 3, 7, 8, 9, 16, 17, 33}) {
    for (const size_t passed : {0, 1, 5, 19}) {
      for (const size_t offset : {0, 1000}) {
        INFO("width " << 2 * half << " of " << 2 * half + passed << ", offset " << offset);
        const Tensor<T> x = normal<T>({2, 3, 2, 2 * half + passed}, half);
        for (const RopePairs pairs : {RopePairs::kHalves, RopePairs::kNeighbours}) {
          const RopeTable<T> table(2 * half, offset, 3, 10000, pairs);
          const Tensor<T> y = rope(x, table, offset);
          CHECK(test::all_close(y.data(), by_definition(x, 2 * half, 10000, offset, pairs),
                                sizeof(T) == 4 ? 4e-7 : 4e-13));
        }
      }
    }
  }
}

// max |a - b|; infinite for unequal shapes and NaN.
template <class T>
double difference(const Tensor<T>& a, const Tensor<T>& b) {
  if (!(a.shape() == b.shape()) || a.size() == 0) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(d <= worst)) worst = std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
  }
  return worst;
}

}  // namespace

TEST_CASE("rope is its definition at every width, on every target") {
  test::on_every_target([] {
    check_definition<float>();
    check_definition<double>();
  });
}

TEST_CASE("rope far out is as exact as at the start") {
  const Tensor<float> x = normal<float>({1, 3, 2, 16}, 3);
  for (const size_t offset : {100000, 10000000}) {
    const Tensor<float> y = rope(x, RopeTable<float>(16, offset, 3), offset);
    CHECK(test::all_close(y.data(), by_definition(x, 16, 10000, offset), 4e-7));
  }
}

TEST_CASE("the backward of rope is the rotation back") {
  const Tensor<double> x = normal<double>({2, 5, 3, 14}, 4);
  test::on_every_target([&] {
    for (const RopePairs pairs : {RopePairs::kHalves, RopePairs::kNeighbours}) {
      Tape<double> tape;
      const Var<double> in = tape.input(x);
      const Var<double> y = rope(in, RopeOptions{10, 10000, 7, pairs});
      const Tensor<double> turned = y.value();
      tape.backward(std::span<const Var<double>>(&y, 1), std::span<const Tensor<double>>(&turned, 1));
      CHECK(difference(in.grad(), x) <= 1e-15);
    }
  });
}

TEST_CASE("the product of two rotated rows depends on their distance alone") {
  const Tensor<double> q = normal<double>({1, 1, 1, 8}, 5), k = normal<double>({1, 1, 1, 8}, 6);
  const auto product = [&](size_t at, size_t from) {
    const Tensor<double> a = rope(q, RopeTable<double>(8, at, 1), at);
    const Tensor<double> b = rope(k, RopeTable<double>(8, from, 1), from);
    double sum = 0;
    for (size_t i = 0; i < 8; ++i) sum += a[i] * b[i];
    return sum;
  };
  CHECK(product(5, 3) == Approx(product(102, 100)).epsilon(1e-12));
  CHECK(product(9, 0) == Approx(product(59, 50)).epsilon(1e-12));
  CHECK(std::abs(product(5, 3) - product(5, 2)) > 1e-3);
}

TEST_CASE("pieces with their offsets, and a table of their own or a shared one, give the same bits") {
  const Tensor<float> x = normal<float>({2, 9, 3, 10}, 7);
  const RopeTable<float> shared(6, 0, 40);
  const Tensor<float> whole = rope(x, shared, 20);
  std::vector<Tensor<float>> parts;
  for (const auto& [first, last] : {std::pair<size_t, size_t>{0, 1}, {1, 5}, {5, 9}}) {
    const Tensor<float> piece = slice(x, 1, first, last);
    Tape<float> tape;
    const Var<float> own = rope(tape.constant(piece), RopeOptions{6, 10000, 20 + first});
    CHECK(difference(own.value(), rope(piece, shared, 20 + first)) == 0);
    parts.push_back(own.value());
  }
  CHECK(difference(concat(std::span<const Tensor<float>>(parts), 1), whole) == 0);
}

TEST_CASE("B105 new rows over a cache of rotated keys see what a full pass sees") {
  for (const size_t block : {1, 2, 7}) {
    const size_t tokens = 5 + block;
    const Tensor<double> q = normal<double>({1, tokens, 4, 6}, 8), k = normal<double>({1, tokens, 2, 6}, 9),
                         v = normal<double>({1, tokens, 2, 3}, 10);
    const RopeTable<double> table(6, 0, tokens);
    Tape<double> tape;
    const Tensor<double> whole =
        softmax_attention(rope(tape.constant(q), table), rope(tape.constant(k), table), tape.constant(v),
                          SoftmaxAttentionOptions{})
            .value();
    State<double> cache = softmax_attention_state<double>(1, 2, 6, 3);
    Tensor<double> last;
    for (const auto& [first, end] : {std::pair<size_t, size_t>{0, 5}, {5, tokens}}) {
      last =
          softmax_attention_extend(cache, rope(slice(q, 1, first, end), table, first),
                                   rope(slice(k, 1, first, end), table, first), slice(v, 1, first, end), {});
    }
    CHECK(difference(last, slice(whole, 1, 5, tokens)) <= 1e-14);
  }
}

TEST_CASE("what can't be rotated is refused by name") {
  const auto refuse = [](auto call, const std::string& words) {
    const std::string message = test::message_of(call);
    INFO(message);
    CHECK(message.find(words) != std::string::npos);
  };
  Tape<float> tape;
  const Var<float> odd = tape.input(Tensor<float>({1, 2, 1, 5}, 1.0f));
  refuse([&] { rope(odd, RopeOptions{}); }, "the rotated width is 5, wanted an even number");
  refuse([&] { rope(odd, RopeOptions{3}); }, "the rotated width is 3, wanted an even number");
  refuse([&] { rope(odd, RopeOptions{6}); },
         "heads of 5 channels in [1, 2, 1, 5] are narrower than the rotated");
  refuse([&] { rope(odd, RopeOptions{4, 0}); }, "the base is 0");
  refuse([&] { rope(odd, RopeOptions{4, std::nan("")}); }, "the base is nan");
  refuse([&] { rope(tape.input(Tensor<float>({2, 1, 4}, 1.0f)), RopeOptions{}); }, "4 axes");
  refuse([] { RopeTable<float>(0, 0, 3); }, "the rotated width is 0");
  const RopeTable<float> table(4, 10, 5);
  refuse([&] { rope(odd, table, 9); }, "positions [9, 11) lie outside the table's [10, 15)");
  refuse([&] { rope(odd, table, 14); }, "positions [14, 16) lie outside the table's [10, 15)");
  CHECK(test::message_of([&] { rope(odd, table, 13); }).empty());
}

}  // namespace storytape
