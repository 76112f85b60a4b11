#include "autograd/examples.h"

namespace storytape {
namespace {

std::vector<GradCase> cross_entropy_examples() {
  std::vector<GradCase> cases;
  const auto add_case = [&](const std::string& example, const Tensor<double>& logits,
                            std::vector<int32_t> targets, int32_t ignore) {
    cases.push_back(make_case(
        example, {{"logits", logits}}, {"loss"},
        [targets, ignore](auto&, const auto& in) {
          return cross_entropy(in[0], std::span<const int32_t>(targets), ignore);
        },
        [targets, ignore](const ComplexInputs& in) {
          ComplexTensor loss{Shape()};
          loss[0] = reference::cross_entropy(in[0].data(), targets, in[0].shape.back(), ignore);
          return loss;
        }));
  };
  add_case("odd sizes", example_normal({5, 7}, 500), {0, 6, 3, 3, 1}, kIgnoreTarget);
  add_case("batch", example_normal({2, 3, 5}, 501), {0, 4, 1, 2, 2, 3}, kIgnoreTarget);
  add_case("some ignored", example_normal({4, 19}, 502), {-100, 18, -100, 0}, kIgnoreTarget);
  add_case("class 0 ignored", example_normal({4, 5}, 503), {0, 4, 0, 2}, 0);
  add_case("all ignored", example_normal({2, 5}, 504), {-100, -100}, kIgnoreTarget);
  add_case("one class", example_normal({3, 1}, 505), {0, 0, 0}, kIgnoreTarget);
  add_case("one row", example_normal({67}, 506), {66}, kIgnoreTarget);
  add_case("logits around 1e4", example_normal({3, 5}, 507, 1e4, 2), {1, 4, 0}, kIgnoreTarget);
  add_case("far apart", example_values({2, 3}, {1e4, 0, 0, -1e4, 0, 5}), {1, 2}, kIgnoreTarget);
  return cases;
}

std::vector<GradCase> dropout_examples() {
  std::vector<GradCase> cases;
  for (const double p : {0.0, 0.1, 0.5, 0.9}) {
    for (const Shape& shape : {Shape{5, 7}, Shape{1}}) {
      Random random(7, 3);
      random.seek(11);
      cases.push_back(make_case(
          fmt::format("{} p = {}", to_string(shape), p), {{"x", example_normal(shape, 510)}}, {"y"},
          [p, random](auto&, const auto& in) { return dropout(in[0], p, random); },
          [p, random](const ComplexInputs& in) {
            ComplexTensor y = in[0];
            Random draw = random;
            for (auto& v : y.values) v *= draw.uniform() >= p ? 1 / (1 - p) : 0.0;
            return y;
          }));
    }
  }
  return cases;
}

}  // namespace

void register_loss_ops() {
  register_op("cross_entropy", cross_entropy_examples);
  register_op("dropout", dropout_examples);
}

}  // namespace storytape
