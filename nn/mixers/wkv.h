// WKV, the sequence mixer of RWKV-4: a softmax over time without a query, per channel. Peng et al., "RWKV:
// Reinventing RNNs for the Transformer Era", 2023; seed chapter "RWKV: A Named RNN That Trains in Parallel".
//
// Per channel, with a decay w ≥ 0 per step and a bonus u for the current token. ℓ is the logarithm of the sum
// of the weights of what came before, m their mean value; tokens are counted from 1, σ(x) = 1/(1 + e^-x).
//
//   (W1)  o_t = (Σ_{i<t} e^(k_i - (t-1-i)w) v_i + e^(u + k_t) v_t) / (Σ_{i<t} e^(k_i - (t-1-i)w) + e^(u + k_t))
//         where a given state (m_0, ℓ_0) counts as one more token before the first, of value m_0 and key ℓ_0,
//         not yet decayed at t = 1
//
//   parallel: a softmax over the initial state and the tokens
//   (W2)  A_ti = k_i - (t-1-i)w for i < t,   A_tt = u + k_t,   A_t0 = ℓ_0 - (t-1)w,   -∞ else
//         o_t = softmax(A_t)·(m_0, v_1, ..., v_T);   the final state likewise from row T+1 without its last entry,
//         ℓ_T = log Σ e^A
//
//   recurrence: the state is the mean m and the sum d of weights, relative to a running maximum p of exponents
//   (W3)  ℓ = p + log d;   nothing seen: m = 0, d = 0, p = -∞;   given (m_0, ℓ_0): m = m_0, d = 1, p = ℓ_0
//   (W4)  δ = v - m                                               m, d, p are those before the token
//   (W5)  top = max(p, u + k),   (α, β) = (d e^(p - top), e^(u + k - top)),   g = β/(α + β) = σ(u + k - ℓ)
//   (W6)  top = max(p - w, k),   (α, β) = (d e^(p - w - top), e^(k - top)),   a = β/(α + β) = σ(k + w - ℓ),
//         d' = α + β,   p' = top                                  so that ℓ' = log(e^(ℓ - w) + e^k)
//   (W7)  o = m + gδ                                              the bonus is in what is read,
//   (W8)  m' = m + aδ                                             not in what is carried on
//   (W9)  final state: m and ℓ = p + log d
//   One of the two exponentials of (W5) is e^0, and so it is in (W6): each takes one, of -|difference|.
//
//   reverse, from the last token to the first; M and Λ are the gradients of m' and ℓ'
//   (W10) x = g(1-g) do δ                                         the gradient of u + k - ℓ in (W5)
//   (W11) y = a(Λ + (1-a) M δ)                                    of k in (W6)
//   (W12) z = (1-a)(Λ - a M δ)                                    of ℓ - w in (W6)
//   (W13) dk = x + y
//   (W14) dv = g do + a M
//   (W15) M ← (1-g) do + (1-a) M,   Λ ← z - x                     at the first token: dm_0, dℓ_0
//   (W16) du = Σ x,   dw = -Σ z                                   over tokens and sequences
//
// Chunkwise, a vector of channels walks the tokens of a chunk with its state in registers. Saved for the
// backward: the state at each chunk's start. Recomputed: g, 1-g, a, 1-a, δ inside the chunk; recurrent, those
// of the whole sequence. 1-g is α/(α + β), not a difference.
//
// Nothing overflows and nothing is divided by less than 1: any finite w ≥ 0, u, k and state give finite results,
// and o_t lies between the smallest and the largest value (to rounding). o_1 = v_1 exactly where no state is
// given. An exponent is as exact as its sum: float keys of 1e4 are 1e-3 apart. Derivation: docs/derivations/wkv.md.
#pragma once

#include <cstddef>

#include "autograd/tape.h"
#include "nn/mixers/face.h"
#include "nn/mixers/state.h"

namespace storytape {

struct WkvOptions {
  Face face = Face::kChunkwise;
  size_t chunk = 64;  // tokens from one kept state to the next, at least 1; any length is right
};

template <class T>
struct WkvResult {
  Var<T> o;       // [B, T, C]
  Var<T> mean;    // [B, C], m after the last token
  Var<T> logden;  // [B, C], ℓ after the last token
};

// w [C] ≥ 0, u [C], k, v [B, T, C], T ≥ 1; mean_init and logden_init [B, C], both or neither, undefined for an
// empty state; logden_init of -∞ is an empty state too, whatever its mean. All of it differentiable, the final
// state too. An Error names what doesn't fit.
template <class T>
WkvResult<T> wkv(Var<T> w, Var<T> u, Var<T> k, Var<T> v, Var<T> mean_init, Var<T> logden_init,
                 const WkvOptions& options = {});

// The state before the first token: "mean", zeros, and "logden", -∞.
template <class T>
State<T> wkv_state(size_t batch, size_t channels);

// The outputs [B, T, C] of T ≥ 1 further tokens; the state moves on. No gradients. Several tokens go chunkwise,
// one by the recurrence.
template <class T>
Tensor<T> wkv_extend(State<T>& state, const Tensor<T>& w, const Tensor<T>& u, const Tensor<T>& k,
                     const Tensor<T>& v, const WkvOptions& options = {});

// Adds the examples of all faces to the list that gradients are proven by, and the variant "wkv" to the face
// checks.
void register_wkv();

namespace internal {
// The parallel face, composed of primitive ops; arguments as wkv, already checked.
template <class T>
WkvResult<T> wkv_parallel(Var<T> w, Var<T> u, Var<T> k, Var<T> v, Var<T> mean_init, Var<T> logden_init);
}  // namespace internal

}  // namespace storytape
