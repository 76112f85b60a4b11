// Softmax attention, scalar by scalar, from its definition; see nn/mixers/reference.h for what it is for.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "autograd/reference.h"

namespace storytape::reference {

struct SoftmaxSize {
  size_t batch, queries, keys, heads, kv_heads, dk, dv;
  ptrdiff_t offset;    // position of query 0 among the keys
  size_t window;       // keys that a query sees; 0: all up to its own
  double softcap = 0;  // c of the logits' c tanh(s / c); 0: none
};

// o_i = Σ_j softmax_j(scale ⟨q_i, k_j⟩ + Σ_{j<l≤i} log_f_l) v_j over the keys j that query i sees; 0 where it
// sees none. q [B, T, H, dk], k [B, S, Hkv, dk], v [B, S, Hkv, dv], log_f [B, S, H] or null, o [B, T, H, dv]; S is
// a scalar type here, real or complex.
template <class S>
void softmax_attention(const SoftmaxSize& n, double scale, const S* q, const S* k, const S* v, S* o,
                       const S* log_f = nullptr) {
  for (size_t row = 0; row < n.batch * n.queries * n.heads; ++row) {
    const size_t b = row / (n.queries * n.heads);
    const size_t kv_head = row % n.heads / (n.heads / n.kv_heads);
    const ptrdiff_t position = n.offset + static_cast<ptrdiff_t>(row / n.heads % n.queries);
    std::vector<S> logits;
    std::vector<size_t> seen;  // rows of k and v
    for (size_t j = 0; j < n.keys && static_cast<ptrdiff_t>(j) <= position; ++j) {
      if (n.window && static_cast<size_t>(position) - j >= n.window) continue;
      seen.push_back((b * n.keys + j) * n.kv_heads + kv_head);
      S sum{0};
      for (size_t c = 0; c < n.dk; ++c) sum += q[row * n.dk + c] * k[seen.back() * n.dk + c];
      sum *= scale;
      using std::tanh;
      if (n.softcap != 0) sum = n.softcap * tanh(sum / n.softcap);
      for (size_t l = j + 1; log_f && l <= static_cast<size_t>(position); ++l) {
        sum += log_f[(b * n.keys + l) * n.heads + row % n.heads];
      }
      logits.push_back(sum);
    }
    for (size_t c = 0; c < n.dv; ++c) o[row * n.dv + c] = S{0};
    if (seen.empty()) continue;
    std::vector<S> p(logits.size());
    softmax(logits.data(), p.data(), p.size());
    for (size_t j = 0; j < p.size(); ++j) {
      for (size_t c = 0; c < n.dv; ++c) o[row * n.dv + c] += p[j] * v[seen[j] * n.dv + c];
    }
  }
}

}  // namespace storytape::reference
