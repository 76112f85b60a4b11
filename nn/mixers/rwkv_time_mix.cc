#include "nn/mixers/rwkv_time_mix.h"

#include "autograd/ops.h"
#include "nn/linear.h"
#include "nn/token_shift.h"

namespace storytape {

template <class T>
TimeMixResult<T> rwkv_time_mix(const TimeMixWeights<Var<T>>& weights, Var<T> x, Var<T> x_prev,
                               Var<T> mean_init, Var<T> logden_init, const WkvOptions& options) {
  const TokenShiftResult<T> for_r = token_shift(x, weights.mu_r, x_prev);
  const Var<T> r = linear(for_r.y, weights.W_r);
  const Var<T> k = linear(token_shift(x, weights.mu_k, x_prev).y, weights.W_k);
  const Var<T> v = linear(token_shift(x, weights.mu_v, x_prev).y, weights.W_v);
  const WkvResult<T> mixed = wkv(weights.w, weights.u, k, v, mean_init, logden_init, options);
  return {linear(mul(sigmoid(r), mixed.o), weights.W_o), for_r.last, mixed.mean, mixed.logden};
}

template <class T>
State<T> rwkv_time_mix_state(size_t batch, size_t channels) {
  State<T> state;
  state.add("x", Tensor<T>::zeros({batch, channels}));
  const State<T> mixed = wkv_state<T>(batch, channels);
  for (const auto& [name, tensor] : mixed.tensors()) state.add(name, tensor);
  return state;
}

template <class T>
Tensor<T> rwkv_time_mix_extend(const TimeMixWeights<Tensor<T>>& weights, State<T>& state,
                               const Tensor<T>& x) {
  Tape<T> tape;
  const NoGrad<T> no_grad(tape);
  const auto var = [&](const Tensor<T>& tensor) { return tape.constant(tensor); };
  const TimeMixWeights<Var<T>> on_tape{var(weights.mu_r), var(weights.mu_k), var(weights.mu_v),
                                       var(weights.W_r),  var(weights.W_k),  var(weights.W_v),
                                       var(weights.W_o),  var(weights.w),    var(weights.u)};
  WkvOptions options;
  if (x.size(1) == 1) options.face = Face::kRecurrent;
  const TimeMixResult<T> result =
      rwkv_time_mix(on_tape, var(x), var(state["x"]), var(state["mean"]), var(state["logden"]), options);
  state["x"] = result.last.value();
  state["mean"] = result.mean.value();
  state["logden"] = result.logden.value();
  state.length += x.size(1);
  return result.y.value();
}

#define STORYTAPE_INSTANTIATE(T)                                                                         \
  template TimeMixResult<T> rwkv_time_mix(const TimeMixWeights<Var<T>>&, Var<T>, Var<T>, Var<T>, Var<T>, \
                                          const WkvOptions&);                                            \
  template State<T> rwkv_time_mix_state(size_t, size_t);                                                 \
  template Tensor<T> rwkv_time_mix_extend(const TimeMixWeights<Tensor<T>>&, State<T>&, const Tensor<T>&)
STORYTAPE_INSTANTIATE(float);
STORYTAPE_INSTANTIATE(double);
#undef STORYTAPE_INSTANTIATE

}  // namespace storytape
