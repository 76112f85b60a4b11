// What tiled softmax attention's two directions share, per target: which query sees which key, the operands
// of a head, the mask.
//
// A tile is held transposed: rows are keys, lanes are queries. So the row statistics of (A2) and (A3) are
// lane-wise, the keys' side of every product reads rows as they lie, and only q and do are transposed, a
// block of queries at a time. Logits are kept in units of log 2 (log2 e is folded into the transposed q), so
// that exp is a bare 2^x.
//
// Products are cut to what is visible: the scores to whole vectors of queries, the sums over keys to the keys
// that a group of kGroup queries sees, the sums over queries to the queries that see a group of kGroup keys.

#if defined(STORYTAPE_SOFTMAX_BAND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_SOFTMAX_BAND_INL_H_
#undef STORYTAPE_SOFTMAX_BAND_INL_H_
#else
#define STORYTAPE_SOFTMAX_BAND_INL_H_
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
  size_t slack;  // 0 where groups of keys and of queries begin at the same positions, else kGroup - 1

  static constexpr ptrdiff_t kFar = 2 * static_cast<ptrdiff_t>(kQueryBlock);

  struct Range {
    size_t begin, end;
    size_t size() const { return end > begin ? end - begin : 0; }
  };
  // Key j is seen from query first_query(j) on, up to end_query(j); counted from the block's first, and
  // clamped where that is far outside the block.
  ptrdiff_t first_query(size_t j) const {
    return std::max(static_cast<ptrdiff_t>(j) - static_cast<ptrdiff_t>(position), -kFar);
  }
  ptrdiff_t end_query(size_t j) const {
    return std::min(static_cast<ptrdiff_t>(j + window) - static_cast<ptrdiff_t>(position), kFar);
  }
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
  // Whether the queries [begin, end) all see all of the keys [j, j + kGroup).
  bool whole(size_t j, size_t begin, size_t end) const {
    return j + kGroup - 1 <= position + begin && j + kGroup <= last && j + window >= position + end;
  }
};

// What becomes of the products of queries and keys before they are weighed.
enum class Logits {
  kPlain,
  kForget,  // the forget gates' bias comes to them
  kCapped,  // (A17)
};

// What the transposed queries are multiplied by: a register tile then holds logits in units of log 2, or, before
// a soft cap c, s / c.
template <Logits kLogits, typename T>
HWY_INLINE T LogitFactor(const SoftmaxAttentionArgs<T>& a) {
  return kLogits == Logits::kCapped ? a.scale / a.softcap : a.scale * static_cast<T>(kLog2E);
}

// One head's operands, packed.
template <typename T>
struct Head {
  size_t dk, dv;    // widths
  size_t ldk, ldv;  // the same in whole vectors
  T cap;            // the soft cap in units of log 2
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

// From s / c of a tile to its capped logits in units of log 2.
template <size_t kVectors, class D, class V, typename T = hn::TFromD<D>>
HWY_INLINE void CapTile(D d, T cap, V (&sums)[kGroup][kVectors]) {
  const V c = hn::Set(d, cap);
  HWY_UNROLL(8) for (size_t r = 0; r < kGroup; ++r) {
    HWY_UNROLL(4)
    for (size_t v = 0; v < kVectors; ++v) sums[r][v] = hn::Mul(c, Tanh(d, sums[r][v]));  // (A17)
  }
}

// -inf in place of the logits of a tile that are masked: keys from j on against queries from `column` on.
template <size_t kVectors, class D, class V, typename T = hn::TFromD<D>>
HWY_INLINE void HideTile(D d, const Band& band, size_t j, size_t column, V (&sums)[kGroup][kVectors]) {
  const size_t lanes = hn::Lanes(d);
  const V hidden = hn::Set(d, -std::numeric_limits<T>::infinity());
  HWY_UNROLL(4) for (size_t c = 0; c < kVectors; ++c, column += lanes) {
    if (band.whole(j, column, column + lanes)) continue;
    // Query i sees key j + r where i >= first + r and i < end + r. Clamped so that T holds them exactly.
    const V query = hn::Iota(d, static_cast<T>(column));
    const V from_first = hn::Sub(query, hn::Set(d, static_cast<T>(band.first_query(j))));
    const V from_end = hn::Sub(query, hn::Set(d, static_cast<T>(band.end_query(j))));
    HWY_UNROLL(8) for (size_t r = 0; r < kGroup; ++r) {
      const V row = hn::Set(d, static_cast<T>(r));
      const auto seen = hn::And(hn::Ge(from_first, row), hn::Lt(from_end, row));
      sums[r][c] = j + r < band.last ? hn::IfThenElse(seen, sums[r][c], hidden) : hidden;
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

// Rows [0, n) of one head, packed, and kGroup rows of zeros. `from` is row 0 of the sequence, key j lies in
// row (first + j) % ring.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void PackHead(D d, size_t n, size_t first, size_t ring, size_t width, size_t padded, const T* from,
                         size_t ld, T* to) {
  size_t row = n ? first % ring : 0;
  for (size_t j = 0; j < n; ++j, to += padded) {
    PrefetchRow(from + (row + kPrefetchRows) * ld, width);
    CopyRow(d, width, T{1}, from + row * ld, to);
    if (++row == ring) row = 0;
  }
  std::fill_n(to, kGroup * padded, T{0});
}

}  // namespace attention
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
