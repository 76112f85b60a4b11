// The kernel family of mixers whose state forgets by factors of its own for every token: a scalar or one per
// key channel; and writes additively or by the delta rule. The mathematics and its tags (G1)... stand in
// nn/mixers/gated_recurrence.h.
//
// Tokens of one head lie heads·d apart ([B, T, H, d]), states are [B, H, dk, dv]. A token has `steps` writes;
// keys, values and betas count writes, [B, T·steps, H, d], queries and gates count tokens.
#pragma once

#include <cstddef>

namespace storytape {

enum class GateKind {
  kNone,
  kScalar,  // [B, T, H]
  kVector,  // [B, T, H, dk]
};

struct GatedShape {
  size_t batch, tokens, steps, heads, dk, dv;
};

template <class T>
struct GatedInputs {
  GatedShape shape;
  GateKind gate;
  size_t chunk;     // tokens between two states that the backward keeps, at least 1
  const T* q;       // [B, T, H, dk]
  const T* k;       // [B, T·steps, H, dk]
  const T* v;       // [B, T·steps, H, dv]
  const T* alpha;   // as `gate` says; null for kNone
  const T* beta;    // [B, T·steps, H]; null for additive writes
  const T* S_init;  // [B, H, dk, dv] or null for zeros
};

template <class T>
struct GatedForward {
  GatedInputs<T> in;
  T* o;        // [B, T, H, dv]
  T* S;        // [B, H, dk, dv]; may be S_init itself
  T* records;  // [B, H, chunks, dk, dv] or null: the state at each chunk's start, for the backward
};

// Gradients to q, k and v are written, or added where the flag `add_*` is set; the others are written. Tile by
// tile d_q is written before d_v and d_v before d_k, so that two of them may be one array whose later parts
// are added.
template <class T>
struct GatedBackward {
  GatedInputs<T> in;
  const T* records;  // as the forward left them
  const T* d_o;      // [B, T, H, dv]
  const T* d_S;      // [B, H, dk, dv] or null
  T* d_q;            // this and the following may be null
  T* d_v;
  T* d_k;
  T* d_alpha;
  T* d_beta;
  T* d_S_init;
  bool add_q, add_v, add_k;
};

template <class T>
void gated_chunkwise_forward(const GatedForward<T>& args);
template <class T>
void gated_chunkwise_backward(const GatedBackward<T>& args);
template <class T>
void gated_recurrent_forward(const GatedForward<T>& args);
template <class T>
void gated_recurrent_backward(const GatedBackward<T>& args);

}  // namespace storytape
