// Softmax attention backward in tiles, per target; see softmax_band-inl.h. Tags (A..) are those of
// nn/mixers/softmax_attention.h. Forward is in softmax_forward-inl.h.

#if defined(STORYTAPE_SOFTMAX_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_SOFTMAX_ATTENTION_INL_H_
#undef STORYTAPE_SOFTMAX_ATTENTION_INL_H_
#else
#define STORYTAPE_SOFTMAX_ATTENTION_INL_H_
#endif

#include <algorithm>

#include "nn/mixers/kernels/softmax_forget-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace attention {
namespace hn = hwy::HWY_NAMESPACE;

// What one block of queries needs to be walked back.
template <typename T>
struct BackwardScratch {
  T* q;        // [kQueryBlock × ldk]
  T* qt;       // [dk × kQueryBlock], times LogitFactor
  T* g;        // [kQueryBlock × ldv] do_i / l_i
  T* gt;       // [dv × kQueryBlock]
  T* max;      // [kQueryBlock]
  T* delta;    // [kQueryBlock] <do_i, o_i> / l_i
  T* p;        // [kBackwardChunk × kStripStride] exp(s - max) of a chunk of keys
  T* ds;       // [kBackwardChunk × kStripStride] their ds; before, with a soft cap, its slopes
  T* dq;       // [kQueryBlock × ldk]
  T* prefix;   // [kQueryBlock] Σ ds_ij over the keys so far; with forget gates only, like the next
  T* dk;       // [keys + kGroup × ldk], to be multiplied by scale
  T* dv;       // [keys + kGroup × ldv]
  T* d_gates;  // [keys + kGroup + 1]
};

// delta = <do_i, o_i> / l_i, from both transposed. Added up as a tile adds <do_i, v_j>, so that a query that
// sees one key, whose o is that v, has ds = 0 exactly.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void Deltas(D d, size_t queries, size_t width, const T* gt, const T* ot, T* delta) {
  for (size_t i = 0; i < queries; i += hn::Lanes(d)) {
    auto sum = hn::Zero(d);
    for (size_t c = 0; c < width; ++c) {
      sum = hn::MulAdd(hn::Load(d, ot + c * kQueryBlock + i), hn::Load(d, gt + c * kQueryBlock + i),
                       sum);  // (A9)
    }
    hn::Store(sum, d, delta + i);
  }
}

// Weights exp(s - max) of kGroup keys for kVectors vectors of queries; with a soft cap also its slope.
template <Logits kLogits, size_t kVectors, class D, typename T = hn::TFromD<D>>
HWY_INLINE void WeightTile(D d, const Band& band, const Head<T>& head, const Forget<T>& forget, size_t j,
                           size_t column, const BackwardScratch<T>& w, T* p, T* slope) {
  using V = hn::Vec<D>;
  const size_t lanes = hn::Lanes(d);
  V sums[kGroup][kVectors];
  ZeroTile<kVectors>(d, sums);
  AddToTile<kVectors>(d, head.dk, head.k + j * head.ldk, head.ldk, 1, w.qt + column, kQueryBlock,
                      sums);  // (A1)
  if constexpr (kLogits == Logits::kForget) forget.template add<kVectors>(d, j, column, sums);
  if constexpr (kLogits == Logits::kCapped) {
    HWY_UNROLL(8) for (size_t r = 0; r < kGroup; ++r) {
      HWY_UNROLL(4) for (size_t c = 0; c < kVectors; ++c) {
        hn::Store(TanhGrad(d, sums[r][c]), d, slope + r * kStripStride + column + c * lanes);  // (A18)
      }
    }
    CapTile<kVectors>(d, head.cap, sums);
  }
  HideTile<kVectors>(d, band, j, column, sums);
  HWY_UNROLL(4) for (size_t c = 0; c < kVectors; ++c) {
    const V max = hn::Load(d, w.max + column + c * lanes);
    HWY_UNROLL(8) for (size_t r = 0; r < kGroup; ++r) {
      hn::Store(Exp2Weight(d, hn::Sub(sums[r][c], max)), d,
                p + r * kStripStride + column + c * lanes);  // (A8)
    }
  }
}

// ds from the weights p; with a soft cap, ds holds its slope before.
template <Logits kLogits, size_t kVectors, class D, typename T = hn::TFromD<D>>
HWY_INLINE void LogitGradTile(D d, const Head<T>& head, size_t j, size_t column, const BackwardScratch<T>& w,
                              const T* p, T* ds) {
  using V = hn::Vec<D>;
  const size_t lanes = hn::Lanes(d);
  V sums[kGroup][kVectors];
  ZeroTile<kVectors>(d, sums);
  AddToTile<kVectors>(d, head.dv, head.v + j * head.ldv, head.ldv, 1, w.gt + column, kQueryBlock, sums);
  HWY_UNROLL(4) for (size_t c = 0; c < kVectors; ++c) {
    const V delta = hn::Load(d, w.delta + column + c * lanes);
    HWY_UNROLL(8) for (size_t r = 0; r < kGroup; ++r) {
      const size_t at = r * kStripStride + column + c * lanes;
      V x = hn::Mul(hn::Load(d, p + at), hn::Sub(sums[r][c], delta));                  // (A11)
      if constexpr (kLogits == Logits::kCapped) x = hn::Mul(x, hn::Load(d, ds + at));  // (A18)
      hn::Store(x, d, ds + at);
    }
  }
}

// Sums over queries are set, not added to, for keys from `fresh` on.
template <Logits kLogits, class D, typename T = hn::TFromD<D>>
HWY_INLINE void BackwardBlock(D d, const Band& band, const Head<T>& head, const Forget<T>& forget,
                              size_t fresh, const BackwardScratch<T>& w) {
  const size_t lanes = hn::Lanes(d);
  if constexpr (kLogits == Logits::kForget) std::fill_n(w.prefix, kQueryBlock, T{0});
  for (size_t c0 = band.first; c0 == band.first || c0 < band.last; c0 += kBackwardChunk) {
    const size_t c1 = std::min(band.last, c0 + kBackwardChunk);
    for (size_t j = c0; j < c1; j += kGroup) {
      const Band::Range range = band.computed(j);
      T* p = w.p + (j - c0) * kStripStride;
      T* slope = w.ds + (j - c0) * kStripStride;
      ForTiles<kTileWidth>(lanes, range.begin / lanes * lanes, range.end, [&](auto width, size_t i) HWY_ATTR {
        WeightTile<kLogits, width()>(d, band, head, forget, j, i, w, p, slope);
      });
    }
    for (size_t j = c0; j < c1; j += kGroup) {
      const Band::Range range = band.computed(j);
      const T* p = w.p + (j - c0) * kStripStride;
      T* ds = w.ds + (j - c0) * kStripStride;
      ForTiles<kTileWidth>(lanes, range.begin / lanes * lanes, range.end, [&](auto width, size_t i) HWY_ATTR {
        LogitGradTile<kLogits, width()>(d, head, j, i, w, p, ds);
      });
      if constexpr (kLogits == Logits::kForget) {
        AddGateGrads(d, band, j, range.begin / lanes * lanes, range.end, ds, w.prefix, w.d_gates);
      }
    }
    for (size_t j = c0; j < c1; j += kGroup) {
      const Band::Range seen = band.queries_of(j);
      AddProduct(d, seen.size(), w.p + (j - c0) * kStripStride + seen.begin, kStripStride, 1,
                 w.g + seen.begin * head.ldv, head.ldv, j >= fresh,
                 w.dv + j * head.ldv);  // (A10)
    }
    for (size_t j = c0; j < c1; j += kGroup) {
      const Band::Range seen = band.queries_of(j);
      AddProduct(d, seen.size(), w.ds + (j - c0) * kStripStride + seen.begin, kStripStride, 1,
                 w.q + seen.begin * head.ldk, head.ldk, j >= fresh,
                 w.dk + j * head.ldk);  // (A13)
    }
    for (size_t i = 0; i < band.queries; i += kGroup) {
      const Band::Range keys = band.keys_of(i, c0, c1);
      AddProduct(d, keys.size(), w.ds + (keys.begin - c0) * kStripStride + i, 1, kStripStride,
                 head.k + keys.begin * head.ldk, head.ldk, c0 == band.first, w.dq + i * head.ldk);  // (A12)
    }
  }
}

// Gradients of one head's keys or values to where they belong; keys that no query sees get 0.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void UnpackGrad(D d, size_t base, size_t n, size_t width, size_t padded, T factor, const T* from,
                           const SoftmaxAttentionGrad<T>& grad, size_t offset, size_t ld) {
  if (!grad.data) return;
  T* to = grad.data + offset;
  if (!grad.add) {
    for (size_t j = 0; j < base; ++j) std::fill_n(to + j * ld, width, T{0});
  }
  for (size_t j = 0; j < n; ++j) {
    PrefetchRow(to + (base + j + kPrefetchRows) * ld, width);
    WriteRow(d, width, factor, grad.add, from + j * padded, to + (base + j) * ld);
  }
}

template <Logits kLogits, typename T>
void BackwardT(const SoftmaxAttentionArgs<T>& a, const T* o, const SoftmaxAttentionStats<T>& stats,
               const T* d_o, const SoftmaxAttentionGrads<T>& grads) {
  constexpr bool kForget = kLogits == Logits::kForget;
  const hn::ScalableTag<T> d;
  const Plan<T> plan(a);
  const size_t rows = plan.packed + kGroup;
  const Scratch<T> k(rows * plan.ldk), v(rows * plan.ldv), sum_dk(rows * plan.ldk), sum_dv(rows * plan.ldv);
  const Scratch<T> q(kQueryBlock * plan.ldk), qt(a.dk * kQueryBlock), g(kQueryBlock * plan.ldv);
  const Scratch<T> gt(a.dv * kQueryBlock), p(kBackwardChunk * kStripStride),
      ds(kBackwardChunk * kStripStride);
  const Scratch<T> block_dq(kQueryBlock * plan.ldk), ot(a.dv * kQueryBlock);
  const size_t gates = kForget ? rows + 1 : 0;
  const Scratch<T> d_gates(gates);
  alignas(64) T row[3][kQueryBlock];
  const BackwardScratch<T> work{q.data(),      qt.data(),     g.data(),      gt.data(),       row[0],
                                row[1],        p.data(),      ds.data(),     block_dq.data(), row[2],
                                sum_dk.data(), sum_dv.data(), d_gates.data()};
  Forget<T> forget(kForget, plan.packed);
  const SoftmaxAttentionGrad<T>& dq = grads.q;
  const Head<T> head{a.dk, a.dv, plan.ldk, plan.ldv, a.softcap * static_cast<T>(kLog2E), k.data(), v.data()};
  const size_t group = a.heads / a.kv_heads;
  const T factor = LogitFactor<kLogits>(a);
  // Without a window, groups of keys begin at the same places for all blocks, and each but those after the
  // last query is first met at a known place: there its sums are set, and nothing need be cleared before.
  const size_t first_touched = a.window ? 0 : RoundUp(std::min(plan.packed, a.offset + a.queries), kGroup);

  for (size_t bg = 0; bg < a.batch * a.kv_heads; ++bg) {
    const size_t b = bg / a.kv_heads;
    const size_t kv = bg % a.kv_heads;
    const size_t kv_row = b * a.kv_rows * a.kv_heads + kv;
    PackHead(d, plan.packed, plan.base, a.kv_rows, a.dk, plan.ldk, a.k + kv_row * a.dk, a.kv_heads * a.dk,
             k.data());
    PackHead(d, plan.packed, plan.base, a.kv_rows, a.dv, plan.ldv, a.v + kv_row * a.dv, a.kv_heads * a.dv,
             v.data());
    std::fill(work.dk + first_touched * plan.ldk, work.dk + rows * plan.ldk, T{0});
    std::fill(work.dv + first_touched * plan.ldv, work.dv + rows * plan.ldv, T{0});
    for (size_t h = kv * group; h < (kv + 1) * group; ++h) {
      if constexpr (kLogits == Logits::kForget) {
        forget.pack(a, b, h, plan.base, plan.packed);
        std::fill_n(work.d_gates, gates, T{0});
      }
      for (size_t i0 = 0; i0 < a.queries; i0 += kQueryBlock) {
        const Band band = plan.band(a, i0);
        const size_t fresh = a.window || h != kv * group ? rows : i0 == 0 ? 0 : band.position;
        const size_t q_row = (b * a.q_rows + i0) * a.heads + h;
        const size_t at = (b * a.heads + h) * a.q_rows + i0;
        for (size_t i = 0; i < band.queries; ++i) {
          const size_t r = q_row + i * a.heads;
          const T l = stats.sum[at + i];
          const T inverse = l == T{0} ? T{0} : T{1} / l;
          const size_t ahead = r + kPrefetchRows * a.heads;
          PrefetchRow(a.q + ahead * a.dk, a.dk);
          PrefetchRow(d_o + ahead * a.dv, a.dv);
          PrefetchRow(o + r * a.dv, a.dv);
          CopyRow(d, a.dk, T{1}, a.q + r * a.dk, work.q + i * plan.ldk);
          CopyRow(d, a.dv, inverse, d_o + r * a.dv, work.g + i * plan.ldv);
          work.max[i] = l == T{0} ? T{0} : stats.max[at + i];
        }
        std::fill(work.max + band.queries, work.max + kQueryBlock, T{0});
        Transpose(d, band.queries, a.dk, work.q, plan.ldk, factor, work.qt);
        Transpose(d, band.queries, a.dv, work.g, plan.ldv, T{1}, work.gt);
        Transpose(d, band.queries, a.dv, o + q_row * a.dv, a.heads * a.dv, T{1}, ot.data());
        Deltas(d, band.queries, a.dv, work.gt, ot.data(), work.delta);
        if constexpr (kLogits == Logits::kForget) forget.set_block(d, band);
        BackwardBlock<kLogits>(d, band, head, forget, fresh, work);
        if (!dq.data) continue;
        for (size_t i = 0; i < band.queries; ++i) {
          PrefetchRow(dq.data + (q_row + (i + kPrefetchRows) * a.heads) * a.dk, a.dk);
          WriteRow(d, a.dk, a.scale, dq.add, work.dq + i * plan.ldk, dq.data + (q_row + i * a.heads) * a.dk);
        }
      }
      if constexpr (kLogits == Logits::kForget)
        WriteGateGrads(a, b, h, plan.base, plan.packed, work.d_gates, grads.log_f);
    }
    UnpackGrad(d, plan.base, plan.packed, a.dk, plan.ldk, a.scale, work.dk, grads.k, kv_row * a.dk,
               a.kv_heads * a.dk);
    UnpackGrad(d, plan.base, plan.packed, a.dv, plan.ldv, T{1}, work.dv, grads.v, kv_row * a.dv,
               a.kv_heads * a.dv);
  }
}

}  // namespace attention
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
