#include "nn/short_convolution.h"

#include "nn/kernels/short_convolution.h"
#include "tensor/index.h"

namespace storytape {
namespace {

template <class T>
Tensor<T> value_or_none(Var<T> x) {
  return x.defined() ? x.value() : Tensor<T>();
}

// `w` is checked as [C, K], the result's is to be set. b and state may be undefined.
template <class T>
ShortConvolutionArgs<T> checked_args(const Tensor<T>& x, const Tensor<T>& w, const Tensor<T>& b,
                                     const Tensor<T>& state, const ShortConvolutionOptions& options) {
  const char* op = "short_convolution";
  if (x.rank() != 3) fail("{}: x wants 3 axes [batch, tokens, channels], got {}", op, to_string(x.shape()));
  const size_t channels = x.size(2);
  if (w.rank() != 2 || w.size(0) != channels) {
    fail("{}: x {} wants w [{}, width], got {}", op, to_string(x.shape()), channels, to_string(w.shape()));
  }
  const size_t width = w.size(1);
  if (width == 0) fail("{}: w is {}, the width 0; wanted at least 1", op, to_string(w.shape()));
  if (b.defined() && !(b.shape() == Shape{channels})) {
    fail("{}: the bias is {}, wanted [{}]", op, to_string(b.shape()), channels);
  }
  const Shape want_state{x.size(0), width - 1, channels};
  if (state.defined() && !(state.shape() == want_state)) {
    fail("{}: the state is {}, wanted {} beside x {} and a width of {}", op, to_string(state.shape()),
         to_string(want_state), to_string(x.shape()), width);
  }
  return {x.size(0),
          x.size(1),
          channels,
          width,
          options.silu,
          x.data(),
          nullptr,
          b.defined() ? b.data() : nullptr,
          state.defined() ? state.data() : nullptr};
}

// What the backward keeps: the inputs.
template <class T>
struct Saved {
  ShortConvolutionOptions options;
  Var<T> x, w, b, state;

  void backward(const Grads<T>& grads) const {
    const Tensor<T> bias = value_or_none(b), before = value_or_none(state), taps = transpose(w.value());
    ShortConvolutionArgs<T> args = checked_args(x.value(), w.value(), bias, before, options);
    args.w = taps.data();
    Tensor<T> dz({args.tokens, args.channels});
    Tensor<T> dw(taps.shape(), T{0}), db({args.channels}, T{0});
    const auto slot = [](const Var<T>& var) {
      if (!var.defined() || !var.requires_grad()) return ShortConvolutionGrad<T>{};
      const GradSlot<T> place = var.grad_slot();
      return ShortConvolutionGrad<T>{place.data, !place.fresh};
    };
    ShortConvolutionGrads<T> to;
    to.x = slot(x);
    to.state = slot(state);
    to.w = w.requires_grad() ? dw.data() : nullptr;
    to.bias = b.defined() && b.requires_grad() ? db.data() : nullptr;
    const auto data_or_null = [](const Tensor<T>& d) { return d.defined() ? d.data() : nullptr; };
    short_convolution_backward(args, data_or_null(grads[0]), data_or_null(grads[1]), dz.data(), to);
    if (to.w) w.accumulate(transpose(dw));
    if (to.bias) b.accumulate(db);
  }
};

}  // namespace

template <class T>
ShortConvolutionResult<T> short_convolution(Var<T> x, Var<T> w, Var<T> b, Var<T> state,
                                            const ShortConvolutionOptions& options) {
  const Tensor<T> bias = value_or_none(b), before = value_or_none(state);
  ShortConvolutionArgs<T> args = checked_args(x.value(), w.value(), bias, before, options);
  const Tensor<T> taps = transpose(w.value());
  args.w = taps.data();
  Tensor<T> y(x.shape()), next({args.batch, args.width - 1, args.channels});
  short_convolution_forward(args, y.data(), next.data());

  Tensor<T> values[] = {std::move(y), std::move(next)};
  Var<T> outs[2];
  const Var<T> inputs[] = {x, w, b, state};
  const Saved<T> saved{options, x, w, b, state};
  x.tape().record_many("short_convolution", std::span<Tensor<T>>(values), std::span<const Var<T>>(inputs),
                       std::span<Var<T>>(outs), [saved](const Grads<T>& grads) { saved.backward(grads); });
  return {outs[0], outs[1]};
}

template <class T>
State<T> short_convolution_state(size_t batch, size_t channels, size_t width) {
  if (width == 0) fail("short_convolution: the width is 0, wanted at least 1");
  State<T> state;
  state.add("rows", Tensor<T>::zeros({batch, width - 1, channels}));
  return state;
}

template <class T>
Tensor<T> short_convolution_extend(State<T>& state, const Tensor<T>& x, const Tensor<T>& w,
                                   const Tensor<T>& b, const ShortConvolutionOptions& options) {
  Tensor<T>& rows = state["rows"];
  ShortConvolutionArgs<T> args = checked_args(x, w, b, std::as_const(rows), options);
  const Tensor<T> taps = transpose(w);
  args.w = taps.data();
  Tensor<T> y(x.shape());
  // Takes a buffer of its own first, if a snapshot shares it.
  T* const next = rows.data();
  args.state = next;
  short_convolution_forward(args, y.data(), next);
  state.length += args.tokens;
  return y;
}

#define STORYTAPE_SHORT_CONVOLUTION(T)                                                       \
  template ShortConvolutionResult<T> short_convolution(Var<T>, Var<T>, Var<T>, Var<T>,       \
                                                       const ShortConvolutionOptions&);      \
  template State<T> short_convolution_state(size_t, size_t, size_t);                         \
  template Tensor<T> short_convolution_extend(State<T>&, const Tensor<T>&, const Tensor<T>&, \
                                              const Tensor<T>&, const ShortConvolutionOptions&);
STORYTAPE_SHORT_CONVOLUTION(float)
STORYTAPE_SHORT_CONVOLUTION(double)
#undef STORYTAPE_SHORT_CONVOLUTION

}  // namespace storytape
