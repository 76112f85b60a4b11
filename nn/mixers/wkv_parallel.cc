// The parallel face of WKV: (W2) over the whole sequence, composed of primitive ops, so that its gradient owes
// nothing to the derivation of (W10)-(W16). O(T²) time and memory per channel.
#include <limits>
#include <vector>

#include "autograd/ops.h"
#include "nn/mixers/wkv.h"

namespace storytape {

template <class T>
WkvResult<T> internal::wkv_parallel(Var<T> w, Var<T> u, Var<T> k, Var<T> v, Var<T> mean_init,
                                    Var<T> logden_init) {
  Tape<T>& tape = k.tape();
  const size_t batch = k.shape()[0], tokens = k.shape()[1], channels = k.shape()[2];

  // (W2) per channel: distances that multiply -w, the diagonal that u goes to, and what is masked.
  Tensor<T> distance = Tensor<T>::zeros({tokens, tokens}), diagonal = Tensor<T>::zeros({tokens, tokens}),
            mask = Tensor<T>::zeros({tokens, tokens}), since_start({tokens, 1}), to_end({1, tokens});
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t i = 0; i < t; ++i) distance[t * tokens + i] = static_cast<T>(t - 1 - i);
    diagonal[t * tokens + t] = 1;
    for (size_t i = t + 1; i < tokens; ++i) mask[t * tokens + i] = -std::numeric_limits<T>::infinity();
    since_start[t] = static_cast<T>(t);
    to_end[t] = static_cast<T>(tokens - 1 - t);
  }
  const auto by_channel = [&](Var<T> x) { return reshape(x, {channels, 1, 1}); };
  const auto decay = [&](Tensor<T> steps) { return mul(by_channel(w), tape.constant(std::move(steps))); };

  const Var<T> keys = reshape(transpose(k, {0, 2, 1}), {batch, channels, 1, tokens});
  Var<T> values = reshape(transpose(v, {0, 2, 1}), {batch, channels, tokens, 1});
  const Var<T> bonus = mul(by_channel(u), tape.constant(std::move(diagonal)));
  Var<T> A = add(sub(add(keys, bonus), decay(std::move(distance))), tape.constant(std::move(mask)));
  Var<T> last = sub(keys, decay(std::move(to_end)));
  if (logden_init.defined()) {
    const Shape one = {batch, channels, 1, 1};
    const Var<T> before = reshape(logden_init, one);
    A = concat(std::vector<Var<T>>{sub(before, decay(std::move(since_start))), A}, 3);
    const Tensor<T> all({1, 1}, static_cast<T>(tokens));
    last = concat(std::vector<Var<T>>{sub(before, decay(all)), last}, 3);
    values = concat(std::vector<Var<T>>{reshape(mean_init, one), values}, 2);
  }
  const Shape state = {batch, channels};
  const Var<T> o = reshape(matmul(softmax(A), values), {batch, channels, tokens});
  return {transpose(o, {0, 2, 1}), reshape(matmul(softmax(last), values), state),
          reshape(log_sum_exp(last), state)};
}

template WkvResult<float> internal::wkv_parallel(Var<float>, Var<float>, Var<float>, Var<float>, Var<float>,
                                                 Var<float>);
template WkvResult<double> internal::wkv_parallel(Var<double>, Var<double>, Var<double>, Var<double>,
                                                  Var<double>, Var<double>);

}  // namespace storytape
