#include "autograd/examples.h"

namespace storytape {
namespace {

using Complex = std::complex<double>;

const Shape kShapes[] = {{5, 7}, {9, 4}, {3, 1}, {1}, {7}, {2, 3, 13}, {2, 67}};

template <class Op>
std::vector<GradCase> softmax_cases(Op op, void (*row)(const Complex*, Complex*, size_t)) {
  std::vector<GradCase> cases;
  const auto add_case = [&](const std::string& example, const Tensor<double>& x) {
    cases.push_back(make_case(
        example, {{"x", x}}, {"y"}, [op](auto&, const auto& in) { return op(in[0]); },
        [row](const ComplexInputs& in) { return reference::by_rows(in[0], row); }));
  };
  for (const Shape& shape : kShapes) add_case(to_string(shape), example_normal(shape, 300, 0, 2));
  add_case("logits around 1e4", example_normal({3, 11}, 301, 1e4, 2));
  add_case("logits around -1e4", example_normal({3, 11}, 302, -1e4, 2));
  add_case("one logit far above", example_values({1, 4}, {0.5, 10, 1, -1}));
  cases.back().float_floor = 1;  // y(dy - <y, dy>) with y close to 1: a small difference of terms of size 1
  add_case("one logit far below", example_values({1, 4}, {0.5, -1e4, 1, -1}));
  return cases;
}

enum Parts { kPlain, kGamma, kGammaBeta };

// A norm at a point; which of gamma and beta are given.
GradCase norm_case(bool layer, const std::string& example, const Tensor<double>& x, Parts parts,
                   double epsilon) {
  const size_t n = x.shape().back();
  std::vector<NamedInput> inputs = {{"x", x}};
  if (parts != kPlain) inputs.push_back({"gamma", example_normal({n}, 310, 1, 0.5)});
  if (parts == kGammaBeta) inputs.push_back({"beta", example_normal({n}, 311)});
  GradCase c = make_case(
      example, inputs, {"y"},
      [=]<class T>(Tape<T>&, const std::vector<Var<T>>& in) {
        const Var<T> gamma = parts != kPlain ? in[1] : Var<T>();
        const Var<T> beta = parts == kGammaBeta ? in[2] : Var<T>();
        return layer ? layer_norm(in[0], gamma, beta, epsilon) : rms_norm(in[0], gamma, epsilon);
      },
      [=](const ComplexInputs& in) {
        const Complex* gamma = parts != kPlain ? in[1].data() : nullptr;
        const Complex* beta = parts == kGammaBeta ? in[2].data() : nullptr;
        return reference::by_rows(in[0], [&](const Complex* row, Complex* y, size_t count) {
          if (layer) {
            reference::layer_norm(row, gamma, beta, epsilon, y, count);
          } else {
            reference::rms_norm(row, gamma, epsilon, y, count);
          }
        });
      });
  // One value alone is divided by its own size: its gradient is the difference of two terms of size 1/|x|.
  if (n == 1) c.float_floor = 1;
  return c;
}

std::vector<GradCase> norm_cases(bool layer) {
  std::vector<GradCase> cases;
  const Parts all = layer ? kGammaBeta : kGamma;
  for (const Shape& shape : kShapes) {
    cases.push_back(norm_case(layer, to_string(shape), example_normal(shape, 320), all, 1e-5));
    cases.push_back(norm_case(layer, to_string(shape) + " plain", example_normal(shape, 321), kPlain, 1e-5));
  }
  if (layer) cases.push_back(norm_case(layer, "gamma alone", example_normal({3, 9}, 322), kGamma, 1e-5));
  cases.push_back(norm_case(layer, "large epsilon", example_normal({3, 9}, 323), all, 0.5));
  cases.push_back(norm_case(layer, "small values", example_normal({3, 9}, 324, 0, 1e-3), all, 1e-5));
  cases.push_back(norm_case(layer, "large values", example_normal({3, 9}, 325, 0, 1e3), all, 1e-5));
  cases.push_back(norm_case(layer, "offset 100", example_normal({3, 9}, 326, 100, 1), all, 1e-5));
  // More rows than a kernel sums at once, and means that round in float.
  cases.push_back(norm_case(layer, "35 rows", example_normal({35, 5}, 327, layer ? 4096 : 0, 1), all, 1e-5));
  if (!layer) return cases;
  cases.push_back(norm_case(layer, "35 rows of one", example_normal({35, 1}, 328), all, 1e-5));
  // Here the row's mean rounds in float, and what the rounding leaves counts.
  cases.push_back(norm_case(layer, "offset 4096", example_normal({3, 9}, 329, 4096, 1), all, 1e-5));
  return cases;
}

}  // namespace

void register_norm_ops() {
  register_op("softmax",
              [] { return softmax_cases([](auto x) { return softmax(x); }, reference::softmax<Complex>); });
  register_op("log_softmax", [] {
    return softmax_cases([](auto x) { return log_softmax(x); }, reference::log_softmax<Complex>);
  });
  register_op("layer_norm", [] { return norm_cases(true); });
  register_op("rms_norm", [] { return norm_cases(false); });
}

}  // namespace storytape
