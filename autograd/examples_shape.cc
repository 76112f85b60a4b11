#include "autograd/examples.h"

namespace storytape {
namespace {

using Permutation = std::vector<size_t>;

ComplexTensor transpose_reference(const ComplexTensor& x, const Permutation& permutation) {
  Shape shape = x.shape;
  for (size_t i = 0; i < shape.rank(); ++i) shape[i] = x.shape[permutation[i]];
  ComplexTensor y(shape);
  for (size_t i = 0; i < y.size(); ++i) {
    size_t from = 0;
    for (size_t axis = 0; axis < shape.rank(); ++axis) {
      const size_t position = i / shape.product(axis + 1, shape.rank()) % shape[axis];
      from += position * x.shape.product(permutation[axis] + 1, shape.rank());
    }
    y[i] = x[from];
  }
  return y;
}

// Copies x to or from [first, first + part's size) of an axis of the whole.
template <class Copy>
void for_each_in_slice(const Shape& whole, const Shape& part, size_t axis, size_t first, Copy copy) {
  const reference::Axis w(whole, axis), p(part, axis);
  for (size_t o = 0; o < p.outer; ++o) {
    for (size_t i = 0; i < p.size; ++i) {
      for (size_t j = 0; j < p.inner; ++j)
        copy((o * w.size + first + i) * w.inner + j, (o * p.size + i) * p.inner + j);
    }
  }
}

std::vector<GradCase> reshape_examples() {
  std::vector<GradCase> cases;
  const Shape pairs[][2] = {
      {{5, 7}, {35}}, {{35}, {7, 5}}, {{2, 3, 4}, {4, 1, 6}}, {{1}, {}}, {{0, 3}, {2, 0}}};
  for (const auto& [from, to] : pairs) {
    cases.push_back(make_case(
        to_string(from) + " to " + to_string(to), {{"x", example_normal(from, 400)}}, {"y"},
        [to = to](auto&, const auto& in) { return reshape(in[0], to); },
        [to = to](const ComplexInputs& in) {
          ComplexTensor y = in[0];
          y.shape = to;
          return y;
        }));
  }
  return cases;
}

std::vector<GradCase> transpose_examples() {
  std::vector<GradCase> cases;
  const std::pair<Shape, Permutation> all[] = {{{5, 7}, {1, 0}},        {{2, 3, 5}, {2, 0, 1}},
                                               {{2, 3, 5}, {1, 2, 0}},  {{2, 3, 4, 5}, {0, 2, 1, 3}},
                                               {{3, 1, 7}, {0, 2, 1}},  {{5}, {0}},
                                               {{2, 17, 19}, {0, 2, 1}}};
  for (const auto& [shape, permutation] : all) {
    cases.push_back(make_case(
        fmt::format("{} by {}", to_string(shape), to_string(Shape(std::span<const size_t>(permutation)))),
        {{"x", example_normal(shape, 410)}}, {"y"},
        [p = permutation](auto&, const auto& in) { return transpose(in[0], p); },
        [p = permutation](const ComplexInputs& in) { return transpose_reference(in[0], p); }));
  }
  cases.push_back(make_case(
      "last two", {{"x", example_normal({2, 3, 5}, 411)}}, {"y"},
      [](auto&, const auto& in) { return transpose(in[0]); },
      [](const ComplexInputs& in) {
        return transpose_reference(in[0], {0, 2, 1});
      }));
  return cases;
}

std::vector<GradCase> slice_examples() {
  std::vector<GradCase> cases;
  struct Slice {
    Shape shape;
    size_t axis, first, last;
  };
  const Slice all[] = {{{7, 5}, 0, 2, 5}, {{7, 5}, 1, 0, 3}, {{2, 7, 3}, 1, 4, 7}, {{2, 3, 19}, 2, 1, 18},
                       {{5}, 0, 0, 5},    {{5}, 0, 4, 5},    {{4, 3}, 0, 2, 2}};
  for (const Slice& s : all) {
    cases.push_back(make_case(
        fmt::format("{} axis {} [{}, {})", to_string(s.shape), s.axis, s.first, s.last),
        {{"x", example_normal(s.shape, 420)}}, {"y"},
        [s](auto&, const auto& in) { return slice(in[0], s.axis, s.first, s.last); },
        [s](const ComplexInputs& in) {
          Shape shape = s.shape;
          shape[s.axis] = s.last - s.first;
          ComplexTensor y(shape);
          for_each_in_slice(s.shape, shape, s.axis, s.first,
                            [&](size_t from, size_t to) { y[to] = in[0][from]; });
          return y;
        }));
  }
  return cases;
}

std::vector<GradCase> concat_examples() {
  std::vector<GradCase> cases;
  struct Parts {
    std::vector<Shape> shapes;
    size_t axis;
  };
  const Parts all[] = {{{{2, 5}, {3, 5}}, 0},
                       {{{2, 5}, {2, 1}, {2, 7}}, 1},
                       {{{2, 3, 2}, {2, 3, 2}}, 1},
                       {{{4}}, 0},
                       {{{0, 3}, {2, 3}}, 0}};
  for (const Parts& parts : all) {
    std::vector<NamedInput> inputs;
    std::string example;
    for (size_t i = 0; i < parts.shapes.size(); ++i) {
      inputs.push_back({fmt::format("x{}", i), example_normal(parts.shapes[i], 430 + i)});
      example += to_string(parts.shapes[i]) + " ";
    }
    cases.push_back(make_case(
        example + fmt::format("along {}", parts.axis), inputs, {"y"},
        [parts](auto&, const auto& in) { return concat(in, parts.axis); },
        [parts](const ComplexInputs& in) {
          Shape shape = parts.shapes[0];
          shape[parts.axis] = 0;
          for (const Shape& s : parts.shapes) shape[parts.axis] += s[parts.axis];
          ComplexTensor y(shape);
          size_t first = 0;
          for (const ComplexTensor& x : in) {
            for_each_in_slice(shape, x.shape, parts.axis, first,
                              [&](size_t to, size_t from) { y[to] = x[from]; });
            first += x.shape[parts.axis];
          }
          return y;
        }));
  }
  return cases;
}

std::vector<GradCase> gather_examples() {
  std::vector<GradCase> cases;
  struct Lookup {
    const char* example;
    size_t rows, width;
    std::vector<int32_t> ids;
  };
  const Lookup all[] = {{"repeated rows", 7, 5, {0, 3, 3, 6, 3, 0}},
                        {"first and last", 7, 3, {6, 0}},
                        {"all the same", 5, 19, {2, 2, 2, 2, 2, 2, 2, 2, 2}},
                        {"width 1", 3, 1, {1, 0, 1, 2}},
                        {"one row", 1, 4, {0, 0}},
                        {"no ids", 3, 4, {}}};
  for (const Lookup& l : all) {
    cases.push_back(make_case(
        l.example, {{"table", example_normal({l.rows, l.width}, 440)}}, {"y"},
        [l](auto&, const auto& in) { return gather_rows(in[0], std::span<const int32_t>(l.ids)); },
        [l](const ComplexInputs& in) {
          ComplexTensor y(Shape{l.ids.size(), l.width});
          for (size_t i = 0; i < y.size(); ++i) y[i] = in[0][l.ids[i / l.width] * l.width + i % l.width];
          return y;
        }));
  }
  return cases;
}

}  // namespace

void register_shape_ops() {
  register_op("reshape", reshape_examples);
  register_op("transpose", transpose_examples);
  register_op("slice", slice_examples);
  register_op("concat", concat_examples);
  register_op("gather_rows", gather_examples);
}

}  // namespace storytape
