// The parallel face of linear attention: (L4)-(L6) over the whole sequence, composed of primitive ops, so
// that its gradient owes nothing to the derivation of (L7)-(L19). O(T²) time and memory.
#include <cmath>
#include <vector>

#include "autograd/ops.h"
#include "nn/mixers/linear_attention.h"

namespace storytape {
namespace {

// y[h, i, j] = γ_h^n with n = exponents[i·columns + j] and 0^0 = 1; 0 where n is negative.
template <class T>
Var<T> decay_powers(Var<T> gamma, std::vector<int> exponents, size_t columns) {
  const size_t heads = gamma.shape()[0], count = exponents.size();
  Tensor<T> y({heads, count / columns, columns});
  for (size_t h = 0; h < heads; ++h) {
    for (size_t i = 0; i < count; ++i) {
      y[h * count + i] = exponents[i] < 0 ? T{0} : std::pow(gamma.value()[h], static_cast<T>(exponents[i]));
    }
  }
  return gamma.tape().record("decay_powers", std::move(y), {gamma},
                             [gamma, heads, count, exponents = std::move(exponents)](const Grads<T>& dy) {
                               // forward:  y[h, i] = γ_h^n_i;  dγ_h = Σ_i n_i γ_h^(n_i - 1) dy[h, i]
                               Tensor<T> d(gamma.shape(), T{0});
                               for (size_t h = 0; h < heads; ++h) {
                                 for (size_t i = 0; i < count; ++i) {
                                   if (exponents[i] < 1) continue;
                                   const T n = static_cast<T>(exponents[i]);
                                   d[h] += n * std::pow(gamma.value()[h], n - 1) * dy.data()[h * count + i];
                                 }
                               }
                               gamma.accumulate(std::move(d));
                             });
}

}  // namespace

template <class T>
LinearAttentionResult<T> internal::linear_attention_parallel(Var<T> q, Var<T> k, Var<T> v, Var<T> gamma,
                                                             Var<T> S_init, Var<T> z_init,
                                                             const LinearAttentionOptions& options) {
  Tape<T>& tape = q.tape();
  const int tokens = static_cast<int>(q.shape()[1]);
  const Shape state_shape = {q.shape()[0], q.shape()[2], q.shape()[3], v.shape()[3]};

  std::vector<int> between, since_start, to_end;  // exponents of Γ, Λ, R
  for (int i = 0; i < tokens; ++i) {
    for (int j = 0; j < tokens; ++j) between.push_back(i - j);
    since_start.push_back(i + 1);
    to_end.push_back(tokens - 1 - i);
  }
  // Without a gate, Γ is the causal mask and the others are left out.
  const Var<T> base = gamma.defined() ? gamma : tape.constant(Tensor<T>({1}, T{1}));
  const Var<T> Gamma = decay_powers(base, between, static_cast<size_t>(tokens));
  const auto decayed = [&](Var<T> x, const std::vector<int>& exponents) {
    return gamma.defined() ? mul(x, decay_powers(gamma, exponents, 1)) : x;
  };

  // [B, T, H, d] → [B, H, T, d]
  const auto by_head = [](Var<T> x) { return transpose(x, {0, 2, 1, 3}); };
  const auto phi = [&](Var<T> x) { return options.phi == FeatureMap::kEluPlusOne ? elu_plus_one(x) : x; };
  const Var<T> A = phi(by_head(q)), B = phi(by_head(k)), V = by_head(v);
  const Var<T> P = mul(matmul(A, B, Trans::kNo, Trans::kYes), Gamma);  // (L4)
  const Var<T> late_B = decayed(B, to_end);

  Var<T> N = matmul(P, V);                                // (L5)
  Var<T> S = matmul(late_B, V, Trans::kYes, Trans::kNo);  // (L6)
  if (S_init.defined()) {
    N = add(N, decayed(matmul(A, S_init), since_start));
    S = add(S, decayed(S_init, {tokens}));
  }
  if (!options.normalise) return {by_head(N), S, Var<T>()};

  Var<T> d = sum(P, 3, true);       // [B, H, T, 1]
  Var<T> z = sum(late_B, 2, true);  // [B, H, 1, dk]
  if (z_init.defined()) {
    const Var<T> z_row = reshape(z_init, {state_shape[0], state_shape[1], 1, state_shape[2]});
    d = add(d, decayed(matmul(A, z_row, Trans::kNo, Trans::kYes), since_start));
    z = add(z, decayed(z_row, {tokens}));
  }
  const Var<T> o = div(N, add_constant(d, options.eps));  // (L3)
  return {by_head(o), S, reshape(z, {state_shape[0], state_shape[1], state_shape[2]})};
}

template LinearAttentionResult<float> internal::linear_attention_parallel(Var<float>, Var<float>, Var<float>,
                                                                          Var<float>, Var<float>, Var<float>,
                                                                          const LinearAttentionOptions&);
template LinearAttentionResult<double> internal::linear_attention_parallel(Var<double>, Var<double>,
                                                                           Var<double>, Var<double>,
                                                                           Var<double>, Var<double>,
                                                                           const LinearAttentionOptions&);

}  // namespace storytape
