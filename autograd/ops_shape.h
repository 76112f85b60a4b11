// Ops that move values about: reshape, transpose, slice, concat, rows of a table. Axes count from 0.
#pragma once

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "tensor/elementwise.h"
#include "tensor/index.h"

namespace storytape {

// The same values under another shape of as many elements; shares the buffer.
template <class T>
Var<T> reshape(Var<T> x, const Shape& shape) {
  return x.tape().record("reshape", x.value().reshape(shape), {x},
                         [x](const Grads<T>& dy) { x.accumulate(dy.one().reshape(x.shape())); });
}

// y's axis i is x's axis permutation[i].
template <class T>
Var<T> transpose(Var<T> x, const std::vector<size_t>& permutation) {
  Tensor<T> y = transpose(x.value(), std::span<const size_t>(permutation));
  std::vector<size_t> inverse(permutation.size());
  for (size_t i = 0; i < inverse.size(); ++i) inverse[permutation[i]] = i;
  return x.tape().record("transpose", std::move(y), {x}, [x, inverse](const Grads<T>& dy) {
    x.accumulate(transpose(dy.one(), std::span<const size_t>(inverse)));
  });
}

// The last two axes swapped.
template <class T>
Var<T> transpose(Var<T> x) {
  const size_t rank = x.shape().rank();
  if (rank < 2) fail("transpose wants at least two axes, got {}", to_string(x.shape()));
  std::vector<size_t> permutation(rank);
  for (size_t i = 0; i < rank; ++i) permutation[i] = i;
  std::swap(permutation[rank - 1], permutation[rank - 2]);
  return transpose(x, permutation);
}

// A copy of elements [first, last) of an axis.
template <class T>
Var<T> slice(Var<T> x, size_t axis, size_t first, size_t last) {
  return x.tape().record(
      "slice", slice(x.value(), axis, first, last), {x}, [x, axis, first](const Grads<T>& dy) {
        const Shape& shape = x.shape();
        const size_t inner = shape.product(axis + 1, shape.rank());
        const size_t length = dy.one().shape()[axis] * inner;
        const GradSlot<T> dx = x.grad_slot();
        if (dx.fresh) std::fill_n(dx.data, shape.elements(), T{0});
        // forward:  y[o, i] = x[o, first + i]
        for (size_t o = 0; o < shape.product(0, axis); ++o) {
          add_into(dx.data + (o * shape[axis] + first) * inner, dy.data() + o * length, length);
        }
      });
}

// Tensors one after another along an axis; their other axes must be equal.
template <class T>
Var<T> concat(const std::vector<Var<T>>& parts, size_t axis) {
  if (parts.empty()) fail("concat wants at least one tensor");
  std::vector<Tensor<T>> values;
  for (const Var<T>& part : parts) values.push_back(part.value());
  Tensor<T> y = concat(std::span<const Tensor<T>>(values), axis);
  const std::span<const Var<T>> inputs(parts);
  return parts[0].tape().record("concat", std::move(y), inputs, [parts, axis](const Grads<T>& dy) {
    size_t first = 0;
    for (const Var<T>& part : parts) {
      const size_t last = first + part.shape()[axis];
      if (part.requires_grad()) part.accumulate(slice(dy.one(), axis, first, last));
      first = last;
    }
  });
}

// y[i] = table[ids[i]], table [rows, width], y [ids.size(), width]. An id outside the table is an Error that
// names its position and value.
template <class T>
Var<T> gather_rows(Var<T> table, std::span<const int32_t> ids) {
  const size_t rows = table.shape().rank() ? table.shape()[0] : 0;
  return table.tape().record(
      "gather_rows", gather_rows(table.value(), ids), {table},
      [table, rows, kept = std::vector<int32_t>(ids.begin(), ids.end())](const Grads<T>& dy) {
        const size_t size = table.value().size();
        const GradSlot<T> dt = table.grad_slot();
        if (dt.fresh) std::fill_n(dt.data, size, T{0});
        // forward:  y[i] = table[ids[i]];  a row that was taken twice collects both gradients
        scatter_add_rows(dt.data, rows, rows ? size / rows : 0, std::span<const int32_t>(kept), dy.data());
      });
}

// The value alone: no gradient flows through it.
template <class T>
Var<T> detach(Var<T> x) {
  return x.tape().constant(x.value());
}

}  // namespace storytape
