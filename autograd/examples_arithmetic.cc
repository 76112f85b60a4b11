#include "autograd/examples.h"

namespace storytape {
namespace {

struct Shapes {
  const char* example;
  Shape a, b;
};

// Every way in which one operand is repeated along the other.
const Shapes kBroadcasts[] = {
    {"equal shapes", {5, 7}, {5, 7}},
    {"row for all", {3, 4}, {1, 4}},
    {"row of lower rank", {3, 4}, {4}},
    {"column for all", {3, 4}, {3, 1}},
    {"column and row", {4, 1}, {1, 4}},
    {"last axis of four", {2, 1, 4, 19}, {2, 1, 4, 1}},
    {"middle axes", {2, 3, 1, 5}, {3, 2, 1}},
    {"value and row", {}, {5}},
    {"row and value", {5}, {}},
    {"width 1", {1}, {1}},
    {"wide rows", {2, 131}, {131}},
    {"no elements", {0, 3}, {3}},
};

// The same shapes for each op; the second operand from `low` to `high`.
template <class Op, class Reference>
std::vector<GradCase> broadcasting(Op op, Reference f, double low, double high) {
  std::vector<GradCase> cases;
  uint64_t seed = 10;
  for (const Shapes& s : kBroadcasts) {
    cases.push_back(make_case(
        s.example, {{"a", example_normal(s.a, seed)}, {"b", example_uniform(s.b, seed + 1, low, high)}},
        {"y"}, [op](auto&, const auto& in) { return op(in[0], in[1]); },
        [f](const ComplexInputs& in) { return reference::binary(in[0], in[1], f); }));
    // A sum over repeated elements may come out small by chance; its terms have size 1.
    cases.back().float_floor = 1;
    seed += 2;
  }
  return cases;
}

template <class Op, class Reference>
std::vector<GradCase> elementwise(Op op, Reference f) {
  std::vector<GradCase> cases;
  for (const Shape& shape : {Shape{5, 7}, Shape{1}, Shape{2, 3, 67}}) {
    cases.push_back(make_case(
        to_string(shape), {{"x", example_normal(shape, 40 + shape.rank())}}, {"y"},
        [op](auto&, const auto& in) { return op(in[0]); },
        [f](const ComplexInputs& in) { return map(in[0], f); }));
  }
  return cases;
}

std::vector<GradCase> select_examples() {
  std::vector<GradCase> cases;
  for (const Shape& shape : {Shape{5, 7}, Shape{1}, Shape{131}}) {
    const Tensor<double> mask = [&] {
      Tensor<double> m(shape);
      for (size_t i = 0; i < m.size(); ++i) m[i] = i % 3 == 1 ? 0.0 : 1.0;
      return m;
    }();
    cases.push_back(make_case(
        to_string(shape), {{"a", example_normal(shape, 50)}, {"b", example_normal(shape, 51)}}, {"y"},
        [mask]<class T>(Tape<T>&, const std::vector<Var<T>>& in) {
          return select(cast<T>(mask), in[0], in[1]);
        },
        [mask](const ComplexInputs& in) {
          ComplexTensor y(in[0].shape);
          for (size_t i = 0; i < y.size(); ++i) y[i] = mask[i] != 0 ? in[0][i] : in[1][i];
          return y;
        }));
  }
  return cases;
}

}  // namespace

void register_arithmetic_ops() {
  register_op("add", [] {
    return broadcasting([](auto a, auto b) { return add(a, b); }, [](auto a, auto b) { return a + b; }, -2,
                        2);
  });
  register_op("sub", [] {
    return broadcasting([](auto a, auto b) { return sub(a, b); }, [](auto a, auto b) { return a - b; }, -2,
                        2);
  });
  register_op("mul", [] {
    return broadcasting([](auto a, auto b) { return mul(a, b); }, [](auto a, auto b) { return a * b; }, -2,
                        2);
  });
  register_op("div", [] {
    return broadcasting([](auto a, auto b) { return div(a, b); }, [](auto a, auto b) { return a / b; }, -2,
                        -0.5);
  });
  register_op("neg", [] { return elementwise([](auto x) { return neg(x); }, [](auto x) { return -x; }); });
  register_op("scale", [] {
    return elementwise([](auto x) { return scale(x, -0.375); }, [](auto x) { return -0.375 * x; });
  });
  register_op("add_constant", [] {
    return elementwise([](auto x) { return add_constant(x, 1.25); }, [](auto x) { return x + 1.25; });
  });
  register_op("select", select_examples);
}

}  // namespace storytape
