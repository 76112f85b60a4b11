#include "autograd/examples.h"

namespace storytape {
namespace {

const Shape kShapes[] = {{5, 7}, {1}, {2, 3, 13}, {3, 1, 37}};

// The op along every axis of every shape, with and without the axis kept. f(first, stride, n) reduces a line.
template <class Op, class Reference>
void along_axes(std::vector<GradCase>& cases, Op op, Reference f) {
  for (const Shape& shape : kShapes) {
    for (size_t axis = 0; axis < shape.rank(); ++axis) {
      const bool keep = (shape.rank() + axis) % 2 == 0;
      cases.push_back(make_case(
          fmt::format("{} axis {}{}", to_string(shape), axis, keep ? " kept" : ""),
          {{"x", example_normal(shape, 200 + axis)}}, {"y"},
          [op, axis, keep](auto&, const auto& in) { return op(in[0], axis, keep); },
          [f, axis, keep](const ComplexInputs& in) { return reference::reduce(in[0], axis, keep, f); }));
    }
  }
}

// The op over all elements.
template <class Op, class Reference>
void over_all(std::vector<GradCase>& cases, Op op, Reference f, const std::vector<Shape>& shapes) {
  for (const Shape& shape : shapes) {
    cases.push_back(make_case(
        to_string(shape) + " all", {{"x", example_normal(shape, 210)}}, {"y"},
        [op](auto&, const auto& in) { return op(in[0]); },
        [f](const ComplexInputs& in) {
          ComplexTensor y{Shape()};
          y[0] = f(in[0].data(), 1, in[0].size());
          return y;
        }));
  }
}

using Complex = std::complex<double>;

Complex sum_of(const Complex* x, size_t stride, size_t n) {
  return reference::sum(x, stride, n);
}
Complex mean_of(const Complex* x, size_t stride, size_t n) {
  return reference::sum(x, stride, n) / static_cast<double>(n);
}
Complex max_of(const Complex* x, size_t stride, size_t n) {
  return reference::max(x, stride, n);
}

ComplexTensor cumsum_reference(const ComplexTensor& x, size_t axis) {
  const reference::Axis a(x.shape, axis);
  ComplexTensor y = x;
  for (size_t i = 0; i < x.size(); ++i) {
    if (i / a.inner % a.size != 0) y[i] += y[i - a.inner];
  }
  return y;
}

}  // namespace

void register_reduce_ops() {
  register_op("sum", [] {
    std::vector<GradCase> cases;
    along_axes(
        cases, [](auto x, size_t axis, bool keep) { return sum(x, axis, keep); }, sum_of);
    over_all(cases, [](auto x) { return sum(x); }, sum_of, {{5, 7}, {1}, {0, 3}, {}, {271}});
    return cases;
  });
  register_op("mean", [] {
    std::vector<GradCase> cases;
    along_axes(
        cases, [](auto x, size_t axis, bool keep) { return mean(x, axis, keep); }, mean_of);
    over_all(cases, [](auto x) { return mean(x); }, mean_of, {{5, 7}, {1}, {}, {271}});
    return cases;
  });
  register_op("max", [] {
    std::vector<GradCase> cases;
    along_axes(
        cases, [](auto x, size_t axis, bool keep) { return max(x, axis, keep); }, max_of);
    over_all(cases, [](auto x) { return max(x); }, max_of, {{5, 7}, {1}, {}, {271}});
    // Three equal maxima: a kink, which the check has to leave.
    cases.push_back(make_case(
        "ties", {{"x", example_values({5}, {1, 2, 2, 0, 2})}}, {"y"},
        [](auto&, const auto& in) { return max(in[0]); },
        [](const ComplexInputs& in) { return reference::reduce(in[0], 0, false, max_of); }));
    return cases;
  });
  register_op("cumsum", [] {
    std::vector<GradCase> cases;
    for (const Shape& shape : kShapes) {
      for (size_t axis = 0; axis < shape.rank(); ++axis) {
        cases.push_back(make_case(
            fmt::format("{} axis {}", to_string(shape), axis), {{"x", example_normal(shape, 220 + axis)}},
            {"y"}, [axis](auto&, const auto& in) { return cumsum(in[0], axis); },
            [axis](const ComplexInputs& in) { return cumsum_reference(in[0], axis); }));
      }
    }
    return cases;
  });
  register_op("log_sum_exp", [] {
    std::vector<GradCase> cases;
    for (const double offset : {0.0, 1e4, -1e4}) {
      for (const Shape& shape : {Shape{3, 7}, Shape{1}, Shape{2, 2, 19}}) {
        cases.push_back(make_case(
            fmt::format("{} around {}", to_string(shape), offset),
            {{"x", example_normal(shape, 230, offset, 1.5)}}, {"y"},
            [](auto&, const auto& in) { return log_sum_exp(in[0]); },
            [](const ComplexInputs& in) {
              return reference::reduce(
                  in[0], in[0].shape.rank() - 1, false,
                  [](const Complex* x, size_t, size_t n) { return reference::log_sum_exp(x, n); });
            }));
      }
    }
    return cases;
  });
}

}  // namespace storytape
