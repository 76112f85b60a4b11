#include "nn/decay_gate.h"

#include <cmath>

#include "autograd/reference.h"
#include "autograd/registry.h"

namespace storytape {
namespace {

// log(1 + e^z); e^z itself where z is so small that 1 + e^z is 1.
template <class T>
T softplus(T z) {
  return z > 0 ? z + std::log1p(std::exp(-z)) : std::log1p(std::exp(z));
}
// Below -15 softplus is e^z to rounding, and e^z may vanish.
template <class T>
T log_softplus(T z) {
  return z < -15 ? z - std::exp(z) / 2 : std::log(softplus(z));
}

}  // namespace

template <class T>
Var<T> decay_gate(Var<T> x, Var<T> A_log, Var<T> bias) {
  const Shape shape = x.shape();
  if (shape.rank() == 0 || A_log.shape() != Shape{shape.back()}) {
    fail("decay_gate: x is {} and A_log {}, wanted [..., H] and [H]", to_string(shape),
         to_string(A_log.shape()));
  }
  const size_t heads = shape.back();
  if (bias.defined() && bias.shape() != Shape{heads}) {
    fail("decay_gate: the bias is {}, wanted [{}]", to_string(bias.shape()), heads);
  }
  const auto shifted = [x, bias, heads](size_t i) {
    return bias.defined() ? x.value()[i] + bias.value()[i % heads] : x.value()[i];
  };
  Tensor<T> alpha(shape);
  T* out = alpha.data();
  for (size_t i = 0; i < alpha.size(); ++i) {
    out[i] = std::exp(-std::exp(A_log.value()[i % heads] + log_softplus(shifted(i))));  // (M1)
  }
  return x.tape().record("decay_gate", std::move(alpha), {x, A_log, bias}, [=](const Grads<T>& grads) {
    Tensor<T> dx(shape), dA = Tensor<T>::zeros({heads}), dbias = Tensor<T>::zeros({heads});
    T *to_x = dx.data(), *to_A = dA.data(), *to_bias = dbias.data();
    for (size_t i = 0; i < dx.size(); ++i) {
      const size_t h = i % heads;
      const T z = shifted(i), rate = A_log.value()[h];
      const T l = rate + log_softplus(z), s = std::exp(l);
      const T dy = grads.data()[i];
      to_A[h] -= dy * std::exp(l - s);                    // (M2)
      to_x[i] = -dy * std::exp(rate - softplus(-z) - s);  // (M2), log sigmoid(z) = -softplus(-z)
      to_bias[h] += to_x[i];
    }
    x.accumulate(std::move(dx));
    A_log.accumulate(std::move(dA));
    if (bias.defined()) bias.accumulate(std::move(dbias));
  });
}

void register_decay_gate() {
  using Complex = std::vector<ComplexTensor>;
  const auto point = [](std::string name, const Shape& shape, double mean, bool has_bias) {
    const size_t heads = shape.back();
    std::vector<NamedInput> inputs = {{"x", example_normal(shape, 530, mean)},
                                      {"A_log", example_normal({heads}, 531, 0, 0.5)}};
    if (has_bias) inputs.push_back({"bias", example_normal({heads}, 532)});
    return make_case(
        std::move(name), inputs, {"alpha"},
        [has_bias]<class T>(Tape<T>&, const std::vector<Var<T>>& in) {
          return decay_gate(in[0], in[1], has_bias ? in[2] : Var<T>());
        },
        [=](const Complex& in) {
          ComplexTensor alpha(shape);
          for (size_t i = 0; i < alpha.size(); ++i) {
            const auto z = has_bias ? in[0][i] + in[2][i % heads] : in[0][i];
            const auto softplus_z =
                z.real() > 0 ? z + reference::log1p(std::exp(-z)) : reference::log1p(std::exp(z));
            alpha[i] = std::exp(-std::exp(in[1][i % heads]) * softplus_z);
          }
          return alpha;
        });
  };
  register_op("decay_gate", [point] {
    return std::vector<GradCase>{point("heads of 3", {2, 5, 3}, 0, true), point("no bias", {7, 2}, 0, false),
                                 point("one", {1}, 0, true), point("small steps", {4, 3}, -6, true),
                                 point("large steps", {4, 3}, 3, true)};
  });
}

template Var<float> decay_gate(Var<float>, Var<float>, Var<float>);
template Var<double> decay_gate(Var<double>, Var<double>, Var<double>);

}  // namespace storytape
