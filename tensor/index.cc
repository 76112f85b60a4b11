#include "tensor/index.h"

#include <algorithm>
#include <array>

#include "tensor/elementwise.h"

namespace storytape {

void check_ids(std::span<const int32_t> ids, size_t count, const char* what) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || static_cast<size_t>(ids[i]) >= count) {
      fail("{} {} at position {} lies outside [0, {})", what, ids[i], i, count);
    }
  }
}

template <class T>
Tensor<T> gather_rows(const Tensor<T>& table, std::span<const int32_t> ids) {
  if (table.rank() != 2) fail("gather_rows wants a table [V, D], got {}", to_string(table.shape()));
  check_ids(ids, table.size(0));
  const size_t dim = table.size(1);
  Tensor<T> y({ids.size(), dim});
  for (size_t i = 0; i < ids.size(); ++i) {
    std::copy_n(table.data() + static_cast<size_t>(ids[i]) * dim, dim, y.data() + i * dim);
  }
  return y;
}

template <class T>
void scatter_add_rows(T* table, size_t vocab, size_t dim, std::span<const int32_t> ids, const T* rows) {
  check_ids(ids, vocab);
  for (size_t i = 0; i < ids.size(); ++i) {
    add_into(table + static_cast<size_t>(ids[i]) * dim, rows + i * dim, dim);
  }
}

template <class T>
void transpose_matrix(const T* from, size_t from_stride, T* to, size_t to_stride, size_t rows,
                      size_t columns) {
  // Tiles small enough that their lines of both matrices stay in the first cache level.
  constexpr size_t kTile = 16;
  for (size_t r = 0; r < rows; r += kTile) {
    const size_t r_end = std::min(rows, r + kTile);
    for (size_t c = 0; c < columns; c += kTile) {
      const size_t c_end = std::min(columns, c + kTile);
      for (size_t j = c; j < c_end; ++j) {
        for (size_t i = r; i < r_end; ++i) to[j * to_stride + i] = from[i * from_stride + j];
      }
    }
  }
}

namespace {

// An axis of the result: its size and the distance of its neighbours in the source and in the result.
struct CopyAxis {
  size_t size, from_stride, to_stride;
};

// Calls f(from offset, to offset) for every combination of the axes' indices.
template <class F>
void for_each_index(std::span<const CopyAxis> axes, const F& f) {
  std::array<size_t, Shape::kMaxRank> at{};
  size_t from = 0;
  size_t to = 0;
  while (true) {
    f(from, to);
    size_t axis = axes.size();
    while (true) {
      if (axis == 0) return;
      const CopyAxis& a = axes[--axis];
      from += a.from_stride;
      to += a.to_stride;
      if (++at[axis] < a.size) break;
      at[axis] = 0;
      from -= a.size * a.from_stride;
      to -= a.size * a.to_stride;
    }
  }
}

// The result's axes, outermost first, where neighbours that are neighbours in the source too are one.
size_t copy_axes(const Shape& shape, std::span<const size_t> permutation,
                 std::array<CopyAxis, Shape::kMaxRank>& axes) {
  size_t rank = 0;
  size_t to_stride = 1;
  for (size_t i = permutation.size(); i-- > 0;) {
    const size_t source = permutation[i];
    const size_t size = shape[source];
    const size_t from_stride = shape.product(source + 1, shape.rank());
    if (size != 1) {
      if (rank && axes[rank - 1].from_stride * axes[rank - 1].size == from_stride) {
        axes[rank - 1].size *= size;
      } else {
        axes[rank++] = {size, from_stride, to_stride};
      }
    }
    to_stride *= size;
  }
  std::reverse(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(rank));
  return rank;
}

}  // namespace

template <class T>
Tensor<T> transpose(const Tensor<T>& x, std::span<const size_t> permutation) {
  std::array<bool, Shape::kMaxRank> seen{};
  bool valid = permutation.size() == x.rank();
  for (size_t i = 0; valid && i < permutation.size(); ++i) {
    valid = permutation[i] < x.rank() && !seen[permutation[i]];
    if (valid) seen[permutation[i]] = true;
  }
  if (!valid) {
    fail("transpose of a tensor {} wants each axis once, got [{}]", to_string(x.shape()),
         fmt::join(permutation.begin(), permutation.end(), ", "));
  }
  Shape shape;
  for (const size_t axis : permutation) shape.push_back(x.size(axis));
  Tensor<T> y(shape);
  if (x.size() == 0) return y;

  std::array<CopyAxis, Shape::kMaxRank> axes{};
  size_t rank = copy_axes(x.shape(), permutation, axes);
  const T* from = x.data();
  T* to = y.data();
  if (rank == 0 || axes[rank - 1].from_stride == 1) {
    const size_t run = rank ? axes[--rank].size : 1;
    for_each_index({axes.data(), rank}, [&](size_t f, size_t t) { std::copy_n(from + f, run, to + t); });
    return y;
  }
  // Matrices spanned by the result's last axis and the source's.
  const CopyAxis last = axes[--rank];
  const auto unit = std::find_if(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(rank),
                                 [](const CopyAxis& a) { return a.from_stride == 1; });
  const CopyAxis column = *unit;
  std::copy(unit + 1, axes.begin() + static_cast<std::ptrdiff_t>(rank), unit);
  --rank;
  for_each_index({axes.data(), rank}, [&](size_t f, size_t t) {
    transpose_matrix(from + f, last.from_stride, to + t, column.to_stride, last.size, column.size);
  });
  return y;
}

template <class T>
Tensor<T> transpose(const Tensor<T>& x) {
  const size_t rank = x.rank();
  if (rank < 2) fail("transpose wants at least two axes, got {}", to_string(x.shape()));
  std::array<size_t, Shape::kMaxRank> permutation{};
  for (size_t i = 0; i < rank; ++i) permutation[i] = i;
  std::swap(permutation[rank - 1], permutation[rank - 2]);
  return transpose(x, std::span<const size_t>(permutation.data(), rank));
}

namespace {

// Where [first, first + size) of an axis lies: `count` runs of `length` values, `stride` apart, from `offset`
// on.
struct Runs {
  size_t count, length, stride, offset;
};

Runs runs_of(const Shape& whole, size_t axis, size_t first, size_t size) {
  const size_t inner = whole.product(axis + 1, whole.rank());
  return {whole.product(0, axis), size * inner, whole[axis] * inner, first * inner};
}

bool equal_but_for(const Shape& a, const Shape& b, size_t axis) {
  Shape c = b;
  if (a.rank() == b.rank()) c[axis] = a[axis];
  return a == c;
}

}  // namespace

template <class T>
Tensor<T> slice(const Tensor<T>& x, size_t axis, size_t first, size_t last) {
  if (axis >= x.rank() || first > last || last > x.size(axis)) {
    fail("slice [{}, {}) of axis {} lies outside a tensor {}", first, last, axis, to_string(x.shape()));
  }
  Shape shape = x.shape();
  shape[axis] = last - first;
  Tensor<T> y(shape);
  const Runs r = runs_of(x.shape(), axis, first, last - first);
  for (size_t i = 0; i < r.count; ++i) {
    std::copy_n(x.data() + i * r.stride + r.offset, r.length, y.data() + i * r.length);
  }
  return y;
}

template <class T>
void add_to_slice(Tensor<T>& whole, size_t axis, size_t first, const Tensor<T>& part) {
  if (axis >= whole.rank() || !equal_but_for(whole.shape(), part.shape(), axis) || first > whole.size(axis) ||
      part.size(axis) > whole.size(axis) - first) {
    fail("a tensor {} doesn't fit into one of {} from {} of axis {} on", to_string(part.shape()),
         to_string(whole.shape()), first, axis);
  }
  const Runs r = runs_of(whole.shape(), axis, first, part.size(axis));
  for (size_t i = 0; i < r.count; ++i) {
    add_into(whole.data() + i * r.stride + r.offset, part.data() + i * r.length, r.length);
  }
}

template <class T>
Tensor<T> concat(std::span<const Tensor<T>> parts, size_t axis) {
  if (parts.empty()) fail("concat wants at least one tensor");
  Shape shape = parts[0].shape();
  if (axis >= shape.rank()) fail("concat along axis {} of a tensor {}", axis, to_string(shape));
  shape[axis] = 0;
  for (const Tensor<T>& part : parts) {
    if (!equal_but_for(parts[0].shape(), part.shape(), axis)) {
      fail("concat along axis {}: a tensor {} doesn't fit to one of {}", axis, to_string(part.shape()),
           to_string(parts[0].shape()));
    }
    shape[axis] += part.size(axis);
  }
  Tensor<T> y(shape);
  size_t first = 0;
  for (const Tensor<T>& part : parts) {
    const Runs r = runs_of(shape, axis, first, part.size(axis));
    for (size_t i = 0; i < r.count; ++i) {
      std::copy_n(part.data() + i * r.length, r.length, y.data() + i * r.stride + r.offset);
    }
    first += part.size(axis);
  }
  return y;
}

#define STORYTAPE_INSTANTIATE(T)                                                          \
  template Tensor<T> gather_rows(const Tensor<T>&, std::span<const int32_t>);             \
  template void scatter_add_rows(T*, size_t, size_t, std::span<const int32_t>, const T*); \
  template void transpose_matrix(const T*, size_t, T*, size_t, size_t, size_t);           \
  template Tensor<T> transpose(const Tensor<T>&, std::span<const size_t>);                \
  template Tensor<T> transpose(const Tensor<T>&);                                         \
  template Tensor<T> slice(const Tensor<T>&, size_t, size_t, size_t);                     \
  template void add_to_slice(Tensor<T>&, size_t, size_t, const Tensor<T>&);               \
  template Tensor<T> concat(std::span<const Tensor<T>>, size_t)
STORYTAPE_INSTANTIATE(float);
STORYTAPE_INSTANTIATE(double);
#undef STORYTAPE_INSTANTIATE

}  // namespace storytape
