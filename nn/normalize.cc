#include "nn/normalize.h"

#include "nn/kernels/l2_normalize.h"

namespace storytape {
namespace {

// The kernel's epsilon, checked.
template <class T>
L2Rows<T> checked_rows(const Shape& x, L2Mode mode, double epsilon) {
  const internal::Rows r("l2_normalize", x);
  const T eps = static_cast<T>(epsilon);
  if (!(eps > 0) || std::isinf(eps)) fail("l2_normalize: epsilon is {}, wanted a positive number", epsilon);
  return {r.rows, r.n, mode == L2Mode::kClamp, eps};
}

}  // namespace

template <class T>
Tensor<T> l2_normalize(const Tensor<T>& x, L2Mode mode, double epsilon) {
  const L2Rows<T> rows = checked_rows<T>(x.shape(), mode, epsilon);
  Tensor<T> y(x.shape()), r({rows.rows});
  l2_normalize_forward(rows, x.data(), y.data(), r.data());
  return y;
}

template <class T>
Var<T> l2_normalize(Var<T> x, L2Mode mode, double epsilon) {
  const L2Rows<T> rows = checked_rows<T>(x.shape(), mode, epsilon);
  Tensor<T> y(x.shape()), r({rows.rows});
  l2_normalize_forward(rows, x.value().data(), y.data(), r.data());
  return x.tape().record("l2_normalize", y, {x}, [x, y, r, rows](const Grads<T>& dy) {
    // forward:  (D1)
    const GradSlot<T> dx = x.grad_slot();
    l2_normalize_backward(rows, y.data(), r.data(), dy.data(), dx.data, !dx.fresh);
  });
}

#define STORYTAPE_NORMALIZE(T)                          \
  template Var<T> l2_normalize(Var<T>, L2Mode, double); \
  template Tensor<T> l2_normalize(const Tensor<T>&, L2Mode, double);
STORYTAPE_NORMALIZE(float)
STORYTAPE_NORMALIZE(double)
#undef STORYTAPE_NORMALIZE

}  // namespace storytape
