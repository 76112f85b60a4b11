// The recurrences of the mixers, scalar by scalar: the witness that all faces and their gradients are held
// against. S is float, double or std::complex<double>; see autograd/reference.h for what the complex ones are
// for.
//
// Row-major arrays, tokens of one head heads·d apart as in the ops. States are read and left as after the
// last token.
#pragma once

#include <complex>
#include <cstddef>
#include <vector>

#include "autograd/reference.h"

namespace storytape::reference {

struct MixerSize {
  size_t batch, tokens, heads, dk, dv;
};

// S_t = γ S_{t-1} + φ(k_t)ᵀ v_t,  z_t = γ z_{t-1} + φ(k_t),  o_t = φ(q_t) S_t / (φ(q_t)·z_t + ε);  φ = elu +
// 1 or the identity; unnormalised where z is null; γ = 1 where gamma is null. q, k [B, T, H, dk], v and o [B,
// T, H, dv], gamma [H], state [B, H, dk, dv], z [B, H, dk].
template <class S>
void linear_attention(const MixerSize& n, bool elu, double eps, const S* q, const S* k, const S* v,
                      const S* gamma, S* state, S* z, S* o) {
  const auto phi = [elu](const S& x) { return elu ? elu_plus_one(x) : x; };
  for (size_t b = 0; b < n.batch; ++b) {
    for (size_t h = 0; h < n.heads; ++h) {
      const size_t head = b * n.heads + h;
      for (size_t t = 0; t < n.tokens; ++t) {
        const size_t token = (b * n.tokens + t) * n.heads + h;
        std::vector<S> sum(n.dv, S{0});
        S norm = static_cast<S>(eps);
        for (size_t i = 0; i < n.dk; ++i) {
          const S a = phi(q[token * n.dk + i]);
          const S key = phi(k[token * n.dk + i]);
          for (size_t j = 0; j < n.dv; ++j) {
            S& s = state[(head * n.dk + i) * n.dv + j];
            s = (gamma ? S(gamma[h] * s) : s) + key * v[token * n.dv + j];
            sum[j] += a * s;
          }
          if (!z) continue;
          S& c = z[head * n.dk + i];
          c = (gamma ? S(gamma[h] * c) : c) + key;
          norm += a * c;
        }
        for (size_t j = 0; j < n.dv; ++j) o[token * n.dv + j] = z ? S(sum[j] / norm) : sum[j];
      }
    }
  }
}

}  // namespace storytape::reference
