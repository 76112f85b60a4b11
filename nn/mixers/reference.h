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

// One token after the other: the gate, then n_h writes, then the read-out.
//   S = Diag(α_t) S;  n_h times  S += k_rᵀ β_r (v_r - k_r S), or S += k_rᵀ v_r where beta is null;  o_t = q_t S.
// alpha is null (no gate), [B, T, H], or with per_channel [B, T, H, dk]. q [B, T, H, dk], k [B, T·n_h, H, dk],
// v [B, T·n_h, H, dv], beta [B, T·n_h, H], o [B, T, H, dv], state [B, H, dk, dv].
template <class S>
void gated_recurrence(const MixerSize& n, size_t steps, bool per_channel, const S* q, const S* k, const S* v,
                      const S* alpha, const S* beta, S* state, S* o) {
  for (size_t b = 0; b < n.batch; ++b) {
    for (size_t h = 0; h < n.heads; ++h) {
      S* M = state + (b * n.heads + h) * n.dk * n.dv;
      for (size_t t = 0; t < n.tokens; ++t) {
        const size_t token = (b * n.tokens + t) * n.heads + h;
        for (size_t i = 0; alpha && i < n.dk; ++i) {
          for (size_t j = 0; j < n.dv; ++j) M[i * n.dv + j] *= alpha[per_channel ? token * n.dk + i : token];
        }
        for (size_t r = t * steps; r < (t + 1) * steps; ++r) {
          const size_t write = (b * n.tokens * steps + r) * n.heads + h;
          for (size_t j = 0; j < n.dv; ++j) {
            S u = v[write * n.dv + j];
            for (size_t i = 0; beta && i < n.dk; ++i) u -= k[write * n.dk + i] * M[i * n.dv + j];
            if (beta) u *= beta[write];
            for (size_t i = 0; i < n.dk; ++i) M[i * n.dv + j] += k[write * n.dk + i] * u;
          }
        }
        for (size_t j = 0; j < n.dv; ++j) {
          S sum{0};
          for (size_t i = 0; i < n.dk; ++i) sum += q[token * n.dk + i] * M[i * n.dv + j];
          o[token * n.dv + j] = sum;
        }
      }
    }
  }
}

}  // namespace storytape::reference
