#include "autograd/ops_matmul.h"

#include <algorithm>

namespace storytape {
namespace {

constexpr Trans flip(Trans trans) {
  return trans == Trans::kYes ? Trans::kNo : Trans::kYes;
}

// A batch of row-major matrices; `each` elements lie between them, 0 if there is one for all.
template <class P>
struct Matrices {
  P data;
  size_t columns;
  size_t each;
};

// c[i] = beta·c[i] + op(a[i])·op(b[i]) for i < batch. Where c is one for all, it gets the sum over the batch.
template <class T>
void product(size_t batch, Trans trans_a, Trans trans_b, size_t m, size_t n, size_t k, Matrices<const T*> a,
             Matrices<const T*> b, T beta, Matrices<T*> c) {
  if (c.each || batch == 1) {
    gemm_batched(batch, trans_a, trans_b, m, n, k, T{1}, a.data, a.columns, a.each, b.data, b.columns, b.each,
                 beta, c.data, c.columns, c.each);
    return;
  }
  if (batch == 0 && beta == T{0}) std::fill_n(c.data, m * n, T{0});
  for (size_t i = 0; i < batch; ++i) {
    gemm(trans_a, trans_b, m, n, k, T{1}, a.data + i * a.each, a.columns, b.data + i * b.each, b.columns,
         i ? T{1} : beta, c.data, c.columns);
  }
}

// What a product of tensors comes to: sizes, and how the operands lie in batches.
struct Plan {
  size_t batch, m, n, k;
  size_t columns_a, columns_b;
  size_t each_a, each_b;  // 0: one for all batches
  Shape shape;
};

Plan plan(const Shape& a, const Shape& b, Trans trans_a, Trans trans_b) {
  const auto refuse = [&] {
    fail("matmul of {}{} and {}{}: want [..., m, k] and [..., k, n] with equal leading axes", to_string(a),
         trans_a == Trans::kYes ? " transposed" : "", to_string(b),
         trans_b == Trans::kYes ? " transposed" : "");
  };
  if (a.rank() < 2 || b.rank() < 2) refuse();
  Plan p;
  p.columns_a = a.back();
  p.columns_b = b.back();
  p.m = trans_a == Trans::kYes ? a.back(0) : a.back(1);
  p.k = trans_a == Trans::kYes ? a.back(1) : a.back(0);
  p.n = trans_b == Trans::kYes ? b.back(1) : b.back(0);
  const Shape leading_a(a.sizes().first(a.rank() - 2));
  const Shape leading_b(b.sizes().first(b.rank() - 2));
  if (p.k != (trans_b == Trans::kYes ? b.back(0) : b.back(1))) refuse();
  if (leading_a.rank() && leading_b.rank() && !(leading_a == leading_b)) refuse();
  p.shape = leading_a.rank() ? leading_a : leading_b;
  p.batch = p.shape.elements();
  p.each_a = leading_a.rank() ? p.m * p.k : 0;
  p.each_b = leading_b.rank() ? p.k * p.n : 0;
  p.shape.push_back(p.m);
  p.shape.push_back(p.n);
  // Rows of all batches times one matrix: a single product with more rows.
  if (!p.each_b && trans_a == Trans::kNo) {
    p.m *= p.batch;
    p.batch = 1;
    p.each_a = 0;
  }
  return p;
}

}  // namespace

template <class T>
Var<T> matmul(Var<T> a, Var<T> b, Trans trans_a, Trans trans_b) {
  const Plan p = plan(a.shape(), b.shape(), trans_a, trans_b);
  Tensor<T> y(p.shape);
  product<T>(p.batch, trans_a, trans_b, p.m, p.n, p.k, {a.value().data(), p.columns_a, p.each_a},
             {b.value().data(), p.columns_b, p.each_b}, T{0}, {y.data(), p.n, p.m * p.n});

  return a.tape().record("matmul", std::move(y), {a, b}, [a, b, p, trans_a, trans_b](const Grads<T>& dy) {
    const Matrices<const T*> x = {a.value().data(), p.columns_a, p.each_a};
    const Matrices<const T*> w = {b.value().data(), p.columns_b, p.each_b};
    const Matrices<const T*> d = {dy.data(), p.n, p.m * p.n};
    // forward:  y = op(a)·op(b),  so  d op(a) = dy·op(b)ᵀ  and  d op(b) = op(a)ᵀ·dy;  a transposed operand
    // gets its gradient transposed: (dy·op(b)ᵀ)ᵀ = op(b)·dyᵀ.
    if (a.requires_grad()) {
      const GradSlot<T> slot = a.grad_slot();
      const Matrices<T*> da = {slot.data, p.columns_a, p.each_a};
      if (trans_a == Trans::kNo) {
        product<T>(p.batch, Trans::kNo, flip(trans_b), p.m, p.k, p.n, d, w, slot.beta(), da);
      } else {
        product<T>(p.batch, trans_b, Trans::kYes, p.k, p.m, p.n, w, d, slot.beta(), da);
      }
    }
    if (b.requires_grad()) {
      const GradSlot<T> slot = b.grad_slot();
      const Matrices<T*> db = {slot.data, p.columns_b, p.each_b};
      if (trans_b == Trans::kNo) {
        product<T>(p.batch, flip(trans_a), Trans::kNo, p.k, p.n, p.m, x, d, slot.beta(), db);
      } else {
        product<T>(p.batch, Trans::kYes, trans_a, p.n, p.k, p.m, d, x, slot.beta(), db);
      }
    }
  });
}

template Var<float> matmul(Var<float>, Var<float>, Trans, Trans);
template Var<double> matmul(Var<double>, Var<double>, Trans, Trans);

}  // namespace storytape
