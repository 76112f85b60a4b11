#include "autograd/examples.h"

namespace storytape {
namespace {

// Random points of [low, high] in several sizes, and each of `tails` alone, judged relative to its own size
// however small that is.
template <class Op, class Reference>
void register_unary(const char* name, Op op, Reference f, double low, double high,
                    const std::vector<double>& tails, double float_floor = 0) {
  const auto at = [&](const std::string& example, const Tensor<double>& x) {
    return make_case(
        example, {{"x", x}}, {"y"}, [op](auto&, const auto& in) { return op(in[0]); },
        [f](const ComplexInputs& in) { return map(in[0], f); });
  };
  register_op(name, [&] {
    std::vector<GradCase> cases;
    for (const Shape& shape : {Shape{5, 7}, Shape{1}, Shape{2, 3, 17}, Shape{0}}) {
      cases.push_back(at(to_string(shape), example_uniform(shape, 60 + shape.rank(), low, high)));
    }
    for (const double x : tails) {
      cases.push_back(at(fmt::format("x = {}", x), example_values({1}, {x})));
      cases.back().floor = 1e-200;
      cases.back().float_floor = float_floor;
    }
    return cases;
  });
}

}  // namespace

void register_unary_ops() {
  register_unary(
      "exp", [](auto x) { return exp(x); }, [](auto x) { return std::exp(x); }, -3, 3, {-80, -20, 20, 80});
  register_unary(
      "log", [](auto x) { return log(x); }, [](auto x) { return std::log(x); }, 0.1, 4, {1e-2, 0.9375, 1e4});
  register_unary(
      "sqrt", [](auto x) { return sqrt(x); }, [](auto x) { return std::sqrt(x); }, 0.1, 4, {1e-2, 1e4});
  register_unary(
      "square", [](auto x) { return square(x); }, [](auto x) { return reference::square(x); }, -3, 3,
      {-1e4, 1e-3});
  register_unary(
      "reciprocal", [](auto x) { return reciprocal(x); }, [](auto x) { return 1.0 / x; }, 0.3, 3,
      {-1e3, 1e-2});
  // Near ±1 tanh and sigmoid have no digits left for 1-y: their derivative is then exact to rounding of 1
  // only.
  register_unary(
      "tanh", [](auto x) { return tanh(x); }, [](auto x) { return std::tanh(x); }, -3, 3, {-4, 1e-3, 4});
  register_unary(
      "sigmoid", [](auto x) { return sigmoid(x); }, [](auto x) { return reference::sigmoid(x); }, -4, 4,
      {-80, -20, 6});
  register_unary(
      "softplus", [](auto x) { return softplus(x); }, [](auto x) { return reference::softplus(x); }, -4, 4,
      {-80, -20, 20, 1e4});
  register_unary(
      "log_sigmoid", [](auto x) { return log_sigmoid(x); }, [](auto x) { return reference::log_sigmoid(x); },
      -4, 4, {-1e4, -20, 20, 80});
  register_unary(
      "silu", [](auto x) { return silu(x); }, [](auto x) { return reference::silu(x); }, -4, 4,
      {-60, -20, 20, 1e4});
  // In float the tail of gelu_erf is exact to rounding of 1 only.
  register_unary(
      "gelu_erf", [](auto x) { return gelu_erf(x); }, [](auto x) { return reference::gelu_erf(x); }, -4, 4,
      {-10, -6, 6, 1e4}, 1);
  register_unary(
      "gelu_tanh", [](auto x) { return gelu_tanh(x); }, [](auto x) { return reference::gelu_tanh(x); }, -4, 4,
      {-8, 6, 1e3});
  // x = 0 and points a fraction of a step from it: the second derivative jumps there, which differences trip
  // over.
  register_unary(
      "elu_plus_one", [](auto x) { return elu_plus_one(x); },
      [](auto x) { return reference::elu_plus_one(x); }, -4, 4, {-80, 0, 0x1p-20, -0x1p-20, 1e4});
}

}  // namespace storytape
