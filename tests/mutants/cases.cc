// Gradient checks of what no registered op takes: kernels' options and inputs that ops never meet in their
// examples.
#include "tests/mutants/cases.h"

#include <cmath>
#include <limits>

#include "autograd/ops.h"
#include "autograd/reference.h"
#include "autograd/registry.h"
#include "tensor/norm.h"
#include "tensor/reduce.h"

namespace storytape {
namespace {

using Complex = std::complex<double>;
using ComplexInputs = std::vector<ComplexTensor>;

// e^x·x/z where it is finite, else x: 0·∞ lies in wait in the backwards of exp, mul and div.
std::vector<GradCase> unselected() {
  const std::vector<double> chosen = {1, 0, 1, 0, 1};
  return {make_case(
      "infinite where not selected",
      {{"x", example_values({5}, {0.5, 800, -1, 800, 0.25})}, {"z", example_values({5}, {1, 1, 2, 0, -1})}},
      {"y"},
      [chosen]<class T>(Tape<T>&, const std::vector<Var<T>>& in) {
        Tensor<T> mask({5});
        for (size_t i = 0; i < 5; ++i) mask[i] = static_cast<T>(chosen[i]);
        return select(mask, div(mul(exp(in[0]), in[0]), in[1]), in[0]);
      },
      [chosen](const ComplexInputs& in) {
        ComplexTensor y(in[0].shape);
        for (size_t i = 0; i < 5; ++i)
          y[i] = chosen[i] != 0 ? std::exp(in[0][i]) * in[0][i] / in[1][i] : in[0][i];
        return y;
      })};
}

std::vector<GradCase> tanh_far_out() {
  return {make_case(
      "up to 500", {{"x", example_values({7}, {-500, -30, -0.5, 1, 44.5, 355, 400})}}, {"y"},
      [](auto&, const auto& in) { return tanh(in[0]); },
      [](const ComplexInputs& in) { return map(in[0], [](const Complex& x) { return std::tanh(x); }); })};
}

// A norm whose gradient overwrites the one that comes in.
template <class T>
Var<T> norm_in_place(bool layer, Var<T> x, Var<T> gamma, Var<T> beta) {
  constexpr T kEpsilon = static_cast<T>(1e-5);
  const size_t rows = x.shape()[0], n = x.shape()[1];
  Tensor<T> y(x.shape()), mean({rows}), rstd({rows});
  if (layer) {
    layer_norm(x.value().data(), gamma.value().data(), beta.value().data(), kEpsilon, y.data(), mean.data(),
               rstd.data(), rows, n);
  } else {
    rms_norm(x.value().data(), gamma.value().data(), kEpsilon, y.data(), rstd.data(), rows, n);
    for (size_t i = 0; i < y.size(); ++i) y[i] += std::as_const(beta.value())[i % n];
  }
  return x.tape().record("norm_in_place", y, {x, gamma, beta}, [=](const Grads<T>& dy) {
    Tensor<T> dx = dy.one().clone();
    Tensor<T> dgamma = Tensor<T>::zeros({n}), dbeta = Tensor<T>::zeros({n});
    if (layer) {
      layer_norm_backward(x.value().data(), gamma.value().data(), mean.data(), rstd.data(), dx.data(),
                          dx.data(), false, dgamma.data(), dbeta.data(), rows, n);
    } else {
      rms_norm_backward(x.value().data(), gamma.value().data(), rstd.data(), dx.data(), dx.data(), false,
                        dgamma.data(), rows, n);
      for (size_t i = 0; i < dx.size(); ++i) dbeta[i % n] += dy.data()[i];
    }
    x.accumulate(dx);
    gamma.accumulate(dgamma);
    beta.accumulate(dbeta);
  });
}

std::vector<GradCase> norms_in_place() {
  std::vector<GradCase> cases;
  for (const bool layer : {true, false}) {
    const double mean = layer ? 4096 : 0;  // rounds, so that the deviations' own mean counts
    cases.push_back(make_case(
        layer ? "layer norm" : "RMS norm",
        {{"x", example_normal({35, 5}, 900, mean, 1)},
         {"gamma", example_normal({5}, 901, 1, 0.5)},
         {"beta", example_normal({5}, 902)}},
        {"y"}, [layer](auto&, const auto& in) { return norm_in_place(layer, in[0], in[1], in[2]); },
        [layer](const ComplexInputs& in) {
          return reference::by_rows(in[0], [&](const Complex* row, Complex* y, size_t n) {
            if (layer) {
              reference::layer_norm(row, in[1].data(), in[2].data(), 1e-5, y, n);
            } else {
              reference::rms_norm(row, in[1].data(), 1e-5, y, n);
              for (size_t j = 0; j < n; ++j) y[j] += in[2][j];
            }
          });
        }));
    cases.back().samples = 24;
  }
  return cases;
}

// Σ e^x of each row, from the kernel of log Σ e^x; row 2 is masked.
template <class T>
Var<T> exp_log_sum_exp(Var<T> x) {
  const size_t rows = x.shape()[0], n = x.shape()[1];
  Tensor<T> z = x.value().clone();
  std::fill_n(z.data() + 2 * n, n, -std::numeric_limits<T>::infinity());
  Tensor<T> lse({rows}), y({rows});
  log_sum_exp(std::as_const(z).data(), lse.data(), rows, n);
  for (size_t i = 0; i < rows; ++i) y[i] = std::exp(std::as_const(lse)[i]);
  return x.tape().record("log_sum_exp_rows", y, {x}, [=](const Grads<T>& dy) {
    const GradSlot<T> dx = x.grad_slot();
    Tensor<T> g({rows});
    for (size_t i = 0; i < rows; ++i) g[i] = dy.data()[i] * y[i];
    log_sum_exp_backward(z.data(), lse.data(), std::as_const(g).data(), dx.data, rows, n, !dx.fresh);
  });
}

std::vector<GradCase> log_sum_exp_rows() {
  std::vector<GradCase> cases;
  for (const size_t n : {3, 19}) {
    cases.push_back(make_case(
        "a masked row, width " + std::to_string(n), {{"x", example_normal({4, n}, 910)}}, {"y"},
        [](auto&, const auto& in) { return exp_log_sum_exp(in[0]); },
        [n](const ComplexInputs& in) {
          ComplexTensor y(Shape{4});
          for (size_t i = 0; i < in[0].size(); ++i) y[i / n] += i / n == 2 ? Complex(0) : std::exp(in[0][i]);
          return y;
        }));
  }
  return cases;
}

}  // namespace

void register_mutant_cases() {
  register_op("unselected", unselected);
  register_op("tanh_far_out", tanh_far_out);
  register_op("norm_in_place", norms_in_place);
  register_op("log_sum_exp_rows", log_sum_exp_rows);
}

}  // namespace storytape
