// Softmax attention in tiles, per target. Tags (A..) are those of nn/mixers/softmax_attention.h.
//
// A tile is held transposed: rows are keys, lanes are queries. So the row statistics of (A2) and (A3) are lane-wise,
// the keys' side of every product reads rows as they lie, and only q and do are transposed, a block of queries at a
// time. Logits are kept in units of log 2 (log2 e is folded into the transposed q), so that exp is a bare 2^x.
//
// Products are cut to what is visible: the scores to whole vectors of queries, the sums over keys to the keys that a
// group of kGroup queries sees, the sums over queries to the queries that see a group of kGroup keys.

#if defined(STORYTAPE_SOFTMAX_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_SOFTMAX_ATTENTION_INL_H_
#undef STORYTAPE_SOFTMAX_ATTENTION_INL_H_
#else
#define STORYTAPE_SOFTMAX_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "nn/mixers/kernels/softmax_attention.h"
#include "nn/mixers/kernels/softmax_tiles-inl.h"
#include "tensor/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace attention {
namespace hn = hwy::HWY_NAMESPACE;

// Which query sees which key, for one block of queries. Keys are counted from the first packed one.
struct Band {
  size_t queries;      // in the block
  size_t position;     // of its first query among the keys
  size_t first, last;  // the keys that any of them sees
  size_t window;
  size_t slack;        // 0 where groups of keys and of queries begin at the same positions, else kGroup - 1

  struct Range {
    size_t begin, end;
    size_t size() const { return end > begin ? end - begin : 0; }
  };
  // Queries that see at least one of the keys [j, j + kGroup).
  Range queries_of(size_t j) const {
    const size_t end = j + kGroup - 1 + window;
    return {j > position ? j - position : 0, end > position ? std::min(queries, end - position) : 0};
  }
  // Those whose scores are computed: enough for every pair that a product below touches.
  Range computed(size_t j) const {
    const Range seen = queries_of(j);
    return {seen.begin > slack ? seen.begin - slack : 0, std::min(queries, seen.end + kGroup - 1)};
  }
  // Keys within [from, to) that at least one of the queries [i, i + kGroup) sees.
  Range keys_of(size_t i, size_t from, size_t to) const {
    const size_t end = position + i + kGroup;
    const size_t begin = end - (kGroup - 1) > window ? end - (kGroup - 1) - window : 0;
    return {std::max(from, begin), std::min(to, end)};
  }
  // Whether every query sees all of the keys [j, j + kGroup).
  bool whole(size_t j) const {
    return j + kGroup - 1 <= position && j + kGroup <= last && j + window >= position + queries;
  }
};

// One head's operands, packed.
template <typename T>
struct Head {
  size_t dk, dv;    // widths
  size_t ldk, ldv;  // the same in whole vectors
  const T* k;       // [keys + kGroup × ldk], zeros past the last key
  const T* v;       // [keys + kGroup × ldv]
};

// 2^x for x <= 0 up to rounding; 0 below the normal numbers; NaN stays NaN.
template <class D, class V>
HWY_INLINE V Exp2Weight(D d, V x) {
  using T = hn::TFromD<D>;
  if constexpr (sizeof(T) == 4) {
    return Exp2NonPositive(d, x);
  } else {
    // 2^x = 2^n exp(f ln 2), x = n + f
    using M = MathTraits<T>;
    x = AtLeast(d, x, T{-1023});
    const V t = hn::Add(x, hn::Set(d, M::kRound));
    const V f = hn::Sub(x, hn::Sub(t, hn::Set(d, M::kRound)));
    const V e = ExpMinusOneNarrow(d, hn::Mul(f, hn::Set(d, static_cast<T>(1 / kLog2E))));
    return hn::Mul(hn::Add(e, hn::Set(d, T{1})), PowerOfTwo(d, t));
  }
}

// Which lanes of row j see key j, lanes being queries from `column` on.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Mask<D> Visible(D d, const Band& band, size_t j, size_t column) {
  if (j >= band.last) return hn::FirstN(d, 0);
  const T from = static_cast<T>(j) - static_cast<T>(band.position);
  const T to = from + static_cast<T>(std::min(band.window, size_t{1} << 20));
  const auto query = hn::Iota(d, static_cast<T>(column));
  return hn::And(hn::Ge(query, hn::Set(d, from)), hn::Lt(query, hn::Set(d, to)));
}

// Scores of kGroup keys against kVectors vectors of queries, and their maximum so far.
template <size_t kVectors, class D, typename T = hn::TFromD<D>>
HWY_INLINE void ScoreTile(D d, const Band& band, const Head<T>& head, size_t j, size_t column, const T* qt, T* s,
                          T* max) {
  using V = hn::Vec<D>;
  const size_t lanes = hn::Lanes(d);
  V sums[kGroup][kVectors];
  ZeroTile<kVectors>(d, sums);
  AddToTile<kVectors>(d, head.dk, head.k + j * head.ldk, head.ldk, 1, qt + column, kQueryBlock, sums);  // (A1)
  if (!band.whole(j)) {
    const V hidden = hn::Set(d, -std::numeric_limits<T>::infinity());
    HWY_UNROLL(8) for (size_t r = 0; r < kGroup; ++r) {
      HWY_UNROLL(4) for (size_t c = 0; c < kVectors; ++c) {
        sums[r][c] = hn::IfThenElse(Visible(d, band, j + r, column + c * lanes), sums[r][c], hidden);
      }
    }
  }
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
  T* qt;         // [dk × kQueryBlock] q transposed, times scale · log2 e
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

template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void ForwardBlock(D d, const Band& band, const Head<T>& head, const ForwardScratch<T>& w) {
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
        ScoreTile<width()>(d, band, head, j, i, w.qt, s, w.chunk_max);
      });
    }
    MoveMax(d, band, w);
    for (size_t j = c0; j < c1; j += kGroup) {
      const Band::Range range = band.computed(j);
      WeighGroup(d, range.begin / lanes * lanes, range.end, w.strip + (j - c0) * kStripStride, w.chunk_max, w.sum);
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

// Where the blocks of a problem lie.
template <typename T>
struct Plan {
  size_t base;    // the first key that any query sees: the first packed one
  size_t packed;  // keys packed
  size_t ldk, ldv;
  size_t window;

  explicit Plan(const SoftmaxAttentionArgs<T>& a) {
    const size_t lanes = hn::Lanes(hn::ScalableTag<T>());
    window = a.window ? a.window : size_t{1} << 48;
    base = a.offset + 1 > window ? std::min(a.keys, a.offset + 1 - window) : 0;
    packed = a.keys - base;
    ldk = RoundUp(a.dk, lanes);
    ldv = RoundUp(a.dv, lanes);
  }
  Band band(const SoftmaxAttentionArgs<T>& a, size_t i0) const {
    Band b;
    b.queries = std::min(kQueryBlock, a.queries - i0);
    b.position = a.offset + i0 - std::min(base, a.offset + i0);
    b.window = window;
    b.last = std::min(packed, b.position + b.queries);
    b.first = std::min(b.last, b.position + 1 > window ? b.position + 1 - window : 0);
    b.slack = b.position >= b.first && (b.position - b.first) % kGroup == 0 ? 0 : kGroup - 1;
    return b;
  }
};

// Rows [0, n) of one head, packed, and kGroup rows of zeros. `from` is row 0 of the sequence, key j lies in row
// (first + j) % ring.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void PackHead(D d, size_t n, size_t first, size_t ring, size_t width, size_t padded, const T* from,
                         size_t ld, T* to) {
  size_t row = n ? first % ring : 0;
  for (size_t j = 0; j < n; ++j, to += padded) {
    CopyRow(d, width, T{1}, from + row * ld, to);
    if (++row == ring) row = 0;
  }
  std::fill_n(to, kGroup * padded, T{0});
}

template <typename T>
void ForwardT(const SoftmaxAttentionArgs<T>& a, T* o, const SoftmaxAttentionStats<T>& stats) {
  const hn::ScalableTag<T> d;
  const Plan<T> plan(a);
  const size_t rows = plan.packed + kGroup;
  const Scratch<T> k(rows * plan.ldk), v(rows * plan.ldv);
  const Scratch<T> qt(a.dk * kQueryBlock), strip(kKeyChunk * kStripStride), u(kQueryBlock * plan.ldv);
  alignas(64) T row[4][kQueryBlock];
  const ForwardScratch<T> work{qt.data(), strip.data(), u.data(), row[0], row[1], row[2], row[3]};
  const Head<T> head{a.dk, a.dv, plan.ldk, plan.ldv, k.data(), v.data()};
  const size_t group = a.heads / a.kv_heads;
  const T factor = a.scale * static_cast<T>(kLog2E);

  for (size_t bg = 0; bg < a.batch * a.kv_heads; ++bg) {
    const size_t b = bg / a.kv_heads;
    const size_t g = bg % a.kv_heads;
    const size_t kv_row = b * a.kv_rows * a.kv_heads + g;
    PackHead(d, plan.packed, plan.base, a.kv_rows, a.dk, plan.ldk, a.k + kv_row * a.dk, a.kv_heads * a.dk, k.data());
    PackHead(d, plan.packed, plan.base, a.kv_rows, a.dv, plan.ldv, a.v + kv_row * a.dv, a.kv_heads * a.dv, v.data());
    for (size_t h = g * group; h < (g + 1) * group; ++h) {
      for (size_t i0 = 0; i0 < a.queries; i0 += kQueryBlock) {
        const Band band = plan.band(a, i0);
        const size_t q_row = (b * a.q_rows + i0) * a.heads + h;
        Transpose(d, band.queries, a.dk, a.q + q_row * a.dk, a.heads * a.dk, factor, work.qt);
        ForwardBlock(d, band, head, work);
        for (size_t i = 0; i < band.queries; ++i) {
          const T l = work.sum[i];
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

// What one block of queries needs to be walked back.
template <typename T>
struct BackwardScratch {
  T* q;      // [kQueryBlock × ldk]
  T* qt;     // [dk × kQueryBlock], times scale · log2 e
  T* g;      // [kQueryBlock × ldv] do_i / l_i
  T* gt;     // [dv × kQueryBlock]
  T* max;    // [kQueryBlock]
  T* delta;  // [kQueryBlock] <do_i, o_i> / l_i
  T* p;      // [kGroup × kStripStride] exp(s - max) of a group of keys
  T* strip;  // [kKeyChunk × kStripStride] ds of a chunk of keys
  T* dq;     // [kQueryBlock × ldk]
  T* dk;     // [keys + kGroup × ldk], to be multiplied by scale
  T* dv;     // [keys + kGroup × ldv]
};

// delta = <do_i, o_i> / l_i, from both transposed. Added up as a tile adds <do_i, v_j>, so that a query that sees one
// key, whose o is that v, has ds = 0 exactly.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void Deltas(D d, size_t queries, size_t width, const T* gt, const T* ot, T* delta) {
  for (size_t i = 0; i < queries; i += hn::Lanes(d)) {
    auto sum = hn::Zero(d);
    for (size_t c = 0; c < width; ++c) {
      sum = hn::MulAdd(hn::Load(d, ot + c * kQueryBlock + i), hn::Load(d, gt + c * kQueryBlock + i), sum);  // (A9)
    }
    hn::Store(sum, d, delta + i);
  }
}

// Weights exp(s - max) and ds of kGroup keys against kVectors vectors of queries.
template <size_t kVectors, class D, typename T = hn::TFromD<D>>
HWY_INLINE void BackwardTile(D d, const Band& band, const Head<T>& head, size_t j, size_t column,
                             const BackwardScratch<T>& w, T* strip) {
  using V = hn::Vec<D>;
  const size_t lanes = hn::Lanes(d);
  const bool whole = band.whole(j);
  V sums[kGroup][kVectors];
  ZeroTile<kVectors>(d, sums);
  AddToTile<kVectors>(d, head.dk, head.k + j * head.ldk, head.ldk, 1, w.qt + column, kQueryBlock, sums);  // (A1)
  HWY_UNROLL(4) for (size_t c = 0; c < kVectors; ++c) {
    const V max = hn::Load(d, w.max + column + c * lanes);
    HWY_UNROLL(8) for (size_t r = 0; r < kGroup; ++r) {
      V x = hn::Sub(sums[r][c], max);
      if (!whole) {
        const V hidden = hn::Set(d, -std::numeric_limits<T>::infinity());
        x = hn::IfThenElse(Visible(d, band, j + r, column + c * lanes), x, hidden);
      }
      hn::Store(Exp2Weight(d, x), d, w.p + r * kStripStride + column + c * lanes);  // (A8)
    }
  }
  ZeroTile<kVectors>(d, sums);
  AddToTile<kVectors>(d, head.dv, head.v + j * head.ldv, head.ldv, 1, w.gt + column, kQueryBlock, sums);
  HWY_UNROLL(4) for (size_t c = 0; c < kVectors; ++c) {
    const V delta = hn::Load(d, w.delta + column + c * lanes);
    HWY_UNROLL(8) for (size_t r = 0; r < kGroup; ++r) {
      const size_t at = r * kStripStride + column + c * lanes;
      hn::Store(hn::Mul(hn::Load(d, w.p + at), hn::Sub(sums[r][c], delta)), d, strip + at);  // (A11)
    }
  }
}

template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void BackwardBlock(D d, const Band& band, const Head<T>& head, const BackwardScratch<T>& w) {
  const size_t lanes = hn::Lanes(d);
  for (size_t c0 = band.first; c0 == band.first || c0 < band.last; c0 += kKeyChunk) {
    const size_t c1 = std::min(band.last, c0 + kKeyChunk);
    for (size_t j = c0; j < c1; j += kGroup) {
      const Band::Range range = band.computed(j);
      T* ds = w.strip + (j - c0) * kStripStride;
      ForTiles<kTileWidth>(lanes, range.begin / lanes * lanes, range.end, [&](auto width, size_t i) HWY_ATTR {
        BackwardTile<width()>(d, band, head, j, i, w, ds);
      });
      const Band::Range seen = band.queries_of(j);
      AddProduct(d, seen.size(), w.p + seen.begin, kStripStride, 1, w.g + seen.begin * head.ldv, head.ldv, false,
                 w.dv + j * head.ldv);  // (A10)
      AddProduct(d, seen.size(), ds + seen.begin, kStripStride, 1, w.q + seen.begin * head.ldk, head.ldk, false,
                 w.dk + j * head.ldk);  // (A13)
    }
    for (size_t i = 0; i < band.queries; i += kGroup) {
      const Band::Range keys = band.keys_of(i, c0, c1);
      AddProduct(d, keys.size(), w.strip + (keys.begin - c0) * kStripStride + i, 1, kStripStride,
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
  for (size_t j = 0; j < n; ++j) WriteRow(d, width, factor, grad.add, from + j * padded, to + (base + j) * ld);
}

template <typename T>
void BackwardT(const SoftmaxAttentionArgs<T>& a, const T* o, const SoftmaxAttentionStats<T>& stats, const T* d_o,
               const SoftmaxAttentionGrad<T>& dq, const SoftmaxAttentionGrad<T>& dk, const SoftmaxAttentionGrad<T>& dv) {
  const hn::ScalableTag<T> d;
  const Plan<T> plan(a);
  const size_t rows = plan.packed + kGroup;
  const Scratch<T> k(rows * plan.ldk), v(rows * plan.ldv), sum_dk(rows * plan.ldk), sum_dv(rows * plan.ldv);
  const Scratch<T> q(kQueryBlock * plan.ldk), qt(a.dk * kQueryBlock), g(kQueryBlock * plan.ldv);
  const Scratch<T> gt(a.dv * kQueryBlock), p(kGroup * kStripStride), strip(kKeyChunk * kStripStride);
  const Scratch<T> block_dq(kQueryBlock * plan.ldk), ot(a.dv * kQueryBlock);
  alignas(64) T row[2][kQueryBlock];
  const BackwardScratch<T> work{q.data(),     qt.data(),       g.data(),      gt.data(), row[0], row[1], p.data(),
                                strip.data(), block_dq.data(), sum_dk.data(), sum_dv.data()};
  const Head<T> head{a.dk, a.dv, plan.ldk, plan.ldv, k.data(), v.data()};
  const size_t group = a.heads / a.kv_heads;
  const T factor = a.scale * static_cast<T>(kLog2E);

  for (size_t bg = 0; bg < a.batch * a.kv_heads; ++bg) {
    const size_t b = bg / a.kv_heads;
    const size_t kv = bg % a.kv_heads;
    const size_t kv_row = b * a.kv_rows * a.kv_heads + kv;
    PackHead(d, plan.packed, plan.base, a.kv_rows, a.dk, plan.ldk, a.k + kv_row * a.dk, a.kv_heads * a.dk, k.data());
    PackHead(d, plan.packed, plan.base, a.kv_rows, a.dv, plan.ldv, a.v + kv_row * a.dv, a.kv_heads * a.dv, v.data());
    std::fill_n(work.dk, rows * plan.ldk, T{0});
    std::fill_n(work.dv, rows * plan.ldv, T{0});
    for (size_t h = kv * group; h < (kv + 1) * group; ++h) {
      for (size_t i0 = 0; i0 < a.queries; i0 += kQueryBlock) {
        const Band band = plan.band(a, i0);
        const size_t q_row = (b * a.q_rows + i0) * a.heads + h;
        const size_t at = (b * a.heads + h) * a.q_rows + i0;
        for (size_t i = 0; i < band.queries; ++i) {
          const size_t r = q_row + i * a.heads;
          const T l = stats.sum[at + i];
          const T inverse = l == T{0} ? T{0} : T{1} / l;
          CopyRow(d, a.dk, T{1}, a.q + r * a.dk, work.q + i * plan.ldk);
          CopyRow(d, a.dv, inverse, d_o + r * a.dv, work.g + i * plan.ldv);
          work.max[i] = l == T{0} ? T{0} : stats.max[at + i];
        }
        std::fill(work.max + band.queries, work.max + kQueryBlock, T{0});
        Transpose(d, band.queries, a.dk, work.q, plan.ldk, factor, work.qt);
        Transpose(d, band.queries, a.dv, work.g, plan.ldv, T{1}, work.gt);
        Transpose(d, band.queries, a.dv, o + q_row * a.dv, a.heads * a.dv, T{1}, ot.data());
        Deltas(d, band.queries, a.dv, work.gt, ot.data(), work.delta);
        BackwardBlock(d, band, head, work);
        if (!dq.data) continue;
        for (size_t i = 0; i < band.queries; ++i) {
          WriteRow(d, a.dk, a.scale, dq.add, work.dq + i * plan.ldk, dq.data + (q_row + i * a.heads) * a.dk);
        }
      }
    }
    UnpackGrad(d, plan.base, plan.packed, a.dk, plan.ldk, a.scale, work.dk, dk, kv_row * a.dk, a.kv_heads * a.dk);
    UnpackGrad(d, plan.base, plan.packed, a.dv, plan.ldv, T{1}, work.dv, dv, kv_row * a.dv, a.kv_heads * a.dv);
  }
}

}  // namespace attention
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
