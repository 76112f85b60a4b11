// Softmax attention, causal: every query averages the values of the tokens up to its own, weighted by the
// exponentials of its products with their keys. Vaswani et al., "Attention Is All You Need", 2017; the tiled
// form after Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, and Dao et al.,
// "FlashAttention", 2022. With forget gates it is Lin et al., "Forgetting Transformer", 2025 (FoX); the soft cap is
// that of Gemma Team, "Gemma 2", 2024, sec. 2.
//
// One head; query i stands at position offset + i among the keys, and sees
//   V_i = { j : offset + i - window < j ≤ offset + i },   0 ≤ j < S   (no window: all j ≤ offset + i)
//
//   forward
//   (A1)  s_ij = scale ⟨q_i, k_j⟩ (+ b_ij) for j in V_i, else -∞      b_ij of (A14), with forget gates
//   (A2)  m_i = max_j s_ij                                        -∞ for a query that sees no key
//   (A3)  l_i = Σ_j exp(s_ij - m_i)
//   (A4)  o_i = Σ_j exp(s_ij - m_i) v_j / l_i                     0 for a query that sees no key
//
//   the same by chunks c of keys, from m = -∞, l = 0, u = 0: O(T) memory
//   (A5)  m' = max(m, max_{j in c} s_ij)
//   (A6)  l' = l exp(m - m') + Σ_{j in c} exp(s_ij - m')
//   (A7)  u' = u exp(m - m') + Σ_{j in c} exp(s_ij - m') v_j      at the end o_i = u / l
//
//   reverse, given do
//   (A8)  p_ij = exp(s_ij - m_i) / l_i
//   (A9)  δ_i = ⟨do_i, o_i⟩ = Σ_j p_ij ⟨do_i, v_j⟩
//   (A10) dv_j = Σ_i p_ij do_i
//   (A11) ds_ij = p_ij (⟨do_i, v_j⟩ - δ_i)
//   (A12) dq_i = scale Σ_j ds_ij k_j
//   (A13) dk_j = scale Σ_i ds_ij q_i
//
//   forget gates f_t = exp(log_f_t) ≤ 1, one per query head and token; tokens counted as keys are, i at offset + i
//   (A14) b_ij = Σ_{j<l≤i} log_f_l                                the own token has 0; log_f_0 never matters
//   (A15) w_i(l) = Σ_{j<l} ds_ij = w_i(l-1) + ds_i,l-1
//   (A16) dlog_f_l = Σ_{i≥l} w_i(l)                               = Σ_{i≥l} Σ_{j<l} ds_ij
//
//   soft cap c > 0; t_ij is what (A2) and all after it read for s_ij, dt_ij what (A11) gives
//   (A17) t_ij = c tanh(s_ij / c)                                 within ±c; masked after, never before
//   (A18) ds_ij = dt_ij (1 - tanh²(s_ij / c))                     then (A12) and (A13)
//
// (A14) to (A16) never take the difference of two running sums: b_ij is added up from its own segment's gates, all of one
// sign, and a gate that shut makes every ds across it 0, term by term. log_f_t = -∞ (and anything below -1e30)
// is a hard reset: weights and gradients across it are exactly 0.
//
// Saved for the backward: o, m and l (two numbers per token and head); s and p are recomputed tile by tile. m
// and l are kept apart, not as m + log l: at logits of 1e4 a float sum of the two has lost the digits of log
// l. Grouped queries: with H heads of q and Hkv of k and v, head h reads kv head h / (H / Hkv); dk and dv sum
// over the group. Derivation: docs/derivations/softmax_attention.md.
#pragma once

#include <cstddef>
#include <optional>

#include "autograd/tape.h"
#include "nn/mixers/face.h"
#include "nn/mixers/state.h"

namespace storytape {

struct SoftmaxAttentionOptions {
  Face face = Face::kChunkwise;
  std::optional<double> scale = {};  // of (A1); 1/sqrt(dk) if not given
  size_t window = 0;                 // keys that a query sees, its own included; 0: all up to its own
  double softcap = 0;                // c of (A17), at least 0; 0: none, as it must be with forget gates
  // Position of the first query among the keys. Not given: S - T, so that the last query sees the last key.
  // Queries before the first key see none and give zeros.
  std::optional<ptrdiff_t> offset = {};
};

// q [B, T, H, dk], k [B, S, Hkv, dk], v [B, S, Hkv, dv] → o [B, T, H, dv]. Hkv divides H; S ≥ T unless an
// offset is given. log_f [B, S, H] ≤ 0, of each key's token, or undefined: no forget gates; with them every
// query that sees a key sees its own. Faces: chunkwise in tiles; recurrent query by query over the keys; parallel
// composed of primitive ops, O(T·S) memory (with gates O(T·S²) time). An Error names what doesn't fit.
template <class T>
Var<T> softmax_attention(Var<T> q, Var<T> k, Var<T> v, const SoftmaxAttentionOptions& options,
                         Var<T> log_f = {});

// The state before the first token: the cache tensors "k" and "v", [B, capacity, Hkv, dk or dv], capacity 0;
// for forget gates of `gate_heads` query heads also "log_f" [B, capacity, gate_heads, 1]. dv = 0: no "v", the keys are
// the values too, as in attention over latents.
template <class T>
State<T> softmax_attention_state(size_t batch, size_t kv_heads, size_t dk, size_t dv, size_t gate_heads = 0);

// The outputs [B, T, H, dv] of T ≥ 1 further tokens, without gradients; their keys, values and gates go to the cache, and
// cache.length moves on by T. v, and log_f [B, T, H], are given exactly if the state was made for them. Any cut of a
// sequence into calls gives what one call gives, to rounding.
//
// Token t lies in row t % capacity. Without a window the capacity doubles when it is used up, so a token is
// copied less than twice over a sequence, whatever its length; with a window W, rows of tokens that no later
// one sees are used again, and the capacity stays at what W and the largest T of a call need. Window and soft cap must
// not change between calls. cache.bytes() is the capacity, which is what the process holds;
// softmax_attention_bytes() is what the tokens need. A copy of the state is a snapshot: the first call after
// it, on either, copies the cache once. options.face and options.offset are not used. An Error leaves the
// cache as it was.
template <class T>
Tensor<T> softmax_attention_extend(State<T>& cache, const Tensor<T>& q, const Tensor<T>& k,
                                   const Tensor<T>& v, const SoftmaxAttentionOptions& options,
                                   const Tensor<T>& log_f = {});

// Bytes of the keys, values and gates that the next token can see, of the cache's rows.
template <class T>
size_t softmax_attention_bytes(const State<T>& cache, size_t window = 0);

// Adds the examples of all faces to the list that gradients are proven by.
void register_softmax_attention();

namespace internal {
// The soft cap itself; an Error if it is neither 0 nor in [1e-30, 1e30], where floats can hold what is made of it,
// and if it stands beside forget gates.
double checked_softcap(double softcap, bool gates);
}  // namespace internal

}  // namespace storytape
