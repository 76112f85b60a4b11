#include "nn/mixers/gated_recurrence.h"

#include <array>

#include "nn/mixers/kernels/gated.h"

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

// NaN goes on to the outputs, where it is looked for.
template <class T>
void check_range(const char* op, const char* name, const Tensor<T>& x, T high) {
  const T* data = x.data();
  int outside = 0;
  for (size_t i = 0; i < x.size(); ++i)
    outside |= static_cast<int>(data[i] < 0) | static_cast<int>(data[i] > high);
  for (size_t i = 0; outside && i < x.size(); ++i) {
    if (data[i] < 0 || data[i] > high) {
      fail("{}: {} holds {} at element {}, wanted numbers in [0, {}]", op, name, data[i], i, high);
    }
  }
}

template <class T>
GatedInputs<T> kernel_inputs(const Tensor<T>& q, const Tensor<T>& k, const Tensor<T>& v,
                             const Tensor<T>& alpha, const Tensor<T>& beta, const Tensor<T>& S,
                             const GatedOptions& options) {
  const GatedShape s{q.size(0), q.size(1), options.steps, q.size(2), q.size(3), v.size(3)};
  const GateKind kind = !alpha.defined()    ? GateKind::kNone
                        : alpha.rank() == 4 ? GateKind::kVector
                                            : GateKind::kScalar;
  return {s,
          kind,
          std::min(options.chunk, s.tokens),
          q.data(),
          k.data(),
          v.data(),
          data_or_null(alpha),
          data_or_null(beta),
          data_or_null(S)};
}

template <class T>
GatedInputs<T> checked(const char* op, const Tensor<T>& q, const Tensor<T>& k, const Tensor<T>& v,
                       const Tensor<T>& alpha, const Tensor<T>& beta, const Tensor<T>& S,
                       const GatedOptions& options) {
  const auto want = [op](const char* name, const Tensor<T>& tensor, const Shape& shape) {
    if (tensor.shape() == shape) return;
    fail("{}: {} is {}, wanted {}", op, name, to_string(tensor.shape()), to_string(shape));
  };
  if (options.chunk == 0) fail("{}: the chunk is 0 tokens long, wanted at least 1", op);
  if (options.steps == 0) fail("{}: 0 writes per token, wanted at least 1", op);
  if (q.rank() != 4 || v.rank() != 4) {
    fail("{}: q and v want 4 axes [batch, tokens, heads, size], got {} and {}", op, to_string(q.shape()),
         to_string(v.shape()));
  }
  if (q.size() == 0 || v.size() == 0) {
    fail("{}: q {} and v {} want at least one element", op, to_string(q.shape()), to_string(v.shape()));
  }
  const GatedShape s{q.size(0), q.size(1), options.steps, q.size(2), q.size(3), v.size(3)};
  const size_t writes = s.tokens * s.steps;
  want("k", k, {s.batch, writes, s.heads, s.dk});
  want("v", v, {s.batch, writes, s.heads, s.dv});
  if (alpha.defined()) {
    want("alpha", alpha, alpha.rank() == 4 ? q.shape() : Shape{s.batch, s.tokens, s.heads});
    check_range(op, "alpha", alpha, T{1});
  }
  if (beta.defined()) {
    want("beta", beta, {s.batch, writes, s.heads});
    check_range(op, "beta", beta, T{2});
  }
  if (S.defined()) want("the initial S", S, {s.batch, s.heads, s.dk, s.dv});
  return kernel_inputs(q, k, v, alpha, beta, S, options);
}

// What the backward keeps: the op's inputs and the states at the chunks' starts.
template <class T>
struct Saved {
  GatedOptions options;
  Var<T> q, k, v, alpha, beta, S_init;
  Shape o_shape;
  Tensor<T> records;

  void backward(const Grads<T>& grads) const {
    const Tensor<T> alpha_value = value_or_none(alpha), beta_value = value_or_none(beta),
                    S_value = value_or_none(S_init);
    const Tensor<T> d_o = grads[0].defined() ? grads[0] : Tensor<T>::zeros(o_shape);
    GatedBackward<T> args{};
    args.in = kernel_inputs(q.value(), k.value(), v.value(), alpha_value, beta_value, S_value, options);
    args.records = records.data();
    args.d_o = d_o.data();
    args.d_S = data_or_null(grads[1]);
    // In the kernel's order, so that one variable in two places is first written, then added to.
    const auto slot = [](const Var<T>& var, T*& data, bool& add) {
      if (!var.requires_grad()) return;
      const GradSlot<T> place = var.grad_slot();
      data = place.data;
      add = !place.fresh;
    };
    slot(q, args.d_q, args.add_q);
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
    Tensor<T> d_alpha = fresh(alpha, args.d_alpha), d_beta = fresh(beta, args.d_beta),
              d_S_init = fresh(S_init, args.d_S_init);

    options.face == Face::kChunkwise ? gated_chunkwise_backward(args) : gated_recurrent_backward(args);

    if (d_alpha.defined()) alpha.accumulate(std::move(d_alpha));
    if (d_beta.defined()) beta.accumulate(std::move(d_beta));
    if (d_S_init.defined()) S_init.accumulate(std::move(d_S_init));
  }
};

}  // namespace

template <class T>
GatedResult<T> gated_recurrence(const char* op, Var<T> q, Var<T> k, Var<T> v, Var<T> alpha, Var<T> beta,
                                Var<T> S_init, const GatedOptions& options) {
  const Tensor<T> alpha_value = value_or_none(alpha), beta_value = value_or_none(beta),
                  S_value = value_or_none(S_init);
  GatedForward<T> args{};
  args.in = checked(op, q.value(), k.value(), v.value(), alpha_value, beta_value, S_value, options);
  if (options.face == Face::kParallel) return internal::gated_parallel(q, k, v, alpha, beta, S_init, options);

  const std::array<Var<T>, 6> inputs{q, k, v, alpha, beta, S_init};
  bool keeps = false;
  for (const Var<T>& input : inputs) keeps = keeps || (q.tape().recording() && input.requires_grad());

  const GatedShape& s = args.in.shape;
  std::array<Tensor<T>, 2> values{Tensor<T>({s.batch, s.tokens, s.heads, s.dv}),
                                  Tensor<T>({s.batch, s.heads, s.dk, s.dv})};
  args.o = values[0].data();
  args.S = values[1].data();
  Tensor<T> records;
  if (keeps) {
    const size_t chunks = (s.tokens + args.in.chunk - 1) / args.in.chunk;
    records = Tensor<T>({s.batch, s.heads, chunks, s.dk, s.dv});
    args.records = records.data();
  }
  options.face == Face::kChunkwise ? gated_chunkwise_forward(args) : gated_recurrent_forward(args);

  Saved<T> saved{options, q, k, v, alpha, beta, S_init, values[0].shape(), records};
  std::array<Var<T>, 2> outputs;
  q.tape().record_many(op, std::span(values), inputs, std::span(outputs),
                       [saved = std::move(saved)](const Grads<T>& grads) { saved.backward(grads); });
  return {outputs[0], outputs[1]};
}

template <class T>
State<T> gated_state(size_t batch, size_t heads, size_t dk, size_t dv) {
  State<T> state;
  state.add("S", Tensor<T>::zeros({batch, heads, dk, dv}));
  return state;
}

template <class T>
Tensor<T> gated_extend(const char* op, State<T>& state, const Tensor<T>& q, const Tensor<T>& k,
                       const Tensor<T>& v, const Tensor<T>& alpha, const Tensor<T>& beta,
                       const GatedOptions& options) {
  Tensor<T>& S = state["S"];
  GatedForward<T> args{};
  T* S_out = S.data();
  args.in = checked(op, q, k, v, alpha, beta, S, options);
  const GatedShape& s = args.in.shape;
  Tensor<T> o({s.batch, s.tokens, s.heads, s.dv});
  args.o = o.data();
  args.S = S_out;
  args.in.S_init = S_out;
  s.tokens == 1 ? gated_recurrent_forward(args) : gated_chunkwise_forward(args);
  state.length += s.tokens;
  return o;
}

#define STORYTAPE_INSTANTIATE(T)                                                                        \
  template GatedResult<T> gated_recurrence(const char*, Var<T>, Var<T>, Var<T>, Var<T>, Var<T>, Var<T>, \
                                           const GatedOptions&);                                        \
  template State<T> gated_state(size_t, size_t, size_t, size_t);                                        \
  template Tensor<T> gated_extend(const char*, State<T>&, const Tensor<T>&, const Tensor<T>&,           \
                                  const Tensor<T>&, const Tensor<T>&, const Tensor<T>&, const GatedOptions&)
STORYTAPE_INSTANTIATE(float);
STORYTAPE_INSTANTIATE(double);
#undef STORYTAPE_INSTANTIATE

}  // namespace storytape
