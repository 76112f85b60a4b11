// The points at which the gradients of the ops around the mixers are proven: rotary embedding, short convolution,
// normalisations and gates.
#include <cmath>
#include <optional>

#include "autograd/reference.h"
#include "autograd/registry.h"
#include "nn/examples.h"
#include "nn/gates.h"
#include "nn/normalize.h"
#include "nn/rope.h"
#include "nn/short_convolution.h"

namespace storytape {
namespace {

using Complex = std::complex<double>;
using ComplexInputs = std::vector<ComplexTensor>;

GradCase rope_case(const std::string& example, const Shape& shape, const RopeOptions& options, uint64_t seed,
                   size_t samples = 0) {
  GradCase c = make_case(
      example, {{"x", example_normal(shape, seed)}}, {"y"},
      [options](auto&, const auto& in) { return rope(in[0], options); },
      [options](const ComplexInputs& in) {
        ComplexTensor y = in[0];
        const size_t heads = y.shape[2], size = y.shape[3], width = options.width ? options.width : size;
        for (size_t row = 0; row < y.size() / size; ++row) {
          const auto position = static_cast<double>(options.offset + row / heads % y.shape[1]);
          const Complex* x = in[0].data() + row * size;
          const bool halves = options.pairs == RopePairs::kHalves;
          for (size_t i = 0; i < width / 2; ++i) {
            const double angle =
                position * std::pow(options.base, -2.0 * static_cast<double>(i) / static_cast<double>(width));
            const size_t first = halves ? i : 2 * i, second = halves ? i + width / 2 : 2 * i + 1;
            y[row * size + first] = x[first] * std::cos(angle) - x[second] * std::sin(angle);
            y[row * size + second] = x[second] * std::cos(angle) + x[first] * std::sin(angle);
          }
        }
        return y;
      });
  c.samples = samples;
  return c;
}

std::vector<GradCase> rope_examples() {
  return {
      rope_case("odd sizes", {2, 5, 3, 6}, {}, 1400),
      rope_case("one pair", {1, 7, 2, 2}, {}, 1401),
      rope_case("one token", {2, 1, 3, 10}, {0, 10000, 3}, 1402),
      rope_case("part of the head", {2, 3, 2, 11}, {6, 10000, 0}, 1403),
      rope_case("one pair of a wide head", {1, 3, 2, 39}, {2, 10000, 1}, 1404, 24),
      rope_case("another base", {1, 5, 2, 8}, {0, 500, 0}, 1405),
      rope_case("an offset of 100,000", {1, 4, 2, 8}, {0, 10000, 100000}, 1406),
      rope_case("wider than a vector", {1, 3, 2, 74}, {70, 10000, 2}, 1407, 24),
      rope_case("neighbours", {2, 5, 3, 6}, {0, 10000, 2, RopePairs::kNeighbours}, 1408),
      rope_case("neighbours in part of the head", {2, 3, 2, 11}, {6, 500, 1, RopePairs::kNeighbours}, 1409),
      rope_case("neighbours wider than a vector", {1, 3, 2, 74}, {70, 10000, 2, RopePairs::kNeighbours}, 1410,
                24)};
}

struct Convolution {
  std::string example;
  size_t batch, tokens, channels, width;
  bool silu, bias, state;
  size_t samples = 0;
};

GradCase convolution_case(const Convolution& p, uint64_t seed) {
  std::vector<NamedInput> inputs = {{"x", example_normal({p.batch, p.tokens, p.channels}, seed)},
                                    {"w", example_normal({p.channels, p.width}, seed + 1)}};
  if (p.bias) inputs.push_back({"b", example_normal({p.channels}, seed + 2)});
  if (p.state) inputs.push_back({"state", example_normal({p.batch, p.width - 1, p.channels}, seed + 3)});
  const size_t state_at = p.bias ? 3 : 2;
  GradCase result = make_case(
      p.example, std::move(inputs), {"y", "state"},
      [=]<class T>(Tape<T>&, const std::vector<Var<T>>& in) {
        const auto found = short_convolution(in[0], in[1], p.bias ? in[2] : Var<T>(),
                                             p.state ? in[state_at] : Var<T>(), {p.silu});
        return std::vector<Var<T>>{found.y, found.state};
      },
      [=](const ComplexInputs& in) {
        const size_t before = p.width - 1;
        ComplexTensor y(in[0].shape), state({p.batch, before, p.channels});
        // Row e of a sequence that begins with the state.
        const auto row = [&](size_t b, size_t e, size_t c) {
          if (e >= before) return in[0][(b * p.tokens + e - before) * p.channels + c];
          return p.state ? in[state_at][(b * before + e) * p.channels + c] : Complex(0);
        };
        for (size_t i = 0; i < y.size(); ++i) {
          const size_t c = i % p.channels, t = i / p.channels % p.tokens, b = i / p.channels / p.tokens;
          Complex z = p.bias ? in[2][c] : Complex(0);
          for (size_t j = 0; j < p.width; ++j) z += in[1][c * p.width + j] * row(b, t + j, c);
          y[i] = p.silu ? reference::silu(z) : z;
        }
        for (size_t i = 0; i < state.size(); ++i) {
          const size_t r = i / p.channels % before;
          state[i] = row(i / p.channels / before, p.tokens + r, i % p.channels);
        }
        return std::vector<ComplexTensor>{y, state};
      });
  result.samples = p.samples;
  return result;
}

std::vector<GradCase> convolution_examples() {
  const std::vector<Convolution> all = {
      {"width 4", 2, 7, 3, 4, true, false, false},
      {"bias", 2, 5, 3, 4, true, true, false},
      {"bias and state", 2, 5, 3, 4, true, true, true},
      {"as many tokens as the state holds", 2, 3, 5, 4, true, true, true},
      {"no SiLU", 1, 5, 3, 4, false, true, true},
      {"width 1", 2, 5, 3, 1, true, true, true},
      {"width 2", 1, 3, 1, 2, true, false, true},
      {"width 7, fewer tokens than the state holds", 2, 3, 2, 7, true, true, true},
      {"width 7, fewer tokens, no state", 2, 3, 2, 7, true, false, false},
      {"one token", 2, 1, 5, 4, true, true, true},
      {"wider than a vector", 1, 6, 37, 3, true, true, true, 24},
      {"more tokens than are summed at a time", 2, 70, 3, 4, true, true, true, 24},
  };
  std::vector<GradCase> cases;
  for (size_t i = 0; i < all.size(); ++i) cases.push_back(convolution_case(all[i], 1420 + 10 * i));
  return cases;
}

GradCase l2_case(const std::string& example, Tensor<double> x, L2Mode mode, double epsilon) {
  return make_case(
      example, {{"x", std::move(x)}}, {"y"},
      [=](auto&, const auto& in) { return l2_normalize(in[0], mode, epsilon); },
      [=](const ComplexInputs& in) {
        return reference::by_rows(in[0], [&](const Complex* row, Complex* y, size_t n) {
          Complex squares = 0;
          for (size_t i = 0; i < n; ++i) squares += row[i] * row[i];
          Complex length = std::sqrt(mode == L2Mode::kSqrtEps ? squares + epsilon : squares);
          if (mode == L2Mode::kClamp && length.real() < epsilon) length = epsilon;
          for (size_t i = 0; i < n; ++i) y[i] = row[i] / length;
        });
      });
}

// The second of the rows is zero.
Tensor<double> with_zero_row(Tensor<double> x) {
  for (size_t i = 0; i < x.size(1); ++i) x[x.size(1) + i] = 0;
  return x;
}

std::vector<GradCase> l2_examples() {
  constexpr L2Mode kRoot = L2Mode::kSqrtEps, kClamp = L2Mode::kClamp;
  std::vector<GradCase> cases = {
      l2_case("odd sizes", example_normal({2, 3, 5}, 1560), kRoot, 1e-6),
      l2_case("a large epsilon, a zero row", with_zero_row(example_normal({3, 7}, 1561)), kRoot, 0.25),
      l2_case("wider than a vector", example_normal({2, 37}, 1562), kRoot, 1e-6),
      l2_case("an offset of 1000", example_normal({3, 19}, 1563, 1000), kRoot, 1e-6),
      l2_case("width 1", example_normal({5, 1}, 1564), kRoot, 0.25),
      l2_case("clamp, odd sizes", example_normal({2, 3, 5}, 1565), kClamp, 1e-6),
      l2_case("clamp, a zero row and short ones", with_zero_row(example_normal({6, 3}, 1566)), kClamp, 1.5),
      l2_case("clamp, wider than a vector", example_normal({2, 37}, 1567), kClamp, 1e-6),
      l2_case("clamp, width 1", example_normal({5, 1}, 1568), kClamp, 0.75)};
  return cases;
}

GradCase group_norm_case(const std::string& example, Tensor<double> x, size_t groups, double epsilon = 1e-5) {
  return make_case(
      example, {{"x", std::move(x)}}, {"y"},
      [=](auto&, const auto& in) { return group_norm(in[0], groups, epsilon); },
      [=](const ComplexInputs& in) {
        ComplexTensor y(in[0].shape);
        const size_t n = y.shape.back() / groups;
        for (size_t i = 0; i < y.size(); i += n) {
          const Complex* none = nullptr;
          reference::layer_norm(in[0].data() + i, none, none, epsilon, y.data() + i, n);
        }
        return y;
      });
}

std::vector<GradCase> group_norm_examples() {
  std::vector<GradCase> cases = {
      group_norm_case("odd sizes", example_normal({2, 3, 15}, 1580), 3),
      group_norm_case("one group of each head", example_normal({2, 3, 2, 7}, 1581), 1),
      group_norm_case("width 1", example_normal({3, 4}, 1582), 4),
      group_norm_case("wider than a vector", example_normal({2, 74}, 1583), 2, 1e-3),
      group_norm_case("an offset of 1000", example_normal({3, 38}, 1584, 1000), 2)};
  return cases;
}

GradCase swish_gate_case(const std::string& example, const Shape& shape, double deviation, uint64_t seed) {
  return make_case(
      example, {{"x", example_normal(shape, seed)}, {"g", example_normal(shape, seed + 1, 0, deviation)}},
      {"y"}, [](auto&, const auto& in) { return swish_gate(in[0], in[1]); },
      [](const ComplexInputs& in) {
        ComplexTensor y(in[0].shape);
        for (size_t i = 0; i < y.size(); ++i) y[i] = in[0][i] * reference::silu(in[1][i]);
        return y;
      });
}

std::vector<GradCase> swish_gate_examples() {
  return {swish_gate_case("odd sizes", {2, 3, 5}, 1, 1600), swish_gate_case("one value", {1}, 1, 1602),
          swish_gate_case("wider than a vector", {37}, 1, 1604),
          swish_gate_case("gates up to 60", {2, 19}, 20, 1606)};
}

GradCase gla_gate_case(const std::string& example, const Shape& x, size_t rank, size_t n, double tau,
                       bool bias, double deviation, uint64_t seed) {
  std::vector<NamedInput> inputs = {{"x", example_normal(x, seed, 0, deviation)},
                                    {"w1", example_normal({x.back(), rank}, seed + 1)},
                                    {"w2", example_normal({rank, n}, seed + 2)}};
  if (bias) inputs.push_back({"b", example_normal({n}, seed + 3)});
  return make_case(
      example, std::move(inputs), {"alpha"},
      [=]<class T>(Tape<T>&, const std::vector<Var<T>>& in) {
        return gla_gate(in[0], in[1], in[2], tau, bias ? in[3] : Var<T>());
      },
      [=](const ComplexInputs& in) {
        const size_t rows = in[0].size() / x.back();
        ComplexTensor low({rows, rank});
        reference::matmul(false, false, rows, rank, x.back(), in[0].data(), in[1].data(), low.data());
        Shape shape = x;
        shape[shape.rank() - 1] = n;
        ComplexTensor alpha(shape);
        reference::matmul(false, false, rows, n, rank, low.data(), in[2].data(), alpha.data());
        for (size_t i = 0; i < alpha.size(); ++i) {
          const Complex z = alpha[i] + (bias ? in[3][i % n] : Complex(0));
          alpha[i] = std::exp(reference::log_sigmoid(z) / tau);
        }
        return alpha;
      });
}

std::vector<GradCase> gla_gate_examples() {
  return {gla_gate_case("odd sizes", {2, 3, 5}, 2, 7, 16, false, 1, 1620),
          gla_gate_case("temperature 1, a bias", {2, 3, 5}, 2, 3, 1, true, 1, 1630),
          gla_gate_case("rank 1", {3, 4}, 1, 5, 0.5, false, 1, 1640),
          gla_gate_case("saturated", {5, 6}, 2, 3, 16, true, 30, 1650)};
}

}  // namespace

void register_sequence_ops() {
  register_op("rope", rope_examples);
  register_op("short_convolution", convolution_examples);
  register_op("l2_normalize", l2_examples);
  register_op("group_norm", group_norm_examples);
  register_op("swish_gate", swish_gate_examples);
  register_op("gla_gate", gla_gate_examples);
}

}  // namespace storytape
