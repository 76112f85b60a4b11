#include "nn/mixers/wkv.h"

#include <algorithm>
#include <array>
#include <limits>

#include "nn/mixers/kernels/wkv.h"

namespace storytape {
namespace {

template <class T>
const T* data_or_null(const Tensor<T>& tensor) {
  return tensor.defined() ? tensor.data() : nullptr;
}
template <class T>
Tensor<T> value_or_none(const Var<T>& var) {
  return var.defined() ? var.value() : Tensor<T>();
}

template <class T>
WkvInputs<T> checked(const Tensor<T>& w, const Tensor<T>& u, const Tensor<T>& k, const Tensor<T>& v,
                     const Tensor<T>& mean, const Tensor<T>& logden, const WkvOptions& options) {
  const auto want = [](const char* name, const Tensor<T>& tensor, const Shape& shape) {
    if (tensor.shape() == shape) return;
    fail("wkv: {} is {}, wanted {}", name, to_string(tensor.shape()), to_string(shape));
  };
  if (options.chunk == 0) fail("wkv: the chunk is 0 tokens long, wanted at least 1");
  if (k.rank() != 3) fail("wkv: k wants 3 axes [batch, tokens, channels], got {}", to_string(k.shape()));
  if (k.size() == 0) fail("wkv: k {} wants at least one element", to_string(k.shape()));
  const WkvShape shape{k.size(0), k.size(1), k.size(2)};
  want("v", v, k.shape());
  want("w", w, {shape.channels});
  want("u", u, {shape.channels});
  if (mean.defined() != logden.defined()) {
    fail("wkv: of an initial state the {} is missing", mean.defined() ? "logden" : "mean");
  }
  if (mean.defined()) {
    want("the initial mean", mean, {shape.batch, shape.channels});
    want("the initial logden", logden, {shape.batch, shape.channels});
  }
  for (size_t c = 0; c < shape.channels; ++c) {  // NaN goes on to the outputs, where it is looked for
    if (w[c] < 0) fail("wkv: w of channel {} is {}, wanted a decay of at least 0", c, w[c]);
  }
  return {shape,
          std::min(options.chunk, shape.tokens),
          w.data(),
          u.data(),
          k.data(),
          v.data(),
          data_or_null(mean),
          data_or_null(logden)};
}

// What the backward keeps: the op's inputs and, chunkwise, the states at the chunks' starts.
template <class T>
struct Saved {
  WkvOptions options;
  Var<T> w, u, k, v, mean_init, logden_init;
  Tensor<T> records;

  void backward(const Grads<T>& grads) const {
    const Tensor<T> mean_value = value_or_none(mean_init), logden_value = value_or_none(logden_init);
    const Tensor<T> d_o = grads[0].defined() ? grads[0] : Tensor<T>::zeros(k.shape());
    WkvBackward<T> args{};
    args.in = checked(w.value(), u.value(), k.value(), v.value(), mean_value, logden_value, options);
    args.records = data_or_null(records);
    args.d_o = d_o.data();
    args.d_mean = data_or_null(grads[1]);
    args.d_logden = data_or_null(grads[2]);
    // In the kernel's order, so that one variable in two places is first written, then added to.
    const auto slot = [](const Var<T>& var, T*& data, bool& add) {
      if (!var.requires_grad()) return;
      const GradSlot<T> place = var.grad_slot();
      data = place.data;
      add = !place.fresh;
    };
    slot(v, args.d_v, args.add_v);
    slot(k, args.d_k, args.add_k);
    const auto fresh = [](const Var<T>& var, T*& data) {
      Tensor<T> tensor;
      if (var.defined() && var.requires_grad()) {
        tensor = Tensor<T>(var.shape());
        data = tensor.data();
      }
      return tensor;
    };
    Tensor<T> d_w = fresh(w, args.d_w), d_u = fresh(u, args.d_u),
              d_mean_init = fresh(mean_init, args.d_mean_init),
              d_logden_init = fresh(logden_init, args.d_logden_init);

    options.face == Face::kChunkwise ? wkv_chunkwise_backward(args) : wkv_recurrent_backward(args);

    if (d_w.defined()) w.accumulate(std::move(d_w));
    if (d_u.defined()) u.accumulate(std::move(d_u));
    if (d_mean_init.defined()) mean_init.accumulate(std::move(d_mean_init));
    if (d_logden_init.defined()) logden_init.accumulate(std::move(d_logden_init));
  }
};

}  // namespace

template <class T>
WkvResult<T> wkv(Var<T> w, Var<T> u, Var<T> k, Var<T> v, Var<T> mean_init, Var<T> logden_init,
                 const WkvOptions& options) {
  const Tensor<T> mean_value = value_or_none(mean_init), logden_value = value_or_none(logden_init);
  WkvForward<T> args{};
  args.in = checked(w.value(), u.value(), k.value(), v.value(), mean_value, logden_value, options);
  if (options.face == Face::kParallel) return internal::wkv_parallel(w, u, k, v, mean_init, logden_init);

  const std::array<Var<T>, 6> inputs{w, u, k, v, mean_init, logden_init};
  bool keeps = false;
  for (const Var<T>& input : inputs) keeps = keeps || (k.tape().recording() && input.requires_grad());

  const WkvShape& shape = args.in.shape;
  std::array<Tensor<T>, 3> values{Tensor<T>(k.shape()), Tensor<T>({shape.batch, shape.channels}),
                                  Tensor<T>({shape.batch, shape.channels})};
  args.o = values[0].data();
  args.mean = values[1].data();
  args.logden = values[2].data();
  Tensor<T> records;
  if (options.face == Face::kChunkwise) {
    if (keeps) {
      const size_t chunks = (shape.tokens + args.in.chunk - 1) / args.in.chunk;
      records = Tensor<T>({shape.batch, chunks, wkv_record(shape)});
      args.records = records.data();
    }
    wkv_chunkwise_forward(args);
  } else {
    wkv_recurrent_forward(args);
  }

  Saved<T> saved{options, w, u, k, v, mean_init, logden_init, std::move(records)};
  std::array<Var<T>, 3> outputs;
  k.tape().record_many("wkv", std::span(values), inputs, std::span(outputs),
                       [saved = std::move(saved)](const Grads<T>& grads) { saved.backward(grads); });
  return {outputs[0], outputs[1], outputs[2]};
}

template <class T>
State<T> wkv_state(size_t batch, size_t channels) {
  State<T> state;
  state.add("mean", Tensor<T>::zeros({batch, channels}));
  state.add("logden", Tensor<T>({batch, channels}, -std::numeric_limits<T>::infinity()));
  return state;
}

template <class T>
Tensor<T> wkv_extend(State<T>& state, const Tensor<T>& w, const Tensor<T>& u, const Tensor<T>& k,
                     const Tensor<T>& v, const WkvOptions& options) {
  Tensor<T>&mean = state["mean"], &logden = state["logden"];
  WkvForward<T> args{};
  args.mean = mean.data();
  args.logden = logden.data();
  args.in = checked(w, u, k, v, mean, logden, options);
  Tensor<T> o(k.shape());
  args.o = o.data();
  k.size(1) == 1 ? wkv_recurrent_forward(args) : wkv_chunkwise_forward(args);
  state.length += k.size(1);
  return o;
}

#define STORYTAPE_INSTANTIATE(T)                                                                 \
  template WkvResult<T> wkv(Var<T>, Var<T>, Var<T>, Var<T>, Var<T>, Var<T>, const WkvOptions&);  \
  template State<T> wkv_state(size_t, size_t);                                                   \
  template Tensor<T> wkv_extend(State<T>&, const Tensor<T>&, const Tensor<T>&, const Tensor<T>&, \
                                const Tensor<T>&, const WkvOptions&)
STORYTAPE_INSTANTIATE(float);
STORYTAPE_INSTANTIATE(double);
#undef STORYTAPE_INSTANTIATE

}  // namespace storytape
