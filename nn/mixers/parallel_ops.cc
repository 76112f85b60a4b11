#include "nn/mixers/parallel_ops.h"

#include "autograd/registry.h"

namespace storytape {

template <class T>
Var<T> segment_products(Var<T> gates) {
  const Shape shape = gates.shape();
  if (shape.rank() != 3) fail("segment_products: the gates are {}, wanted 3 axes", to_string(shape));
  const size_t blocks = shape[0], n = shape[1], width = shape[2];
  Tensor<T> D = Tensor<T>::zeros({blocks, n, n, width});
  const auto row = [n, width](auto* x, size_t b, size_t r, size_t j) {
    return x + ((b * n + r) * n + j) * width;
  };
  const T* g = gates.value().data();
  for (size_t b = 0; b < blocks; ++b) {
    for (size_t r = 0; r < n; ++r) {
      for (size_t c = 0; c < width; ++c) row(D.data(), b, r, r)[c] = T{1};
      for (size_t j = 0; j < r; ++j) {
        for (size_t c = 0; c < width; ++c) {
          row(D.data(), b, r, j)[c] = g[(b * n + r) * width + c] * row(D.data(), b, r - 1, j)[c];
        }
      }
    }
  }
  const Tensor<T> saved = D;
  return gates.tape().record("segment_products", std::move(D), {gates},
                             [gates, saved, blocks, n, width, row](const Grads<T>& grads) {
                               const T* g_in = gates.value().data();
                               Tensor<T> d_gates = Tensor<T>::zeros(gates.shape());
                               Tensor<T> dD = grads.one();  // rows gather what later rows were made of
                               T* d = dD.data();
                               for (size_t b = 0; b < blocks; ++b) {
                                 for (size_t r = n; r-- > 1;) {
                                   for (size_t j = 0; j < r; ++j) {
                                     for (size_t c = 0; c < width; ++c) {
                                       // forward:  D[r, j] = g[r] * D[r-1, j]
                                       const T dy = row(d, b, r, j)[c];
                                       d_gates[(b * n + r) * width + c] +=
                                           dy * row(saved.data(), b, r - 1, j)[c];
                                       row(d, b, r - 1, j)[c] += dy * g_in[(b * n + r) * width + c];
                                     }
                                   }
                                 }
                               }
                               gates.accumulate(std::move(d_gates));
                             });
}

template <class T>
Var<T> solve_unit_lower(Var<T> A, Var<T> R) {
  const Shape a = A.shape(), rhs = R.shape();
  if (a.rank() != 3 || rhs.rank() != 3 || a[1] != a[2] || a[0] != rhs[0] || a[1] != rhs[1]) {
    fail("solve_unit_lower: A is {} and R {}, wanted [M, N, N] and [M, N, C]", to_string(a), to_string(rhs));
  }
  const size_t blocks = rhs[0], n = rhs[1], width = rhs[2];
  Tensor<T> X = R.value();
  const auto at = [n, width](auto* x, size_t b, size_t r) { return x + (b * n + r) * width; };
  T* x = X.data();
  for (size_t b = 0; b < blocks; ++b) {
    for (size_t r = 1; r < n; ++r) {
      for (size_t j = 0; j < r; ++j) {
        const T factor = A.value()[(b * n + r) * n + j];
        for (size_t c = 0; c < width; ++c) at(x, b, r)[c] -= factor * at(x, b, j)[c];
      }
    }
  }
  const Tensor<T> saved = X;
  return A.tape().record("solve_unit_lower", std::move(X), {A, R},
                         [A, R, saved, blocks, n, width, at](const Grads<T>& grads) {
                           // forward:  X = (I + A)⁻¹ R;  dR = (I + A)⁻ᵀ dX,  dA = -dR Xᵀ below the diagonal
                           Tensor<T> dR = grads.one();
                           T* d = dR.data();
                           Tensor<T> dA = Tensor<T>::zeros(A.shape());
                           for (size_t b = 0; b < blocks; ++b) {
                             for (size_t r = n; r-- > 0;) {
                               for (size_t j = 0; j < r; ++j) {
                                 const T factor = A.value()[(b * n + r) * n + j];
                                 T sum = 0;
                                 for (size_t c = 0; c < width; ++c) {
                                   sum -= at(d, b, r)[c] * at(saved.data(), b, j)[c];
                                   at(d, b, j)[c] -= factor * at(d, b, r)[c];
                                 }
                                 dA[(b * n + r) * n + j] = sum;
                               }
                             }
                           }
                           A.accumulate(std::move(dA));
                           R.accumulate(std::move(dR));
                         });
}

void register_parallel_ops() {
  using Complex = std::vector<ComplexTensor>;
  const auto segments = [](std::string name, size_t n, size_t width, double low) {
    NamedInput gates{"gates", example_uniform({2, n, width}, 520, low, 1)};
    if (low == 0 && n > 2) {
      gates.value[width] = 0;  // a hard reset
      gates.low = 0;
    }
    return make_case(
        std::move(name), {gates}, {"D"}, [](auto&, const auto& in) { return segment_products(in[0]); },
        [=](const Complex& in) {
          ComplexTensor D({2, n, n, width});
          for (size_t b = 0; b < 2; ++b) {
            for (size_t r = 0; r < n; ++r) {
              for (size_t j = 0; j <= r; ++j) {
                for (size_t c = 0; c < width; ++c) {
                  std::complex<double> product = 1;
                  for (size_t l = j + 1; l <= r; ++l) product *= in[0][(b * n + l) * width + c];
                  D[((b * n + r) * n + j) * width + c] = product;
                }
              }
            }
          }
          return D;
        });
  };
  const auto solve = [](std::string name, size_t n, size_t width) {
    return make_case(
        std::move(name),
        {{"A", example_normal({2, n, n}, 521, 0, 0.5)}, {"R", example_normal({2, n, width}, 522)}}, {"X"},
        [](auto&, const auto& in) { return solve_unit_lower(in[0], in[1]); },
        [=](const Complex& in) {
          ComplexTensor X = in[1];
          for (size_t b = 0; b < 2; ++b) {
            for (size_t r = 0; r < n; ++r) {
              for (size_t j = 0; j < r; ++j) {
                for (size_t c = 0; c < width; ++c) {
                  X[(b * n + r) * width + c] -= in[0][(b * n + r) * n + j] * X[(b * n + j) * width + c];
                }
              }
            }
          }
          return X;
        });
  };
  register_op("segment_products", [segments] {
    return std::vector<GradCase>{segments("1 token", 1, 3, 0.25), segments("a gate of 0", 5, 3, 0),
                                 segments("7 tokens", 7, 1, 0.25)};
  });
  register_op("solve_unit_lower", [solve] {
    return std::vector<GradCase>{solve("1 row", 1, 3), solve("6 rows", 6, 5)};
  });
}

template Var<float> segment_products(Var<float>);
template Var<double> segment_products(Var<double>);
template Var<float> solve_unit_lower(Var<float>, Var<float>);
template Var<double> solve_unit_lower(Var<double>, Var<double>);

}  // namespace storytape
