#include "tensor/elementwise.h"

#include <algorithm>
#include <array>

#include "tensor/reduce.h"

namespace storytape {

std::string to_string(Unary op) {
  switch (op) {
    case Unary::kExp:
      return "exp";
    case Unary::kLog:
      return "log";
    case Unary::kTanh:
      return "tanh";
    case Unary::kSigmoid:
      return "sigmoid";
    case Unary::kSoftplus:
      return "softplus";
    case Unary::kLogSigmoid:
      return "log_sigmoid";
    case Unary::kSilu:
      return "silu";
    case Unary::kGeluErf:
      return "gelu_erf";
    case Unary::kGeluTanh:
      return "gelu_tanh";
    case Unary::kEluPlusOne:
      return "elu_plus_one";
    case Unary::kSqrt:
      return "sqrt";
    case Unary::kSquare:
      return "square";
    case Unary::kNeg:
      return "neg";
    case Unary::kReciprocal:
      return "reciprocal";
  }
  return "unknown";
}

bool derivative_needs_output(Unary op) {
  return op == Unary::kExp || op == Unary::kEluPlusOne || op == Unary::kSqrt || op == Unary::kReciprocal;
}

bool derivative_needs_input(Unary op) {
  return op != Unary::kNeg && !derivative_needs_output(op);
}

template <class T>
Tensor<T> unary(Unary op, const Tensor<T>& x) {
  Tensor<T> y(x.shape());
  unary(op, x.data(), y.data(), x.size());
  return y;
}

namespace {

// One axis of a broadcast, after neighbours that behave alike are merged; a stride of 0 repeats the operand.
struct Axis {
  size_t size, a_stride, b_stride;
};

struct Plan {
  std::array<Axis, Shape::kMaxRank> axes;
  size_t rank = 0;  // the last axis is the innermost
};

// REQUIRES: a and b broadcast to `shape`.
Plan plan(const Shape& shape, const Shape& a, const Shape& b) {
  Plan p;
  size_t a_stride = 1;
  size_t b_stride = 1;
  // From the innermost axis outwards; turned round at the end.
  for (size_t i = 0; i < shape.rank(); ++i) {
    const size_t size = shape.back(i);
    if (size == 1) continue;
    const bool a_varies = i < a.rank() && a.back(i) != 1;
    const bool b_varies = i < b.rank() && b.back(i) != 1;
    Axis* last = p.rank ? &p.axes[p.rank - 1] : nullptr;
    if (last && (last->a_stride != 0) == a_varies && (last->b_stride != 0) == b_varies) {
      last->size *= size;
    } else {
      p.axes[p.rank++] = {size, a_varies ? a_stride : 0, b_varies ? b_stride : 0};
    }
    if (a_varies) a_stride *= size;
    if (b_varies) b_stride *= size;
  }
  std::reverse(p.axes.begin(), p.axes.begin() + static_cast<std::ptrdiff_t>(p.rank));
  return p;
}

template <class T>
Tensor<T> broadcast_binary(Binary op, const Tensor<T>& a, const Tensor<T>& b, const Shape& shape) {
  Tensor<T> y(shape);
  if (y.size() == 0) return y;
  const Plan p = plan(shape, a.shape(), b.shape());
  const Axis none{1, 0, 0};
  const Axis& inner = p.rank >= 1 ? p.axes[p.rank - 1] : none;
  const Axis& row = p.rank >= 2 ? p.axes[p.rank - 2] : none;
  const BinaryRows rows{row.size, inner.size, row.a_stride, inner.a_stride, row.b_stride, inner.b_stride};
  // The axes further out, by an odometer.
  const size_t outer = p.rank >= 2 ? p.rank - 2 : 0;
  std::array<size_t, Shape::kMaxRank> at{};
  const T* from_a = a.data();
  const T* from_b = b.data();
  const size_t step = row.size * inner.size;
  for (size_t to = 0; to < y.size(); to += step) {
    binary_rows(op, rows, from_a, from_b, y.data() + to);
    for (size_t axis = outer; axis-- > 0;) {
      const Axis& s = p.axes[axis];
      from_a += s.a_stride;
      from_b += s.b_stride;
      if (++at[axis] < s.size) break;
      at[axis] = 0;
      from_a -= s.size * s.a_stride;
      from_b -= s.size * s.b_stride;
    }
  }
  return y;
}

}  // namespace

template <class T>
Tensor<T> binary(Binary op, const Tensor<T>& a, const Tensor<T>& b) {
  return broadcast_binary(op, a, b, broadcast(a.shape(), b.shape()));
}

template <class T>
Tensor<T> broadcast_to(const Tensor<T>& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  if (!(broadcast(x.shape(), shape) == shape)) {
    fail("a tensor {} doesn't broadcast to {}", to_string(x.shape()), to_string(shape));
  }
  return broadcast_binary(Binary::kMul, x, Tensor<T>(Shape{}, T{1}), shape);
}

template <class T>
Tensor<T> reduce_to(const Tensor<T>& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  if (!(broadcast(shape, x.shape()) == x.shape())) {
    fail("a tensor {} can't be reduced to {}", to_string(x.shape()), to_string(shape));
  }
  Tensor<T> result = x;
  // Axes from the innermost outwards: runs of repeated axes are summed as one; `inner` counts what is kept
  // further in, `outer` what lies further out.
  size_t inner = 1;
  size_t outer = x.size();
  size_t i = 0;
  const size_t rank = x.rank();
  const auto repeated = [&](size_t axis) {
    return axis >= shape.rank() || shape.back(axis) != x.shape().back(axis);
  };
  if (x.size() == 0) return Tensor<T>::zeros(shape);
  while (i < rank) {
    if (!repeated(i)) {
      inner *= x.shape().back(i);
      outer /= x.shape().back(i++);
      continue;
    }
    size_t m = 1;
    while (i < rank && (repeated(i) || x.shape().back(i) == 1)) m *= x.shape().back(i++);
    outer /= m;
    Tensor<T> sums(Shape{outer, inner});
    sum_middle(result.data(), sums.data(), outer, m, inner);
    result = sums;
  }
  return result.reshape(shape);
}

#define STORYTAPE_INSTANTIATE(T)                                         \
  template Tensor<T> unary(Unary, const Tensor<T>&);                     \
  template Tensor<T> binary(Binary, const Tensor<T>&, const Tensor<T>&); \
  template Tensor<T> broadcast_to(const Tensor<T>&, const Shape&);       \
  template Tensor<T> reduce_to(const Tensor<T>&, const Shape&)
STORYTAPE_INSTANTIATE(float);
STORYTAPE_INSTANTIATE(double);
#undef STORYTAPE_INSTANTIATE

}  // namespace storytape
