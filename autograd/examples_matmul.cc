#include "autograd/examples.h"

namespace storytape {
namespace {

struct Product {
  const char* example;
  Shape leading_a, leading_b;
  size_t m, n, k;
};

const Product kProducts[] = {
    {"odd sizes", {}, {}, 5, 3, 7},
    {"1 x 1", {}, {}, 1, 1, 1},
    {"row times column", {}, {}, 1, 1, 13},
    {"column times row", {}, {}, 11, 5, 1},
    {"wider than a tile", {}, {}, 9, 35, 4},
    {"nothing to sum", {}, {}, 3, 2, 0},
    {"batch", {2, 3}, {2, 3}, 3, 2, 5},
    {"one right side for all", {2, 2}, {}, 3, 5, 4},
    {"one left side for all", {}, {3}, 3, 5, 4},
    {"empty batch", {0}, {}, 3, 5, 4},
};

Shape matrix(Shape leading, Trans trans, size_t rows, size_t columns) {
  leading.push_back(trans == Trans::kYes ? columns : rows);
  leading.push_back(trans == Trans::kYes ? rows : columns);
  return leading;
}

ComplexTensor reference_product(const Product& p, bool trans_a, bool trans_b, const ComplexInputs& in) {
  Shape shape = p.leading_a.rank() ? p.leading_a : p.leading_b;
  const size_t batch = shape.elements();
  shape.push_back(p.m);
  shape.push_back(p.n);
  ComplexTensor y(shape);
  for (size_t i = 0; i < batch; ++i) {
    reference::matmul(trans_a, trans_b, p.m, p.n, p.k,
                      in[0].data() + (p.leading_a.rank() ? i * p.m * p.k : 0),
                      in[1].data() + (p.leading_b.rank() ? i * p.k * p.n : 0), y.data() + i * p.m * p.n);
  }
  return y;
}

}  // namespace

void register_matmul_ops() {
  register_op("matmul", [] {
    std::vector<GradCase> cases;
    uint64_t seed = 100;
    for (const Product& p : kProducts) {
      for (const Trans ta : {Trans::kNo, Trans::kYes}) {
        for (const Trans tb : {Trans::kNo, Trans::kYes}) {
          const bool a = ta == Trans::kYes, b = tb == Trans::kYes;
          cases.push_back(make_case(
              fmt::format("{}, {}{}", p.example, a ? "A^T " : "A ", b ? "B^T" : "B"),
              {{"a", example_normal(matrix(p.leading_a, ta, p.m, p.k), seed)},
               {"b", example_normal(matrix(p.leading_b, tb, p.k, p.n), seed + 1)}},
              {"y"}, [ta, tb](auto&, const auto& in) { return matmul(in[0], in[1], ta, tb); },
              [p, a, b](const ComplexInputs& in) { return reference_product(p, a, b, in); }));
          seed += 2;
        }
      }
    }
    return cases;
  });
}

}  // namespace storytape
