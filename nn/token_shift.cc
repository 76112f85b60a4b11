#include "nn/token_shift.h"

#include <algorithm>
#include <array>

#include "autograd/registry.h"
#include "nn/kernels/token_shift.h"
#include "nn/mixers/reference_wkv.h"

namespace storytape {
namespace {

template <class T>
TokenShiftInputs<T> checked(const Tensor<T>& x, const Tensor<T>& mu, const Tensor<T>& x_prev) {
  if (x.rank() != 3) {
    fail("token_shift: x wants 3 axes [batch, tokens, channels], got {}", to_string(x.shape()));
  }
  if (x.size() == 0) fail("token_shift: x {} wants at least one element", to_string(x.shape()));
  const auto want = [](const char* name, const Tensor<T>& tensor, const Shape& shape) {
    if (tensor.shape() == shape) return;
    fail("token_shift: {} is {}, wanted {}", name, to_string(tensor.shape()), to_string(shape));
  };
  want("mu", mu, {x.size(2)});
  if (x_prev.defined()) want("x_prev", x_prev, {x.size(0), x.size(2)});
  return {x.size(0), x.size(1), x.size(2), x.data(), mu.data(), x_prev.defined() ? x_prev.data() : nullptr};
}

template <class T>
Tensor<T> value_or_none(const Var<T>& var) {
  return var.defined() ? var.value() : Tensor<T>();
}

}  // namespace

template <class T>
TokenShiftResult<T> token_shift(Var<T> x, Var<T> mu, Var<T> x_prev) {
  const Tensor<T> before = value_or_none(x_prev);
  const TokenShiftInputs<T> in = checked(x.value(), mu.value(), before);
  std::array<Tensor<T>, 2> values{Tensor<T>(x.shape()), Tensor<T>({in.batch, in.channels})};
  token_shift_forward(in, values[0].data());
  T* last = values[1].data();
  for (size_t b = 0; b < in.batch; ++b) {
    std::copy_n(in.x + ((b + 1) * in.tokens - 1) * in.channels, in.channels, last + b * in.channels);  // (T2)
  }
  const std::array<Var<T>, 3> inputs{x, mu, x_prev};
  std::array<Var<T>, 2> outputs;
  x.tape().record_many("token_shift", std::span(values), inputs, std::span(outputs),
                       [x, mu, x_prev](const Grads<T>& grads) {
                         const Tensor<T> first = value_or_none(x_prev);
                         TokenShiftBackward<T> args{};
                         args.in = checked(x.value(), mu.value(), first);
                         const Tensor<T> d_y = grads[0].defined() ? grads[0] : Tensor<T>::zeros(x.shape());
                         args.d_y = d_y.data();
                         args.d_last = grads[1].defined() ? grads[1].data() : nullptr;
                         if (x.requires_grad()) {
                           const GradSlot<T> dx = x.grad_slot();
                           args.d_x = dx.data;
                           args.add_x = !dx.fresh;
                         }
                         Tensor<T> d_mu, d_x_prev;
                         if (mu.requires_grad()) {
                           d_mu = Tensor<T>(mu.shape());
                           args.d_mu = d_mu.data();
                         }
                         if (x_prev.defined() && x_prev.requires_grad()) {
                           d_x_prev = Tensor<T>(x_prev.shape());
                           args.d_x_prev = d_x_prev.data();
                         }
                         token_shift_backward(args);
                         if (d_mu.defined()) mu.accumulate(std::move(d_mu));
                         if (d_x_prev.defined()) x_prev.accumulate(std::move(d_x_prev));
                       });
  return {outputs[0], outputs[1]};
}

template TokenShiftResult<float> token_shift(Var<float>, Var<float>, Var<float>);
template TokenShiftResult<double> token_shift(Var<double>, Var<double>, Var<double>);

void register_token_shift() {
  const auto example = [](std::string name, const Shape& shape, bool state) {
    std::vector<NamedInput> inputs = {{"x", example_normal(shape, 730)},
                                      {"mu", example_uniform({shape[2]}, 731, -0.5, 1.5)}};
    if (state) inputs.push_back({"x_prev", example_normal({shape[0], shape[2]}, 732)});
    GradCase c = make_case(
        std::move(name), inputs, {"y", "last"},
        []<class T>(Tape<T>&, const std::vector<Var<T>>& in) {
          const TokenShiftResult<T> result = token_shift(in[0], in[1], in.size() > 2 ? in[2] : Var<T>());
          return std::vector<Var<T>>{result.y, result.last};
        },
        [shape](const std::vector<ComplexTensor>& in) {
          ComplexTensor y(shape), last({shape[0], shape[2]});
          reference::token_shift<std::complex<double>>(shape[0], shape[1], shape[2], in[0].data(),
                                                       in[1].data(), in.size() > 2 ? in[2].data() : nullptr,
                                                       y.data());
          for (size_t i = 0; i < last.size(); ++i) {
            last[i] = in[0][((i / shape[2] + 1) * shape[1] - 1) * shape[2] + i % shape[2]];
          }
          return std::vector<ComplexTensor>{y, last};
        });
    c.samples = shape.elements() > 100 ? 24 : 0;
    return c;
  };
  register_op("token_shift", [example] {
    return std::vector<GradCase>{example("one token", {2, 1, 5}, true),
                                 example("one token, none before", {2, 1, 5}, false),
                                 example("7 tokens", {2, 7, 5}, true),
                                 example("7 tokens, none before", {2, 7, 3}, false),
                                 example("wider than a vector", {1, 3, 37}, true),
                                 example("longer than a block", {2, 131, 3}, true)};
  });
}

}  // namespace storytape
