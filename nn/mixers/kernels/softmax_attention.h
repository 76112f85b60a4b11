// The kernels of softmax attention, as the op calls them. The mathematics stands at the head of
// nn/mixers/softmax_attention.h.
#pragma once

#include <cstddef>

namespace storytape {

// One problem. Query i stands at position offset + i among the keys and sees the keys j with
// offset + i - window < j <= offset + i (window 0: all up to its own).
// REQUIRES: kv_heads divides heads.
template <class T>
struct SoftmaxAttentionArgs {
  size_t batch, heads, kv_heads;
  size_t queries, keys;
  size_t dk, dv;
  size_t offset;
  size_t window;
  T scale;
  const T* q;      // [batch, q_rows, heads, dk]: the first query of each sequence
  const T* k;      // [batch, kv_rows, kv_heads, dk]
  const T* v;      // [batch, kv_rows, kv_heads, dv]
  size_t q_rows;   // rows per sequence of q, o and their gradients, >= queries
  size_t kv_rows;  // rows per sequence of k, v and log_f: key j lies in row j % kv_rows
  // c of (A17); 0: none. REQUIRES: 0 with gates.
  T softcap = 0;
  // [batch, kv_rows, heads], <= 0: what the forget gate of key j's token adds to the logits across it. Null: no
  // gates. REQUIRES, with gates: offset + queries <= keys.
  const T* log_f = nullptr;
};

// A gradient to be set or, with `add`, added to; null where it isn't wanted.
template <class T>
struct SoftmaxAttentionGrad {
  T* data = nullptr;
  bool add = false;
};

// The gradients of all inputs, in the order in which they are written.
template <class T>
struct SoftmaxAttentionGrads {
  SoftmaxAttentionGrad<T> q, k, v;
  SoftmaxAttentionGrad<T> log_f = {};
};

// What forward keeps for backward, per query, in units of log 2; null if no backward follows.
template <class T>
struct SoftmaxAttentionStats {
  T* max;  // [batch, heads, q_rows]
  T* sum;  // [batch, heads, q_rows]
};

// Tiles of queries by keys. o [batch, q_rows, heads, dv].
template <class T>
void softmax_attention_forward(const SoftmaxAttentionArgs<T>& args, T* o,
                               const SoftmaxAttentionStats<T>& stats);
// Gradients have the shapes of q, k, v and log_f. REQUIRES: kv_rows >= keys.
template <class T>
void softmax_attention_backward(const SoftmaxAttentionArgs<T>& args, const T* o,
                                const SoftmaxAttentionStats<T>& stats, const T* d_o,
                                const SoftmaxAttentionGrads<T>& grads);

// Query by query. For a few queries over many keys, as in decoding, faster than tiles.
template <class T>
void softmax_attention_rows_forward(const SoftmaxAttentionArgs<T>& args, T* o);
// Keeps nothing from forward. REQUIRES: kv_rows >= keys.
template <class T>
void softmax_attention_rows_backward(const SoftmaxAttentionArgs<T>& args, const T* d_o,
                                     const SoftmaxAttentionGrads<T>& grads);

}  // namespace storytape
