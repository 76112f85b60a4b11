#include "nn/mixers/linear_attention.h"

#include <array>
#include <cmath>

#include "nn/mixers/kernels/decay.h"

namespace storytape {
namespace {

template <class T>
DecayShape checked_shape(const Tensor<T>& q, const Tensor<T>& k, const Tensor<T>& v, const Tensor<T>& gamma,
                         const Tensor<T>& S, const Tensor<T>& z, const LinearAttentionOptions& options) {
  const auto want = [](const char* name, const Tensor<T>& tensor, const Shape& shape) {
    if (tensor.shape() == shape) return;
    fail("linear_attention: {} is {}, wanted {}", name, to_string(tensor.shape()), to_string(shape));
  };
  if (q.rank() != 4 || v.rank() != 4) {
    fail("linear_attention: q and v want 4 axes [batch, tokens, heads, size], got {} and {}",
         to_string(q.shape()), to_string(v.shape()));
  }
  const DecayShape shape{q.size(0), q.size(1), q.size(2), q.size(3), v.size(3)};
  if (q.size() == 0 || v.size() == 0) {
    fail("linear_attention: q {} and v {} want at least one element", to_string(q.shape()),
         to_string(v.shape()));
  }
  want("k", k, q.shape());
  want("v", v, {shape.batch, shape.tokens, shape.heads, shape.dv});
  if (gamma.defined()) want("gamma", gamma, {shape.heads});
  if (S.defined()) want("the initial S", S, {shape.batch, shape.heads, shape.dk, shape.dv});
  if (z.defined()) {
    if (!options.normalise) fail("linear_attention: an initial z is given, but nothing is normalised");
    want("the initial z", z, {shape.batch, shape.heads, shape.dk});
  }
  if (options.chunk == 0) fail("linear_attention: the chunk is 0 tokens long, wanted at least 1");
  if (!(options.eps >= 0 && std::isfinite(options.eps))) {
    fail("linear_attention: eps is {}, wanted a number of at least 0", options.eps);
  }
  for (size_t h = 0; gamma.defined() && h < shape.heads;
       ++h) {  // NaN goes on to the outputs, where it is looked for
    if (gamma[h] < 0 || gamma[h] > 1) {
      fail("linear_attention: gamma of head {} is {}, wanted a number in [0, 1]", h, gamma[h]);
    }
  }
  return shape;
}

template <class T>
const T* data_or_null(const Tensor<T>& tensor) {
  return tensor.defined() ? tensor.data() : nullptr;
}
template <class T>
Tensor<T> value_or_none(const Var<T>& var) {
  return var.defined() ? var.value() : Tensor<T>();
}

template <class T>
DecayInputs<T> kernel_inputs(const DecayShape& shape, const Tensor<T>& q, const Tensor<T>& k,
                             const Tensor<T>& v, const Tensor<T>& gamma, const Tensor<T>& S,
                             const Tensor<T>& z, const LinearAttentionOptions& options) {
  return {shape,
          options.phi == FeatureMap::kEluPlusOne,
          options.normalise,
          static_cast<T>(options.eps),
          std::min(options.chunk, shape.tokens),
          q.data(),
          k.data(),
          v.data(),
          data_or_null(gamma),
          data_or_null(S),
          data_or_null(z)};
}

// What the backward keeps: the op's inputs, its outputs, d_t, and chunkwise a record per chunk.
template <class T>
struct Saved {
  DecayShape shape;
  LinearAttentionOptions options;
  Var<T> q, k, v, gamma, S_init, z_init;
  Tensor<T> o, denominators, records;

  void backward(const Grads<T>& grads) const {
    const Tensor<T> gamma_value = value_or_none(gamma), S_value = value_or_none(S_init),
                    z_value = value_or_none(z_init);
    const Tensor<T> d_o = grads[0].defined() ? grads[0] : Tensor<T>::zeros(o.shape());
    DecayBackward<T> args{};
    args.in = kernel_inputs(shape, q.value(), k.value(), v.value(), gamma_value, S_value, z_value, options);
    args.o = o.data();
    args.denominators = data_or_null(denominators);
    args.records = data_or_null(records);
    args.d_o = d_o.data();
    args.d_S = data_or_null(grads[1]);
    args.d_z = options.normalise ? data_or_null(grads[2]) : nullptr;
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
    Tensor<T> d_gamma, d_S_init, d_z_init;
    const auto fresh = [](const Var<T>& var, Tensor<T>& tensor, T*& data) {
      if (!var.requires_grad()) return;
      tensor = Tensor<T>(var.shape());
      data = tensor.data();
    };
    fresh(gamma, d_gamma, args.d_gamma);
    fresh(S_init, d_S_init, args.d_S_init);
    fresh(z_init, d_z_init, args.d_z_init);

    options.face == Face::kChunkwise ? decay_chunkwise_backward(args) : decay_recurrent_backward(args);

    if (d_gamma.defined()) gamma.accumulate(std::move(d_gamma));
    if (d_S_init.defined()) S_init.accumulate(std::move(d_S_init));
    if (d_z_init.defined()) z_init.accumulate(std::move(d_z_init));
  }
};

}  // namespace

template <class T>
LinearAttentionResult<T> linear_attention(Var<T> q, Var<T> k, Var<T> v, Var<T> gamma, Var<T> S_init,
                                          Var<T> z_init, const LinearAttentionOptions& options) {
  const Tensor<T> gamma_value = value_or_none(gamma), S_value = value_or_none(S_init),
                  z_value = value_or_none(z_init);
  const DecayShape shape =
      checked_shape(q.value(), k.value(), v.value(), gamma_value, S_value, z_value, options);
  if (options.face == Face::kParallel) {
    return internal::linear_attention_parallel(q, k, v, gamma, S_init, z_init, options);
  }

  const std::array<Var<T>, 6> inputs{q, k, v, gamma, S_init, z_init};
  bool keeps = false;
  for (const Var<T>& input : inputs) keeps = keeps || (q.tape().recording() && input.requires_grad());

  Tensor<T> o({shape.batch, shape.tokens, shape.heads, shape.dv});
  Tensor<T> S({shape.batch, shape.heads, shape.dk, shape.dv});
  Tensor<T> z, denominators, records;
  DecayForward<T> args{};
  args.in = kernel_inputs(shape, q.value(), k.value(), v.value(), gamma_value, S_value, z_value, options);
  args.o = o.data();
  args.S = S.data();
  if (options.normalise) {
    z = Tensor<T>({shape.batch, shape.heads, shape.dk});
    args.z = z.data();
    if (keeps) {
      denominators = Tensor<T>({shape.batch, shape.heads, shape.tokens});
      args.denominators = denominators.data();
    }
  }
  if (options.face == Face::kChunkwise) {
    if (keeps) {
      const size_t chunks = (shape.tokens + args.in.chunk - 1) / args.in.chunk;
      records = Tensor<T>({shape.batch, chunks, shape.heads, decay_record(args.in)});
      args.records = records.data();
    }
    decay_chunkwise_forward(args);
  } else {
    decay_recurrent_forward(args);
  }

  Saved<T> saved{shape,        options, q, k, v, gamma, S_init, z_init, keeps ? o : Tensor<T>(),
                 denominators, records};
  std::array<Tensor<T>, 3> values{std::move(o), std::move(S), std::move(z)};
  std::array<Var<T>, 3> outputs;
  const size_t count = options.normalise ? 3 : 2;
  q.tape().record_many("linear_attention", std::span(values).first(count), inputs,
                       std::span(outputs).first(count),
                       [saved = std::move(saved)](const Grads<T>& grads) { saved.backward(grads); });
  return {outputs[0], outputs[1], outputs[2]};
}

template <class T>
State<T> linear_attention_state(size_t batch, size_t heads, size_t dk, size_t dv,
                                const LinearAttentionOptions& options) {
  State<T> state;
  state.add("S", Tensor<T>::zeros({batch, heads, dk, dv}));
  if (options.normalise) state.add("z", Tensor<T>::zeros({batch, heads, dk}));
  return state;
}

template <class T>
Tensor<T> linear_attention_extend(State<T>& state, const Tensor<T>& q, const Tensor<T>& k, const Tensor<T>& v,
                                  const Tensor<T>& gamma, const LinearAttentionOptions& options) {
  Tensor<T>& S = state["S"];
  Tensor<T> none;
  Tensor<T>& z = options.normalise ? state["z"] : none;
  const DecayShape shape = checked_shape(q, k, v, gamma, S, z, options);
  Tensor<T> o({shape.batch, shape.tokens, shape.heads, shape.dv});
  DecayForward<T> args{};
  args.o = o.data();
  args.S = S.data();
  args.z = z.defined() ? z.data() : nullptr;
  args.in = kernel_inputs(shape, q, k, v, gamma, S, z, options);
  shape.tokens == 1 ? decay_recurrent_forward(args) : decay_chunkwise_forward(args);
  state.length += shape.tokens;
  return o;
}

#define STORYTAPE_INSTANTIATE(T)                                                                           \
  template LinearAttentionResult<T> linear_attention(Var<T>, Var<T>, Var<T>, Var<T>, Var<T>, Var<T>,       \
                                                     const LinearAttentionOptions&);                       \
  template State<T> linear_attention_state(size_t, size_t, size_t, size_t, const LinearAttentionOptions&); \
  template Tensor<T> linear_attention_extend(State<T>&, const Tensor<T>&, const Tensor<T>&,                \
                                             const Tensor<T>&, const Tensor<T>&,                           \
                                             const LinearAttentionOptions&)
STORYTAPE_INSTANTIATE(float);
STORYTAPE_INSTANTIATE(double);
#undef STORYTAPE_INSTANTIATE

}  // namespace storytape
