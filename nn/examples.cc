#include "nn/examples.h"

#include <optional>

#include "autograd/reference.h"
#include "autograd/registry.h"
#include "nn/decay_gate.h"
#include "nn/embedding.h"
#include "nn/gelu_mlp.h"
#include "nn/head_loss.h"
#include "nn/layers/examples.h"
#include "nn/layers/parts.h"
#include "nn/linear.h"
#include "nn/token_shift.h"
#include "tensor/random.h"

namespace storytape {
namespace {

using ComplexInputs = std::vector<ComplexTensor>;

Shape with_last(Shape shape, size_t size) {
  shape[shape.rank() - 1] = size;
  return shape;
}

// The inputs that an example has beside those it always has, and where they stand in its list.
class OptionalInputs {
 public:
  explicit OptionalInputs(std::vector<NamedInput>& inputs) : inputs_(inputs) {}
  // Position of the input, or none.
  std::optional<size_t> add(bool there, const std::string& name, const Shape& shape, uint64_t seed) {
    if (!there) return std::nullopt;
    inputs_.push_back({name, example_normal(shape, seed)});
    return inputs_.size() - 1;
  }

 private:
  std::vector<NamedInput>& inputs_;
};

template <class T>
Var<T> input_or_none(const std::vector<Var<T>>& in, std::optional<size_t> i) {
  return i ? in[*i] : Var<T>();
}

const std::complex<double>* data_or_null(const ComplexInputs& in, std::optional<size_t> i) {
  return i ? in[*i].data() : nullptr;
}

// x·w (+ bias per column) (+ residual), rows of x one after another.
ComplexTensor linear_reference(const ComplexTensor& x, const ComplexTensor& w,
                               const std::complex<double>* bias, const std::complex<double>* residual) {
  const size_t out = w.shape[1];
  ComplexTensor y(with_last(x.shape, out));
  if (y.size() == 0) return y;
  reference::matmul(false, false, y.size() / out, out, w.shape[0], x.data(), w.data(), y.data());
  for (size_t i = 0; i < y.size(); ++i) {
    if (bias) y[i] += bias[i % out];
    if (residual) y[i] += residual[i];
  }
  return y;
}

GradCase linear_case(const std::string& example, const Shape& x, size_t out, bool bias, bool residual,
                     uint64_t seed, size_t samples = 0) {
  const size_t in_size = x.back();
  std::vector<NamedInput> inputs = {{"x", example_normal(x, seed)},
                                    {"w", example_normal({in_size, out}, seed + 1)}};
  OptionalInputs optional(inputs);
  const auto b = optional.add(bias, "b", {out}, seed + 2);
  const auto r = optional.add(residual, "residual", with_last(x, out), seed + 3);
  GradCase c = make_case(
      example, std::move(inputs), {"y"},
      [b, r](auto&, const auto& in) {
        return linear(in[0], in[1], input_or_none(in, b), input_or_none(in, r));
      },
      [b, r](const ComplexInputs& in) {
        return linear_reference(in[0], in[1], data_or_null(in, b), data_or_null(in, r));
      });
  c.samples = samples;
  return c;
}

std::vector<GradCase> linear_examples() {
  return {linear_case("odd sizes", {5, 7}, 3, false, false, 1000),
          linear_case("bias", {5, 7}, 3, true, false, 1010),
          linear_case("residual", {2, 3, 5}, 7, false, true, 1020),
          linear_case("bias and residual", {2, 3, 5}, 7, true, true, 1030),
          linear_case("1 x 1", {1, 1}, 1, true, true, 1040),
          linear_case("one row", {9}, 17, true, true, 1050),
          linear_case("one column", {6, 5}, 1, true, true, 1060),
          linear_case("no row", {0, 5}, 3, true, true, 1070),
          linear_case("wider than a tile", {13, 33}, 67, true, true, 1080, 24),
          linear_case("more rows than a block", {3, 97, 11}, 19, true, true, 1090, 24)};
}

GradCase gelu_mlp_case(const std::string& example, const Shape& x, size_t hidden, size_t out, bool biases,
                       bool residual, uint64_t seed, size_t samples = 0) {
  const size_t in_size = x.back();
  std::vector<NamedInput> inputs = {{"x", example_normal(x, seed)},
                                    {"w1", example_normal({in_size, hidden}, seed + 1)},
                                    {"w2", example_normal({hidden, out}, seed + 2)}};
  OptionalInputs optional(inputs);
  const auto b1 = optional.add(biases, "b1", {hidden}, seed + 3);
  const auto b2 = optional.add(biases, "b2", {out}, seed + 4);
  const auto r = optional.add(residual, "residual", with_last(x, out), seed + 5);
  GradCase c = make_case(
      example, std::move(inputs), {"y"},
      [b1, b2, r](auto&, const auto& in) {
        return gelu_mlp(in[0], in[1], input_or_none(in, b1), in[2], input_or_none(in, b2),
                        input_or_none(in, r));
      },
      [b1, b2, r](const ComplexInputs& in) {
        const ComplexTensor h = linear_reference(in[0], in[1], data_or_null(in, b1), nullptr);
        const ComplexTensor a = map(h, [](const auto& v) { return reference::gelu_erf(v); });
        return linear_reference(a, in[2], data_or_null(in, b2), data_or_null(in, r));
      });
  c.samples = samples;
  return c;
}

std::vector<GradCase> gelu_mlp_examples() {
  return {gelu_mlp_case("odd sizes", {5, 3}, 7, 3, false, false, 1100),
          gelu_mlp_case("biases", {5, 3}, 7, 3, true, false, 1110),
          gelu_mlp_case("residual", {2, 3, 5}, 9, 5, false, true, 1120),
          gelu_mlp_case("biases and residual", {2, 3, 5}, 9, 5, true, true, 1130),
          gelu_mlp_case("another width out", {4, 3}, 5, 2, true, true, 1140),
          gelu_mlp_case("width 1", {3, 1}, 1, 1, true, true, 1150),
          gelu_mlp_case("more rows than a block", {2, 71, 13}, 37, 13, true, true, 1160, 24)};
}

GradCase embed_case(const std::string& example, size_t vocab, size_t positions, size_t dim,
                    const std::vector<int32_t>& tokens, size_t batch, size_t offset, uint64_t seed) {
  const size_t length = tokens.size() / batch;
  return make_case(
      example,
      {{"table", example_normal({vocab, dim}, seed)},
       {"positions", example_normal({positions, dim}, seed + 1)}},
      {"y"},
      [=](auto&, const auto& in) {
        return embed(in[0], in[1], std::span<const int32_t>(tokens), batch, length, offset);
      },
      [=](const ComplexInputs& in) {
        ComplexTensor y({batch, length, dim});
        for (size_t i = 0; i < y.size(); ++i) {
          const size_t token = i / dim;
          y[i] = in[0][static_cast<size_t>(tokens[token]) * dim + i % dim] +
                 in[1][(offset + token % length) * dim + i % dim];
        }
        return y;
      });
}

std::vector<GradCase> embed_examples() {
  return {embed_case("repeated tokens", 5, 4, 3, {4, 0, 4, 4, 2, 0}, 2, 0, 1200),
          embed_case("an offset", 3, 7, 5, {0, 2, 1}, 1, 4, 1210),
          embed_case("one token", 1, 1, 1, {0}, 1, 0, 1220),
          embed_case("wider than a vector", 4, 3, 37, {3, 1, 3}, 1, 0, 1230)};
}

// What head_loss is told beside its inputs.
struct Head {
  std::string example;
  Shape rows;  // of h, without D
  size_t vocab, dim;
  bool bias;
  double scale;
  size_t ignored = 0;    // every so many-th target is ignored; 0: none
  double deviation = 1;  // of the inputs
  size_t samples = 0;
};

GradCase head_loss_case(const Head& head, uint64_t seed) {
  const size_t rows = head.rows.elements();
  Shape h = head.rows;
  h.push_back(head.dim);
  Random random(seed);
  std::vector<int32_t> targets(rows);
  for (size_t i = 0; i < rows; ++i) {
    targets[i] = head.ignored && (i + 1) % head.ignored == 0 ? kIgnoreTarget
                                                             : static_cast<int32_t>(random.below(head.vocab));
  }
  std::vector<NamedInput> inputs = {
      {"h", example_normal(h, seed + 1, 0, head.deviation)},
      {"table", example_normal({head.vocab, head.dim}, seed + 2, 0, head.deviation)}};
  OptionalInputs optional(inputs);
  const auto bias = optional.add(head.bias, "bias", {head.vocab}, seed + 3);
  GradCase c = make_case(
      head.example, std::move(inputs), {"loss"},
      [=](auto&, const auto& in) {
        using T = std::remove_cvref_t<decltype(in[0].value()[0])>;
        return head_loss(in[0], in[1], input_or_none(in, bias), std::span<const int32_t>(targets),
                         static_cast<T>(head.scale));
      },
      [=](const ComplexInputs& in) {
        ComplexTensor loss(Shape{1});
        std::vector<std::complex<double>> logits(head.vocab);
        for (size_t r = 0; r < rows; ++r) {
          if (targets[r] == kIgnoreTarget) continue;
          reference::matmul(false, true, 1, head.vocab, head.dim, in[0].data() + r * head.dim, in[1].data(),
                            logits.data());
          for (size_t v = 0; bias && v < head.vocab; ++v) logits[v] += in[*bias][v];
          loss[0] +=
              reference::log_sum_exp(logits.data(), head.vocab) - logits[static_cast<size_t>(targets[r])];
        }
        loss[0] *= head.scale;
        return loss;
      });
  c.samples = head.samples;
  return c;
}

std::vector<GradCase> head_loss_examples() {
  const std::vector<Head> heads = {
      {"odd sizes", {5}, 7, 3, false, 1},
      {"bias", {5}, 7, 3, true, 1},
      {"batch, scaled", {2, 3}, 19, 5, true, 0.1},
      {"some ignored", {7}, 11, 3, true, 0.25, 3},
      {"all ignored", {3}, 5, 2, true, 1, 1},
      {"one class", {4}, 1, 3, true, 1},
      {"one row", {1}, 37, 5, true, 1},
      {"width 1", {6}, 9, 1, true, 1},
      {"logits around 300", {9}, 13, 6, true, 0.5, 0, 11},
      {"a tile and a row", {129}, 37, 5, true, 1.0 / 129, 7, 1, 24},
      {"three tiles", {2, 141}, 67, 7, true, 1.0 / 282, 5, 1, 24},
  };
  std::vector<GradCase> cases;
  for (size_t i = 0; i < heads.size(); ++i) cases.push_back(head_loss_case(heads[i], 1300 + 10 * i));
  return cases;
}

}  // namespace

void register_nn_ops() {
  static const bool once = [] {
    register_op("linear", linear_examples);
    register_op("gelu_mlp", gelu_mlp_examples);
    register_op("embed", embed_examples);
    register_op("head_loss", head_loss_examples);
    register_sequence_ops();
    register_token_shift();
    register_decay_gate();
    register_repeat_heads();
    register_recurrent_layers();
    register_attention_layers();
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace storytape
