#include "nn/rope.h"

#include <cmath>

#include "nn/kernels/rope.h"

namespace storytape {
namespace {

// The call's sizes and its rows of the table.
template <class T>
RopeRows<T> checked_rows(const Shape& x, const RopeTable<T>& table, size_t offset) {
  if (x.rank() != 4) fail("rope: x wants 4 axes [batch, tokens, heads, size], got {}", to_string(x));
  if (table.width() > x[3]) {
    fail("rope: heads of {} channels in {} are narrower than the rotated width {}", x[3], to_string(x),
         table.width());
  }
  if (offset < table.first() || offset + x[1] > table.first() + table.count()) {
    fail("rope: positions [{}, {}) lie outside the table's [{}, {})", offset, offset + x[1], table.first(),
         table.first() + table.count());
  }
  const size_t skipped = (offset - table.first()) * table.width() / 2;
  return {x[0],
          x[1],
          x[2],
          x[3],
          table.width() / 2,
          table.pairs() == RopePairs::kNeighbours,
          table.cosines().data() + skipped,
          table.sines().data() + skipped};
}

}  // namespace

template <class T>
RopeTable<T>::RopeTable(size_t width, size_t first, size_t count, double base, RopePairs pairs)
    : first_(first), pairs_(pairs) {
  if (width == 0 || width % 2 != 0) fail("rope: the rotated width is {}, wanted an even number", width);
  if (!(base > 0) || std::isinf(base)) fail("rope: the base is {}, wanted a positive number", base);
  const size_t half = width / 2;
  cosines_ = Tensor<T>({count, half});
  sines_ = Tensor<T>({count, half});
  T* const cosines = cosines_.data();
  T* const sines = sines_.data();
  for (size_t i = 0; i < half; ++i) {
    const double frequency = std::pow(base, -static_cast<double>(2 * i) / static_cast<double>(width));
    for (size_t t = 0; t < count; ++t) {
      const double angle = static_cast<double>(first + t) * frequency;  // (P1)
      cosines[t * half + i] = static_cast<T>(std::cos(angle));
      sines[t * half + i] = static_cast<T>(std::sin(angle));
    }
  }
}

template <class T>
Tensor<T> rope(const Tensor<T>& x, const RopeTable<T>& table, size_t offset) {
  const RopeRows<T> rows = checked_rows(x.shape(), table, offset);
  Tensor<T> y(x.shape());
  rope_rotate(rows, x.data(), y.data());
  return y;
}

template <class T>
Var<T> rope(Var<T> x, const RopeTable<T>& table, size_t offset) {
  return x.tape().record("rope", rope(x.value(), table, offset), {x}, [=](const Grads<T>& dy) {
    // forward:  (P2)
    const GradSlot<T> dx = x.grad_slot();
    rope_rotate_back(checked_rows(x.shape(), table, offset), dy.data(), dx.data, !dx.fresh);
  });
}

template <class T>
Var<T> rope(Var<T> x, const RopeOptions& options) {
  const Shape& s = x.shape();
  if (s.rank() != 4) fail("rope: x wants 4 axes [batch, tokens, heads, size], got {}", to_string(s));
  const RopeTable<T> table(options.width ? options.width : s[3], options.offset, s[1], options.base,
                           options.pairs);
  return rope(x, table, options.offset);
}

#define STORYTAPE_ROPE(T)                                                 \
  template class RopeTable<T>;                                            \
  template Tensor<T> rope(const Tensor<T>&, const RopeTable<T>&, size_t); \
  template Var<T> rope(Var<T>, const RopeTable<T>&, size_t);              \
  template Var<T> rope(Var<T>, const RopeOptions&);
STORYTAPE_ROPE(float)
STORYTAPE_ROPE(double)
#undef STORYTAPE_ROPE

}  // namespace storytape
