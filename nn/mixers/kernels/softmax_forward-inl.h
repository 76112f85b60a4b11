// Softmax attention forward in tiles, per target; see softmax_band-inl.h. Tags (A..) are those of
// nn/mixers/softmax_attention.h.

#if defined(STORYTAPE_SOFTMAX_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_SOFTMAX_FORWARD_INL_H_
#undef STORYTAPE_SOFTMAX_FORWARD_INL_H_
#else
#define STORYTAPE_SOFTMAX_FORWARD_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "nn/mixers/kernels/softmax_forget-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace attention {
namespace hn = hwy::HWY_NAMESPACE;

// Scores of kGroup keys against kVectors vectors of queries, and their maximum so far.
template <Logits kLogits, size_t kVectors, class D, typename T = hn::TFromD<D>>
HWY_INLINE void ScoreTile(D d, const Band& band, const Head<T>& head, const Forget<T>& forget, size_t j,
                          size_t column, const T* qt, T* s, T* max) {
  using V = hn::Vec<D>;
  const size_t lanes = hn::Lanes(d);
  V sums[kGroup][kVectors];
  ZeroTile<kVectors>(d, sums);
  AddToTile<kVectors>(d, head.dk, head.k + j * head.ldk, head.ldk, 1, qt + column, kQueryBlock,
                      sums);  // (A1)
  if constexpr (kLogits == Logits::kForget) forget.template add<kVectors>(d, j, column, sums);
  if constexpr (kLogits == Logits::kCapped) CapTile<kVectors>(d, head.cap, sums);
  HideTile<kVectors>(d, band, j, column, sums);
  HWY_UNROLL(4) for (size_t c = 0; c < kVectors; ++c) {
    V m = hn::Load(d, max + column + c * lanes);
    HWY_UNROLL(8) for (size_t r = 0; r < kGroup; ++r) {
      m = hn::Max(m, sums[r][c]);  // (A2)
      hn::Store(sums[r][c], d, s + r * kStripStride + column + c * lanes);
    }
    hn::Store(m, d, max + column + c * lanes);
  }
}

// Weights of a block of queries, and what they sum to.
template <typename T>
struct ForwardScratch {
  T* qt;         // [dk × kQueryBlock] q transposed, times LogitFactor
  T* strip;      // [kKeyChunk × kStripStride] scores, then weights, of a chunk of keys
  T* u;          // [kQueryBlock × ldv] Σ weight · v so far
  T* max;        // [kQueryBlock] maximum so far, in units of log 2
  T* sum;        // [kQueryBlock] sum of weights so far
  T* rescale;    // [kQueryBlock]
  T* chunk_max;  // [kQueryBlock]
};

// The maximum after a chunk, and the factor by which what was summed before shrinks.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void MoveMax(D d, const Band& band, const ForwardScratch<T>& w) {
  const auto lowest = hn::Set(d, -std::numeric_limits<T>::infinity());
  for (size_t i = 0; i < band.queries; i += hn::Lanes(d)) {
    const auto before = hn::Load(d, w.max + i);
    const auto now = hn::Max(before, hn::Load(d, w.chunk_max + i));  // (A5)
    // A row that has seen no key keeps the maximum -inf and the sum 0; 0 stands in for it in differences.
    const auto finite = hn::IfThenElse(hn::Eq(now, lowest), hn::Zero(d), now);
    const auto factor = Exp2Weight(d, hn::Sub(before, finite));
    hn::Store(now, d, w.max + i);
    hn::Store(finite, d, w.chunk_max + i);
    hn::Store(factor, d, w.rescale + i);
    hn::Store(hn::Mul(hn::Load(d, w.sum + i), factor), d, w.sum + i);  // (A6), first term
  }
}

// Scores of kGroup keys turned into weights in place.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void WeighGroup(D d, size_t begin, size_t end, T* s, const T* max, T* sum) {
  for (size_t i = begin; i < end; i += hn::Lanes(d)) {
    const auto m = hn::Load(d, max + i);
    auto l = hn::Load(d, sum + i);
    HWY_UNROLL(8) for (size_t r = 0; r < kGroup; ++r) {
      T* at = s + r * kStripStride + i;
      const auto p = Exp2Weight(d, hn::Sub(hn::Load(d, at), m));
      l = hn::Add(l, p);  // (A6)
      hn::Store(p, d, at);
    }
    hn::Store(l, d, sum + i);
  }
}

template <Logits kLogits, class D, typename T = hn::TFromD<D>>
HWY_INLINE void ForwardBlock(D d, const Band& band, const Head<T>& head, const Forget<T>& forget,
                             const ForwardScratch<T>& w) {
  const size_t lanes = hn::Lanes(d);
  std::fill_n(w.max, kQueryBlock, -std::numeric_limits<T>::infinity());
  std::fill_n(w.sum, kQueryBlock, T{0});
  for (size_t c0 = band.first; c0 == band.first || c0 < band.last; c0 += kKeyChunk) {
    const size_t c1 = std::min(band.last, c0 + kKeyChunk);
    std::fill_n(w.chunk_max, kQueryBlock, -std::numeric_limits<T>::infinity());
    for (size_t j = c0; j < c1; j += kGroup) {
      const Band::Range range = band.computed(j);
      T* s = w.strip + (j - c0) * kStripStride;
      ForTiles<kTileWidth>(lanes, range.begin / lanes * lanes, range.end, [&](auto width, size_t i) HWY_ATTR {
        ScoreTile<kLogits, width()>(d, band, head, forget, j, i, w.qt, s, w.chunk_max);
      });
    }
    MoveMax(d, band, w);
    for (size_t j = c0; j < c1; j += kGroup) {
      const Band::Range range = band.computed(j);
      WeighGroup(d, range.begin / lanes * lanes, range.end, w.strip + (j - c0) * kStripStride, w.chunk_max,
                 w.sum);
    }
    const bool fresh = c0 == band.first;
    for (size_t i = 0; i < band.queries; i += kGroup) {
      T* u = w.u + i * head.ldv;
      if (!fresh) ScaleRows(d, kGroup, head.ldv, w.rescale + i, u);
      const Band::Range keys = band.keys_of(i, c0, c1);
      AddProduct(d, keys.size(), w.strip + (keys.begin - c0) * kStripStride + i, 1, kStripStride,
                 head.v + keys.begin * head.ldv, head.ldv, fresh, u);  // (A7)
    }
  }
}

template <Logits kLogits, typename T>
void ForwardT(const SoftmaxAttentionArgs<T>& a, T* o, const SoftmaxAttentionStats<T>& stats) {
  constexpr bool kForget = kLogits == Logits::kForget;
  const hn::ScalableTag<T> d;
  const Plan<T> plan(a);
  const size_t rows = plan.packed + kGroup;
  const Scratch<T> k(rows * plan.ldk), v(rows * plan.ldv);
  const Scratch<T> qt(a.dk * kQueryBlock), strip(kKeyChunk * kStripStride), u(kQueryBlock * plan.ldv);
  alignas(64) T row[4][kQueryBlock];
  const ForwardScratch<T> work{qt.data(), strip.data(), u.data(), row[0], row[1], row[2], row[3]};
  const Head<T> head{a.dk, a.dv, plan.ldk, plan.ldv, a.softcap * static_cast<T>(kLog2E), k.data(), v.data()};
  Forget<T> forget(kForget, plan.packed);
  const size_t group = a.heads / a.kv_heads;
  const T factor = LogitFactor<kLogits>(a);

  for (size_t bg = 0; bg < a.batch * a.kv_heads; ++bg) {
    const size_t b = bg / a.kv_heads;
    const size_t g = bg % a.kv_heads;
    const size_t kv_row = b * a.kv_rows * a.kv_heads + g;
    PackHead(d, plan.packed, plan.base, a.kv_rows, a.dk, plan.ldk, a.k + kv_row * a.dk, a.kv_heads * a.dk,
             k.data());
    PackHead(d, plan.packed, plan.base, a.kv_rows, a.dv, plan.ldv, a.v + kv_row * a.dv, a.kv_heads * a.dv,
             v.data());
    for (size_t h = g * group; h < (g + 1) * group; ++h) {
      if constexpr (kLogits == Logits::kForget) forget.pack(a, b, h, plan.base, plan.packed);
      for (size_t i0 = 0; i0 < a.queries; i0 += kQueryBlock) {
        const Band band = plan.band(a, i0);
        const size_t q_row = (b * a.q_rows + i0) * a.heads + h;
        Transpose(d, band.queries, a.dk, a.q + q_row * a.dk, a.heads * a.dk, factor, work.qt);
        if constexpr (kLogits == Logits::kForget) forget.set_block(d, band);
        ForwardBlock<kLogits>(d, band, head, forget, work);
        for (size_t i = 0; i < band.queries; ++i) {
          const T l = work.sum[i];
          PrefetchRow(o + (q_row + (i + kPrefetchRows) * a.heads) * a.dv, a.dv);
          WriteRow(d, a.dv, l == T{0} ? T{0} : T{1} / l, false, work.u + i * plan.ldv,
                   o + (q_row + i * a.heads) * a.dv);  // (A4)
        }
        if (stats.max) {
          const size_t at = (b * a.heads + h) * a.q_rows + i0;
          std::copy_n(work.max, band.queries, stats.max + at);
          std::copy_n(work.sum, band.queries, stats.sum + at);
        }
      }
    }
  }
}

}  // namespace attention
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
