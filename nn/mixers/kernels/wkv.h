// The kernels of RWKV-4's WKV. The mathematics and its tags (W1)... stand in nn/mixers/wkv.h.
//
// Channels lie next to each other, k, v and o are [B, T, C], states [B, C]. Null pointers stand for what is
// absent: an empty state, results that nobody wants.
#pragma once

#include <cstddef>

namespace storytape {

struct WkvShape {
  size_t batch, tokens, channels;
};

template <class T>
struct WkvInputs {
  WkvShape shape;
  size_t chunk;          // tokens per chunk, at least 1
  const T* w;            // [C]
  const T* u;            // [C]
  const T* k;            // [B, T, C]
  const T* v;            // [B, T, C]
  const T* mean_init;    // [B, C], or null together with the next
  const T* logden_init;  // [B, C] or null
};

template <class T>
struct WkvForward {
  WkvInputs<T> in;
  T* o;        // [B, T, C]
  T* mean;     // [B, C]; may be mean_init itself
  T* logden;   // [B, C]; may be logden_init itself
  T* records;  // [B, chunks, wkv_record()] or null: for the chunkwise backward
};

// Gradients to k and v are written, or added where the flag `add_*` is set; the others are written. Token by
// token d_v is written before d_k, so that the two may be one array to which d_k is added.
template <class T>
struct WkvBackward {
  WkvInputs<T> in;
  const T* records;   // as the forward left them; chunkwise only
  const T* d_o;       // [B, T, C]
  const T* d_mean;    // [B, C] or null
  const T* d_logden;  // [B, C] or null
  T* d_w;             // this and the following may be null
  T* d_u;
  T* d_v;
  T* d_k;
  T* d_mean_init;
  T* d_logden_init;
  bool add_v, add_k;
};

// Values kept per chunk: the state at its start, m, d and p of (W3) of all channels.
inline size_t wkv_record(const WkvShape& shape) {
  return 3 * shape.channels;
}

template <class T>
void wkv_chunkwise_forward(const WkvForward<T>& args);
template <class T>
void wkv_chunkwise_backward(const WkvBackward<T>& args);
template <class T>
void wkv_recurrent_forward(const WkvForward<T>& args);
template <class T>
void wkv_recurrent_backward(const WkvBackward<T>& args);

}  // namespace storytape
