// Elementwise kernels on every SIMD target: lengths, guards, broadcasting, updates.
#include "tensor/elementwise.h"

#include <vector>

#include "tests/kernel_testing.h"

namespace storytape::test {
namespace {

using Real = long double;

Real logistic(Real x) {
  return 1 / (1 + std::exp(-x));
}

struct ValueAndSlope {
  Real y, slope;
};

// Plain formulas; the arguments here are moderate.
ValueAndSlope exact(Unary op, Real x) {
  const Real s = logistic(x);
  const Real normal = std::erfc(-x / std::sqrt(2.0L)) / 2;
  const Real density = std::exp(-x * x / 2) / std::sqrt(2 * 3.14159265358979323846L);
  const Real c = std::sqrt(2 / 3.14159265358979323846L);
  const Real t = std::tanh(c * (x + 0.044715L * x * x * x));
  switch (op) {
    case Unary::kExp:
      return {std::exp(x), std::exp(x)};
    case Unary::kLog:
      return {std::log(x), 1 / x};
    case Unary::kTanh:
      return {std::tanh(x), 1 - std::tanh(x) * std::tanh(x)};
    case Unary::kSigmoid:
      return {s, s * (1 - s)};
    case Unary::kSoftplus:
      return {std::log(1 + std::exp(x)), s};
    case Unary::kLogSigmoid:
      return {std::log(s), 1 - s};
    case Unary::kSilu:
      return {x * s, s + x * s * (1 - s)};
    case Unary::kGeluErf:
      return {x * normal, normal + x * density};
    case Unary::kGeluTanh:
      return {x / 2 * (1 + t), (1 + t) / 2 + x / 2 * (1 - t * t) * c * (1 + 3 * 0.044715L * x * x)};
    case Unary::kEluPlusOne:
      return {x > 0 ? x + 1 : std::exp(x), x > 0 ? 1 : std::exp(x)};
    case Unary::kSqrt:
      return {std::sqrt(x), 1 / (2 * std::sqrt(x))};
    case Unary::kSquare:
      return {x * x, 2 * x};
    case Unary::kNeg:
      return {-x, -1};
    case Unary::kReciprocal:
      return {1 / x, -1 / (x * x)};
  }
  return {0, 0};
}

bool wants_positive(Unary op) {
  return op == Unary::kLog || op == Unary::kSqrt || op == Unary::kReciprocal;
}

template <class T>
void check_unary(Unary op, size_t n) {
  const Guarded<T> x = random_values<T>(n, 11 + n, wants_positive(op) ? 0.1 : -4, 4);
  const Guarded<T> dy = random_values<T>(n, 12 + n);
  Guarded<T> y(n), dx(n);
  Guarded<T> sum = random_values<T>(n, 13 + n);
  std::vector<Real> want_y, want_dx, want_sum;
  for (size_t i = 0; i < n; ++i) {
    const ValueAndSlope e = exact(op, x[i]);
    want_y.push_back(e.y);
    want_dx.push_back(e.slope * dy[i]);
    want_sum.push_back(sum[i] + e.slope * dy[i]);
  }
  unary(op, x.data(), y.data(), n);
  const T* saved_x = derivative_needs_input(op) ? x.data() : nullptr;
  const T* saved_y = derivative_needs_output(op) ? y.data() : nullptr;
  unary_backward(op, saved_x, saved_y, dy.data(), dx.data(), n, false);
  unary_backward(op, saved_x, saved_y, dy.data(), sum.data(), n, true);
  INFO(to_string(op) << ", " << n << " values");
  CHECK(all_close(y.data(), want_y, 4 * kEpsilon<T>));
  CHECK(all_close(dx.data(), want_dx, 8 * kEpsilon<T>));
  CHECK(all_close(sum.data(), want_sum, 8 * kEpsilon<T>));
  CHECK((y.intact() && dx.intact() && sum.intact()));
}

TEST_CASE("unary functions and their derivatives match plain code at every length on every target") {
  on_every_target([] {
    for (const Unary op : kUnaryOps) {
      for (const size_t n : kLengths) {
        check_unary<float>(op, n);
        check_unary<double>(op, n);
      }
    }
  });
}

template <class T>
void check_position(Unary op) {
  constexpr size_t kSize = 100;
  const Guarded<T> x = random_values<T>(kSize, 3, wants_positive(op) ? 0.1 : -4, 4);
  Guarded<T> whole(kSize), in_place = x;
  unary(op, x.data(), whole.data(), kSize);
  unary(op, in_place.data(), in_place.data(), kSize);
  INFO(to_string(op));
  CHECK(same_bits(whole.data(), in_place.data(), kSize));
  bool same = true;
  for (size_t i = 0; i < kSize; ++i) {
    T alone = 0;
    unary(op, x.data() + i, &alone, 1);
    same = same && same_bits(&alone, &whole[i], 1);
  }
  CHECK(same);
}

TEST_CASE("a value's function does not depend on where it stands, nor on being written in place") {
  on_every_target([] {
    for (const Unary op : kUnaryOps) {
      check_position<float>(op);
      check_position<double>(op);
    }
  });
}

TEST_CASE("unary of a tensor keeps its shape") {
  const Tensor<float> x({2, 1, 3}, {1, 4, 9, 16, 25, 36});
  const Tensor<float> y = unary(Unary::kSqrt, x);
  CHECK(y.shape() == x.shape());
  CHECK(y.to_vector() == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(unary(Unary::kExp, Tensor<float>({0, 3})).size() == 0);
}

constexpr Binary kBinaryOps[] = {Binary::kAdd, Binary::kSub, Binary::kMul, Binary::kDiv};

template <class T>
T apply(Binary op, T a, T b) {
  switch (op) {
    case Binary::kAdd:
      return a + b;
    case Binary::kSub:
      return a - b;
    case Binary::kMul:
      return a * b;
    case Binary::kDiv:
      return a / b;
  }
  return 0;
}

template <class T>
void check_binary(Binary op, size_t n) {
  const Guarded<T> a = random_values<T>(n, 21 + n);
  const Guarded<T> b = random_values<T>(n, 22 + n, 0.5, 2);
  Guarded<T> y(n);
  std::vector<T> want;
  for (size_t i = 0; i < n; ++i) want.push_back(apply(op, a[i], b[i]));
  binary(op, a.data(), b.data(), y.data(), n);
  CHECK(same_bits(y.data(), want.data(), n));
  CHECK(y.intact());
}

TEST_CASE("binary arithmetic equals plain arithmetic at every length on every target") {
  on_every_target([] {
    for (const Binary op : kBinaryOps) {
      for (const size_t n : kLengths) {
        check_binary<float>(op, n);
        check_binary<double>(op, n);
      }
    }
  });
}

// Element `i` of a tensor of shape `from` broadcast to `to`, by index arithmetic alone.
size_t source_index(const Shape& from, const Shape& to, size_t i) {
  size_t index = 0;
  size_t stride = 1;
  for (size_t axis = 0; axis < to.rank(); ++axis) {
    const size_t at = i % to.back(axis);
    i /= to.back(axis);
    if (axis >= from.rank()) continue;
    if (from.back(axis) != 1) index += at * stride;
    stride *= from.back(axis);
  }
  return index;
}

template <class T>
Tensor<T> random_tensor(const Shape& shape, uint64_t seed) {
  const Guarded<T> values = random_values<T>(shape.elements(), seed, 0.5, 2);
  return Tensor<T>(shape, std::span<const T>(values.data(), values.size()));
}

const std::pair<Shape, Shape> kBroadcasts[] = {
    {{3, 4}, {1, 4}},
    {{3, 4}, {4}},
    {{3, 4}, {3, 1}},
    {{4, 1}, {1, 4}},
    {{}, {5}},
    {{1}, {1}},
    {{}, {}},
    {{2, 1, 4, 64}, {2, 1, 4, 1}},
    {{0, 4}, {4}},
    {{3, 0}, {1, 0}},
    {{3, 1}, {1, 0}},
    {{7, 33}, {33}},
    {{5, 17}, {}},
    {{2, 3, 5}, {3, 1}},
    {{2, 3, 5, 7}, {3, 1, 7}},
    {{4, 1, 3, 1, 2}, {5, 1, 2, 1}},
    {{1, 1, 3}, {2, 1, 1}},
    {{2, 3, 2, 3, 2, 3, 2, 3}, {1, 3, 1, 3, 1, 3, 1, 3}},
};

template <class T>
void check_broadcast(const Shape& sa, const Shape& sb) {
  const Tensor<T> a = random_tensor<T>(sa, 31);
  const Tensor<T> b = random_tensor<T>(sb, 32);
  const Shape shape = broadcast(sa, sb);
  INFO(to_string(sa) << " and " << to_string(sb));
  for (const Binary op : kBinaryOps) {
    const Tensor<T> y = binary(op, a, b);
    REQUIRE(y.shape() == shape);
    bool same = true;
    for (size_t i = 0; i < y.size(); ++i) {
      const T want = apply(op, a[source_index(sa, shape, i)], b[source_index(sb, shape, i)]);
      same = same && same_bits(&want, &y[i], 1);
    }
    CHECK(same);
  }
  for (const Tensor<T>& x : {a, b}) {
    const Tensor<T> y = broadcast_to(x, shape);
    bool same = y.shape() == shape;
    for (size_t i = 0; i < y.size(); ++i) same = same && y[i] == x[source_index(x.shape(), shape, i)];
    CHECK(same);
  }
}

TEST_CASE("broadcasting follows numpy's rule") {
  on_every_target([] {
    for (const auto& [a, b] : kBroadcasts) {
      check_broadcast<float>(a, b);
      check_broadcast<double>(b, a);
    }
  });
  CHECK_THROWS_AS(add(Tensor<float>({3, 4}), Tensor<float>({3})), Error);
  CHECK_THROWS_AS(broadcast_to(Tensor<float>({3, 4}), Shape{4}), Error);
}

template <class T>
void check_reduce_to(const Shape& small, const Shape& large) {
  const Tensor<T> dy = random_tensor<T>(large, 41);
  std::vector<Real> want(small.elements(), 0);
  for (size_t i = 0; i < dy.size(); ++i) want[source_index(small, large, i)] += dy[i];
  const Tensor<T> dx = reduce_to(dy, small);
  INFO(to_string(large) << " to " << to_string(small));
  REQUIRE(dx.shape() == small);
  CHECK(all_close(dx.data(), want, 20 * kEpsilon<T>));
}

TEST_CASE("B046 the gradient of a broadcast operand is summed to the operand's own shape") {
  on_every_target([] {
    for (const auto& [a, b] : kBroadcasts) {
      const Shape shape = broadcast(a, b);
      check_reduce_to<float>(a, shape);
      check_reduce_to<double>(b, shape);
    }
  });
  CHECK_THROWS_AS(reduce_to(Tensor<float>({3, 4}), Shape{3}), Error);
  CHECK_THROWS_AS(reduce_to(Tensor<float>({4}), (Shape{3, 4})), Error);
}

template <class T>
void check_updates(size_t n) {
  const Guarded<T> x = random_values<T>(n, 51 + n);
  const Guarded<T> y = random_values<T>(n, 52 + n);
  const T a = static_cast<T>(0.3);
  Guarded<T> sum = y, plus = y, scaled = y, between = y;
  add_into(sum.data(), x.data(), n);
  axpy(a, x.data(), plus.data(), n);
  scale(a, x.data(), scaled.data(), n);
  lerp(a, x.data(), between.data(), n);
  std::vector<Real> want_sum, want_plus, want_scaled, want_between;
  for (size_t i = 0; i < n; ++i) {
    want_sum.push_back(Real{y[i]} + x[i]);
    want_plus.push_back(y[i] + Real{a} * x[i]);
    want_scaled.push_back(Real{a} * x[i]);
    want_between.push_back(y[i] + a * (Real{x[i]} - y[i]));
  }
  CHECK(all_close(sum.data(), want_sum, kEpsilon<T>));
  CHECK(all_close(plus.data(), want_plus, 2 * kEpsilon<T>));
  CHECK(all_close(scaled.data(), want_scaled, kEpsilon<T>));
  CHECK(all_close(between.data(), want_between, 2 * kEpsilon<T>));
  CHECK((sum.intact() && plus.intact() && scaled.intact() && between.intact()));
}

TEST_CASE("add_into, axpy, scale and lerp match plain code at every length on every target") {
  on_every_target([] {
    for (const size_t n : kLengths) {
      check_updates<float>(n);
      check_updates<double>(n);
    }
  });
}

template <class T>
T plain_tree(const std::vector<Guarded<T>>& blocks, size_t first, size_t count, size_t i) {
  if (count == 1) return blocks[first][i];
  size_t left = 1;
  while (2 * left < count) left *= 2;
  return plain_tree(blocks, first, left, i) + plain_tree(blocks, first + left, count - left, i);
}

template <class T>
void check_tree_sum(size_t count, size_t n) {
  std::vector<Guarded<T>> blocks;
  std::vector<const T*> pointers;
  for (size_t b = 0; b < count; ++b) blocks.push_back(random_values<T>(n, 60 + b));
  for (const Guarded<T>& block : blocks) pointers.push_back(block.data());
  std::vector<T> want;
  for (size_t i = 0; i < n; ++i) want.push_back(plain_tree(blocks, 0, count, i));
  Guarded<T> y(n);
  tree_sum(y.data(), pointers.data(), count, n);
  INFO(count << " blocks of " << n);
  CHECK(same_bits(y.data(), want.data(), n));
  tree_sum(blocks[0].data(), pointers.data(), count, n);
  CHECK(same_bits(blocks[0].data(), want.data(), n));
  CHECK((y.intact() && blocks[0].intact()));
}

TEST_CASE("tree_sum adds in the same tree on every target, also into its first block") {
  on_every_target([] {
    for (const size_t count : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 33}) {
      for (const size_t n : {0, 1, 17, 65, 1000, 1537}) {
        check_tree_sum<float>(count, n);
        check_tree_sum<double>(count, n);
      }
    }
  });
}

template <class T>
void check_adamw(size_t n) {
  AdamW s;
  s.lr = 0.01;
  s.weight_decay = 0.05;
  s.grad_scale = 0.7;
  Guarded<T> p = random_values<T>(n, 71), m(n), v(n);
  std::vector<Real> wp(p.data(), p.data() + n), wm(n), wv(n);
  for (int step = 1; step <= 3; ++step) {
    s.bias1 = 1 - std::pow(s.beta1, step);
    s.bias2 = 1 - std::pow(s.beta2, step);
    const Guarded<T> g = random_values<T>(n, 80 + static_cast<uint64_t>(step));
    adamw(s, p.data(), m.data(), v.data(), g.data(), n);
    for (size_t i = 0; i < n; ++i) {
      const Real gi = Real{g[i]} * s.grad_scale;
      wm[i] = s.beta1 * wm[i] + (1 - s.beta1) * gi;
      wv[i] = s.beta2 * wv[i] + (1 - s.beta2) * gi * gi;
      wp[i] *= 1 - s.lr * s.weight_decay;
      wp[i] -= s.lr * (wm[i] / s.bias1) / (std::sqrt(wv[i] / s.bias2) + s.eps);
    }
  }
  CHECK(all_close(p.data(), wp, 8 * kEpsilon<T>));
  CHECK(all_close(m.data(), wm, 4 * kEpsilon<T>));
  CHECK(all_close(v.data(), wv, 4 * kEpsilon<T>));
  CHECK((p.intact() && m.intact() && v.intact()));
}

TEST_CASE("AdamW matches plain code at every length on every target") {
  on_every_target([] {
    for (const size_t n : kLengths) {
      check_adamw<float>(n);
      check_adamw<double>(n);
    }
  });
}

TEST_CASE("AdamW with a zero gradient only decays") {
  on_every_target([] {
    AdamW s;
    s.lr = 0.1;
    s.weight_decay = 0.01;
    s.bias1 = 1 - s.beta1;
    s.bias2 = 1 - s.beta2;
    float p = 2, m = 0, v = 0;
    const float g = 0;
    adamw(s, &p, &m, &v, &g, 1);
    CHECK(p == Approx(2 * (1 - 0.001)).epsilon(1e-7));
    CHECK(m == 0.0f);
    CHECK(v == 0.0f);
  });
}

}  // namespace
}  // namespace storytape::test
