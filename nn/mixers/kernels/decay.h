// The kernel family of mixers whose state forgets by a factor and is written additively: linear attention,
// and without its normaliser retention. The mathematics and its tags (L1)... stand in
// nn/mixers/linear_attention.h.
//
// Tokens of one head lie heads·d apart ([B, T, H, d]), states are [B, H, dk, dv] and [B, H, dk]. Null
// pointers stand for what is absent: a gate of 1, states of zero, results that nobody wants.
#pragma once

#include <cstddef>

namespace storytape {

struct DecayShape {
  size_t batch, tokens, heads, dk, dv;
};

template <class T>
struct DecayInputs {
  DecayShape shape;
  bool elu;        // features are elu(x) + 1, else x itself
  bool normalise;  // divide by a·z + eps; else z does not exist
  T eps;
  size_t chunk;     // tokens per chunk, at least 1
  const T* q;       // [B, T, H, dk]
  const T* k;       // [B, T, H, dk]
  const T* v;       // [B, T, H, dv]
  const T* gamma;   // [H] or null
  const T* S_init;  // [B, H, dk, dv] or null
  const T* z_init;  // [B, H, dk] or null
};

template <class T>
struct DecayForward {
  DecayInputs<T> in;
  T* o;             // [B, T, H, dv]
  T* S;             // [B, H, dk, dv]; may be S_init itself
  T* z;             // [B, H, dk] or null; may be z_init itself
  T* denominators;  // [B, H, T] or null: d_t of (L3), for the backward
  T* records;  // [B, chunks, H, decay_record()], aligned to 64 bytes, or null: for the chunkwise backward
};

// Gradients to q, k and v are written, or added where the flag `add_*` is set; the others are written. Token by token or
// chunk by chunk, d_q is written before d_v and d_v before d_k, so that two of them may be one array whose later parts
// are added.
template <class T>
struct DecayBackward {
  DecayInputs<T> in;
  const T* o;             // as the forward left them
  const T* denominators;  // null where not normalised
  const T* records;       // chunkwise only
  const T* d_o;           // [B, T, H, dv]
  const T* d_S;           // [B, H, dk, dv] or null
  const T* d_z;           // [B, H, dk] or null
  T* d_q;                 // this and the following may be null
  T* d_v;
  T* d_k;
  T* d_gamma;
  T* d_S_init;
  T* d_z_init;
  bool add_q, add_v, add_k;
};

// Values kept per chunk and head: Sᵀ and z at its start, and its features, in rows padded to 64 bytes.
template <class T>
size_t decay_record(const DecayInputs<T>& in);

template <class T>
void decay_chunkwise_forward(const DecayForward<T>& args);
template <class T>
void decay_chunkwise_backward(const DecayBackward<T>& args);
template <class T>
void decay_recurrent_forward(const DecayForward<T>& args);
template <class T>
void decay_recurrent_backward(const DecayBackward<T>& args);

}  // namespace storytape
