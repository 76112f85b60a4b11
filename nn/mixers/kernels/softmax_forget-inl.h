// The forget gates of tiled softmax attention, per target: the bias of a tile, and the gradient to the gates.
// Tags (A..) are those of nn/mixers/softmax_attention.h.
//
// No bias is a difference of running sums: each is added up from its own segment's gates, all of one sign. A
// block of queries begins at position P; keys up to P have the sum from the key to P, which the block makes
// once for all its queries, and to it comes each query's sum from P on. Keys after P have a table of the
// block's own.

#if defined(STORYTAPE_SOFTMAX_FORGET_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_SOFTMAX_FORGET_INL_H_
#undef STORYTAPE_SOFTMAX_FORGET_INL_H_
#else
#define STORYTAPE_SOFTMAX_FORGET_INL_H_
#endif

#include <algorithm>

#include "nn/mixers/kernels/softmax_band-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace attention {
namespace hn = hwy::HWY_NAMESPACE;

// Gates below this act as this one: no weight survives either, and no infinity enters a sum. NaN stays NaN.
template <typename T>
HWY_INLINE T BoundedGate(T log_f) {
  return std::max(log_f, T{-1e30f});
}

// The gates of one head for the packed keys, and the bias of one block of queries in units of log 2.
template <typename T>
class Forget {
 public:
  // Room for `packed` keys; without gates (`used` false) none.
  Forget(bool used, size_t packed)
      : gates_(used ? packed + 1 : 0),
        before_(used ? packed + kGroup : 0),
        table_(used ? (kQueryBlock + 2 * kGroup) * kQueryBlock : 0) {}

  // Gates of head h of sequence b, key `base` first.
  void pack(const SoftmaxAttentionArgs<T>& a, size_t b, size_t h, size_t base, size_t packed) {
    const T* from = a.log_f + b * a.kv_rows * a.heads + h;
    size_t row = packed ? base % a.kv_rows : 0;
    for (size_t j = 0; j < packed; ++j) {
      gates_.data()[j] = BoundedGate(from[row * a.heads]);
      if (++row == a.kv_rows) row = 0;
    }
  }

  // REQUIRES: every query of the band sees its own key.
  template <class D>
  HWY_INLINE void set_block(D d, const Band& band) {
    constexpr T kUnit = static_cast<T>(kLog2E);
    const T* f = gates_.data();
    diagonal_ = band.first + (band.position + 1 - band.first) / kGroup * kGroup;
    double sum = 0;
    for (size_t j = band.position + 1; j-- > band.first;) {
      before_.data()[j] = static_cast<T>(sum) * kUnit;  // Σ of (A14) over j < l <= P
      sum += static_cast<double>(f[j]);
    }
    sum = 0;
    std::fill_n(after_, kQueryBlock, T{0});
    for (size_t i = 1; i < band.queries; ++i) {
      sum += static_cast<double>(f[band.position + i]);
      after_[i] = static_cast<T>(sum) * kUnit;  // over P < l <= position + i
    }
    // From the last key back, for queries behind key j: b_ij = b_i,j+1 + log_f_j+1.
    const size_t lanes = hn::Lanes(d);
    const size_t queries = RoundUp(band.queries, lanes);
    const size_t end = diagonal_ + RoundUp(band.last - diagonal_, kGroup);
    T* row = table_.data() + (end - diagonal_) * kQueryBlock;
    std::fill_n(row, queries, T{0});
    for (size_t j = end; j-- > diagonal_; row -= kQueryBlock) {
      T* to = row - kQueryBlock;
      const size_t behind = j + 1 > band.position ? std::min(queries, j + 1 - band.position) : 0;
      const auto gate = hn::Set(d, j + 1 < band.last ? f[j + 1] * kUnit : T{0});
      const auto begin = hn::Set(d, static_cast<T>(behind));
      for (size_t i = 0; i < queries; i += lanes) {
        const auto seen = hn::Ge(hn::Iota(d, static_cast<T>(i)), begin);
        hn::Store(hn::IfThenElseZero(seen, hn::Add(hn::Load(d, row + i), gate)), d, to + i);
      }
    }
  }

  // sums += bias of the keys [j, j + kGroup) for the queries from `column` on.
  template <size_t kVectors, class D, class V>
  HWY_INLINE void add(D d, size_t j, size_t column, V (&sums)[kGroup][kVectors]) const {
    const size_t lanes = hn::Lanes(d);
    if (j < diagonal_) {
      HWY_UNROLL(4) for (size_t c = 0; c < kVectors; ++c) {
        const V after = hn::Load(d, after_ + column + c * lanes);
        HWY_UNROLL(8) for (size_t r = 0; r < kGroup; ++r) {
          const V bias = hn::Add(hn::Set(d, before_.data()[j + r]), after);
          sums[r][c] = hn::Add(sums[r][c], bias);  // (A14)
        }
      }
      return;
    }
    const T* rows = table_.data() + (j - diagonal_) * kQueryBlock + column;
    HWY_UNROLL(8) for (size_t r = 0; r < kGroup; ++r) {
      HWY_UNROLL(4) for (size_t c = 0; c < kVectors; ++c) {
        sums[r][c] = hn::Add(sums[r][c], hn::Load(d, rows + r * kQueryBlock + c * lanes));  // (A14)
      }
    }
  }

 private:
  Scratch<T> gates_;   // [packed]
  Scratch<T> before_;  // [packed] of keys before the table
  Scratch<T> table_;   // [keys from diagonal_ on × kQueryBlock]
  alignas(64) T after_[kQueryBlock];
  size_t diagonal_ = 0;  // the first group of keys that the table has
};

// For the keys [j, j + kGroup), with prefix_i = Σ_{j' < j} ds_ij' coming in and going out moved on: what the
// queries behind each key add to the gate of the token after it.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void AddGateGrads(D d, const Band& band, size_t j, size_t begin, size_t end, const T* ds,
                             T* prefix, T* d_gates) {
  using V = hn::Vec<D>;
  const size_t lanes = hn::Lanes(d);
  V sums[kGroup];
  HWY_UNROLL(8) for (size_t r = 0; r < kGroup; ++r) sums[r] = hn::Zero(d);
  for (size_t i = begin; i < end; i += lanes) {
    const bool all_behind = j + kGroup <= band.position + i;
    const V query = hn::Sub(hn::Iota(d, static_cast<T>(i)), hn::Set(d, static_cast<T>(band.first_query(j))));
    V before = hn::Load(d, prefix + i);
    HWY_UNROLL(8) for (size_t r = 0; r < kGroup; ++r) {
      before = hn::Add(before, hn::Load(d, ds + r * kStripStride + i));  // (A15)
      const auto behind = hn::Gt(query, hn::Set(d, static_cast<T>(r)));
      sums[r] = hn::Add(sums[r], all_behind ? before : hn::IfThenElseZero(behind, before));  // (A16)
    }
    hn::Store(before, d, prefix + i);
  }
  HWY_UNROLL(8) for (size_t r = 0; r < kGroup; ++r) {
    d_gates[j + r + 1] += hn::GetLane(hn::SumOfLanes(d, sums[r]));
  }
}

// One head's gradients to where they belong; gates of keys that no query sees past get 0.
template <typename T>
HWY_INLINE void WriteGateGrads(const SoftmaxAttentionArgs<T>& a, size_t b, size_t h, size_t base,
                               size_t packed, const T* d_gates, const SoftmaxAttentionGrad<T>& grad) {
  if (!grad.data) return;
  T* to = grad.data + b * a.kv_rows * a.heads + h;
  for (size_t j = 0; j < base + packed; ++j) {
    const T x = j < base ? T{0} : d_gates[j - base];
    to[j * a.heads] = grad.add ? to[j * a.heads] + x : x;
  }
}

}  // namespace attention
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
