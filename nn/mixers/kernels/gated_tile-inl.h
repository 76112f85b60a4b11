// A tile of a few tokens, the unit in which the chunkwise face of the gated family works: its rows, its
// decayed keys and scores, and its effective values. Included per target. Tags:
// nn/mixers/gated_recurrence.h.
//
// A tile has `tokens` queries and n = tokens·steps writes. Here they are counted from 0, where the header
// counts from 1: r = 0..n-1, and the query of token i reads after write e(i) = (i+1)·steps - 1. g_r is the
// token's gate at its first write, else 1.
#if defined(STORYTAPE_GATED_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_GATED_TILE_INL_H_
#undef STORYTAPE_GATED_TILE_INL_H_
#else
#define STORYTAPE_GATED_TILE_INL_H_
#endif

#include "nn/mixers/kernels/gated.h"
#include "tensor/simd_targets.h"
// After simd_targets.h.
#include "hwy/highway.h"
#include "nn/mixers/kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Where the parts of one (sequence, head) lie in the caller's arrays.
struct GatedPlace {
  size_t q, k, v, beta, scalar, state;                     // first element
  size_t key_stride, value_stride, beta_stride, gate_row;  // from one row to the next
  size_t alpha;

  GatedPlace(const GatedShape& s, GateKind gate, size_t b, size_t h)
      : q((b * s.tokens * s.heads + h) * s.dk),
        k((b * s.tokens * s.steps * s.heads + h) * s.dk),
        v((b * s.tokens * s.steps * s.heads + h) * s.dv),
        beta(b * s.tokens * s.steps * s.heads + h),
        scalar(b * s.tokens * s.heads + h),
        state((b * s.heads + h) * s.dk * s.dv),
        key_stride(s.heads * s.dk),
        value_stride(s.heads * s.dv),
        beta_stride(s.heads),
        gate_row(gate == GateKind::kVector ? s.heads * s.dk : s.heads),
        alpha(gate == GateKind::kVector ? q : scalar) {}
  // Of o and its gradient.
  size_t o(const GatedShape& s) const { return q / s.dk * s.dv; }
};

// Rows of a tile: as many tokens as fit in kTileWrites writes, at least one.
constexpr size_t kTileWrites = 16;

template <typename T>
struct GatedSizes {
  size_t dk, dv, steps, tokens, writes, ldk, ldv, ldn;
  bool delta;
  GateKind gate;
  explicit GatedSizes(const GatedInputs<T>& in)
      : dk(in.shape.dk),
        dv(in.shape.dv),
        steps(in.shape.steps),
        tokens(std::max<size_t>(1, std::min(std::min(in.chunk, in.shape.tokens), kTileWrites / steps))),
        writes(tokens * steps),
        ldk(Padded<T>(dk)),
        ldv(Padded<T>(dv)),
        ldn(Padded<T>(writes)),
        delta(in.beta != nullptr),
        gate(in.gate) {}
  size_t state() const { return ldk * ldv; }
};

// What the forward makes of one tile's rows, in padded scratch.
template <typename T>
struct GatedTile {
  size_t first = 0, tokens = 0, writes = 0;  // tokens counted in the sequence

  T* Q;       // [tokens, dk]
  T* K;       // [writes, dk]
  T* gates;   // [tokens, dk] or [tokens, 1 line]
  T* beta;    // [writes]
  T* D;       // [writes, writes]  scalar gates: D_rj = Π_{j<l≤r} g_l for j ≤ r, else 0
  T* span;    // [writes]          scalar gates: λ_r = Π_{l≤r} g_l
  T* raw;     // [tokens, writes]  scalar gates: q_i·k_j, 0 for j > e(i)
  T* raw_k;   // [writes, writes]  scalar gates: k_r·k_j, 0 for j ≥ r
  T* P;       // [tokens, writes]  (G3), 0 for j > e(i)
  T* A;       // [writes, writes]  (G3), 0 for j ≥ r
  T* Q_hat;   // [tokens, dk]      (G4)
  T* K_hat;   // [writes, dk]      (G4)
  T* Kt;      // [dk, writes]      K̃ᵀ of (G4); before that Kᵀ, or w_j^(r)
  T* lambda;  // [dk]              λ of the tile's last write
  T* ones;    // [dk]              the gates of a write without one
  T* O;       // [tokens, dv]      Q̂ S, then the read-outs
  T* KS;      // [writes, dv]      K̂ S; right behind O where the tile is full
  T* Y;       // [writes, dv]      V - K̂ S - A U, that is v_r - k_r S̃_r of (G1)
  T* U;       // [writes, dv]      (G5)
  T* S;       // [dk, dv]          the state at the tile's start, S_0 of (G3)-(G7); for the backward

  static size_t Size(const GatedSizes<T>& s) {
    const size_t keys = s.tokens + s.writes;  // rows of queries and of keys
    return 2 * keys * s.ldk + s.tokens * std::max(s.ldk, kLine<T>) + 2 * s.ldn + 2 * keys * s.ldn +
           s.writes * s.ldn + s.ldk * s.ldn + 2 * s.ldk + (s.tokens + 3 * s.writes) * s.ldv + s.state();
  }
  GatedTile(const GatedSizes<T>& s, T* memory) {
    const auto take = [&](size_t n) {
      T* at = memory;
      memory += n;
      return at;
    };
    Q = take(s.tokens * s.ldk);
    K = take(s.writes * s.ldk);
    gates = take(s.tokens * std::max(s.ldk, kLine<T>));
    beta = take(s.ldn);
    D = take(s.writes * s.ldn);
    span = take(s.ldn);
    raw = take(s.tokens * s.ldn);
    raw_k = take(s.writes * s.ldn);
    P = take(s.tokens * s.ldn);
    A = take(s.writes * s.ldn);
    Q_hat = take(s.tokens * s.ldk);
    K_hat = take(s.writes * s.ldk);
    Kt = take(s.ldk * s.ldn);
    lambda = take(s.ldk);
    ones = take(s.ldk);
    O = take(s.tokens * s.ldv);
    KS = take(s.writes * s.ldv);
    Y = take(s.writes * s.ldv);
    U = take(s.writes * s.ldv);
    S = take(s.state());
  }
};

// Keeps x[0..keep) of x[0..n), the rest becomes 0, NaN and infinities too: a row of a triangle.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void KeepFirst(D d, size_t keep, T* x, size_t n /*whole lines*/) {
  for (size_t j = 0; j < n; j += hn::Lanes(d)) {
    if (j + hn::Lanes(d) <= keep) continue;
    const auto kept = hn::IfThenElseZero(hn::FirstN(d, j < keep ? keep - j : 0), hn::LoadU(d, x + j));
    hn::StoreU(kept, d, x + j);
  }
}
// z = x ⊙ y
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void MultiplyArrays(D d, const T* x, const T* y, T* z, size_t n /*whole lines*/) {
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, z + i);
  }
}
// z = scale·x
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void CopyScaled(D d, T scale, const T* x, T* z, size_t n /*whole lines*/) {
  const auto s = hn::Set(d, scale);
  for (size_t i = 0; i < n; i += hn::Lanes(d)) hn::StoreU(hn::Mul(s, hn::LoadU(d, x + i)), d, z + i);
}

// (G3), (G4) for gates that are one number per token, or none. D is made row by row: (G13).
template <class D, typename T = hn::TFromD<D>>
void ScalarGates(D d, const GatedSizes<T>& s, GatedTile<T>& tile) {
  const size_t n = tile.writes, dk = s.dk, ldk = s.ldk, ldn = s.ldn;
  const bool gated = s.gate != GateKind::kNone;
  Transpose(n, dk, tile.K, ldk, tile.Kt, ldn);
  T* scores = gated ? tile.raw : tile.P;
  T* key_scores = gated ? tile.raw_k : tile.A;
  Product(d, tile.tokens, n, dk, tile.Q, ldk, 1, tile.Kt, ldn, Store::kSet, scores, ldn);
  if (s.delta) Product(d, n, n, dk, tile.K, ldk, 1, tile.Kt, ldn, Store::kSet, key_scores, ldn);

  if (gated) {
    T span = 1;
    for (size_t r = 0; r < n; ++r) {
      T* row = tile.D + r * ldn;
      if (r > 0 && r % s.steps == 0) {
        CopyScaled(d, tile.gates[r / s.steps * kLine<T>], row - ldn, row, ldn);
      } else if (r > 0) {
        std::copy_n(row - ldn, ldn, row);
      } else {
        ZeroArray(d, row, ldn);
      }
      row[r] = 1;
      if (r % s.steps == 0) span *= tile.gates[r / s.steps * kLine<T>];
      tile.span[r] = span;
    }
  }
  for (size_t i = 0; i < tile.tokens; ++i) {
    const size_t e = (i + 1) * s.steps - 1;
    KeepFirst(d, e + 1, scores + i * ldn, ldn);
    if (!gated) continue;
    MultiplyArrays(d, tile.raw + i * ldn, tile.D + e * ldn, tile.P + i * ldn, ldn);
    CopyScaled(d, tile.span[e], tile.Q + i * ldk, tile.Q_hat + i * ldk, ldk);
  }
  for (size_t r = 0; s.delta && r < n; ++r) {
    KeepFirst(d, r, key_scores + r * ldn, ldn);
    if (!gated) continue;
    MultiplyArrays(d, tile.raw_k + r * ldn, tile.D + r * ldn, tile.A + r * ldn, ldn);
    CopyScaled(d, tile.span[r], tile.K + r * ldk, tile.K_hat + r * ldk, ldk);
  }
  if (!gated) {
    tile.Q_hat = tile.Q;
    tile.K_hat = tile.K;
    return;
  }
  for (size_t c = 0; c < dk; ++c) {
    MultiplyArrays(d, tile.Kt + c * ldn, tile.D + (n - 1) * ldn, tile.Kt + c * ldn, ldn);
  }
  for (size_t c = 0; c < ldk; ++c) tile.lambda[c] = tile.span[n - 1];
}

// Rows r to r + kRows - 1 of (G3), columns [j, j + lanes). Kt, a row per channel, holds w_j^(r-1) and is moved
// on to the last of these rows: a gate scales the writes before it, A reads them, the row's own key comes in,
// P reads all.
template <size_t kRows, bool kDelta, class D, typename T = hn::TFromD<D>>
HWY_INLINE void VectorGateRows(D d, const GatedSizes<T>& s, GatedTile<T>& tile, size_t r, size_t j) {
  using V = hn::Vec<D>;
  const T *gate[kRows], *key[kRows], *query[kRows];
  hn::Mask<D> own[kRows];
  V p[kRows], a[kRows];
  for (size_t i = 0; i < kRows; ++i) {
    const size_t token = (r + i) / s.steps;
    gate[i] = (r + i) % s.steps == 0 ? tile.gates + token * s.ldk : tile.ones;
    key[i] = tile.K + (r + i) * s.ldk;
    query[i] = tile.Q + token * s.ldk;
    own[i] = hn::Eq(hn::Iota(d, static_cast<T>(j)), hn::Set(d, static_cast<T>(r + i)));
    p[i] = hn::Zero(d);
    a[i] = hn::Zero(d);
  }
  T* w = tile.Kt + j;
  for (size_t c = 0; c < s.dk; ++c) {
    V x = hn::LoadU(d, w + c * s.ldn);
    HWY_UNROLL(4) for (size_t i = 0; i < kRows; ++i) {
      const V k = hn::Set(d, key[i][c]);
      x = hn::Mul(x, hn::Set(d, gate[i][c]));
      if (kDelta) a[i] = hn::MulAdd(k, x, a[i]);
      x = hn::IfThenElse(own[i], k, x);
      p[i] = hn::MulAdd(hn::Set(d, query[i][c]), x, p[i]);
    }
    hn::StoreU(x, d, w + c * s.ldn);
  }
  for (size_t i = 0; i < kRows; ++i) {
    if (kDelta) hn::StoreU(a[i], d, tile.A + (r + i) * s.ldn + j);
    if ((r + i) % s.steps + 1 == s.steps) hn::StoreU(p[i], d, tile.P + (r + i) / s.steps * s.ldn + j);
  }
}

// (G3), (G4) for gates that are one number per token and channel.
template <bool kDelta, class D, typename T = hn::TFromD<D>>
void VectorGates(D d, const GatedSizes<T>& s, GatedTile<T>& tile) {
  const size_t n = tile.writes, ldk = s.ldk, ldn = s.ldn, lanes = hn::Lanes(d);
  for (size_t c = 0; c < ldk; c += lanes) {
    hn::StoreU(hn::Set(d, T{1}), d, tile.ones + c);
    auto lambda = hn::Set(d, T{1});
    for (size_t r = 0; r < n; ++r) {
      const size_t i = r / s.steps;
      if (r % s.steps == 0) lambda = hn::Mul(lambda, hn::LoadU(d, tile.gates + i * ldk + c));
      if (kDelta) {
        hn::StoreU(hn::Mul(lambda, hn::LoadU(d, tile.K + r * ldk + c)), d, tile.K_hat + r * ldk + c);
      }
      if (r % s.steps + 1 < s.steps) continue;
      hn::StoreU(hn::Mul(lambda, hn::LoadU(d, tile.Q + i * ldk + c)), d, tile.Q_hat + i * ldk + c);
    }
    hn::StoreU(lambda, d, tile.lambda + c);
  }

  // Lanes of writes that are still to come stay 0.
  ZeroArray(d, tile.Kt, ldk * ldn);
  ZeroArray(d, tile.P, tile.tokens * ldn);
  if (kDelta) ZeroArray(d, tile.A, n * ldn);
  size_t r = 0;
  for (; r + 4 <= n; r += 4) {
    for (size_t j = 0; j < r + 4; j += lanes) VectorGateRows<4, kDelta>(d, s, tile, r, j);
  }
  for (; r < n; ++r) {
    for (size_t j = 0; j < r + 1; j += lanes) VectorGateRows<1, kDelta>(d, s, tile, r, j);
  }
}

// Loads the tile's rows and makes (G3) and (G4) of them.
template <class D, typename T = hn::TFromD<D>>
void PrepareTile(D d, const GatedInputs<T>& in, const GatedSizes<T>& s, const GatedPlace& at,
                 GatedTile<T>& tile) {
  const size_t write = tile.first * s.steps;
  LoadRows(d, tile.tokens, s.dk, in.q + at.q + tile.first * at.key_stride, at.key_stride, tile.Q, s.ldk);
  LoadRows(d, tile.writes, s.dk, in.k + at.k + write * at.key_stride, at.key_stride, tile.K, s.ldk);
  if (s.delta) {
    for (size_t r = 0; r < tile.writes; ++r) tile.beta[r] = in.beta[at.beta + (write + r) * at.beta_stride];
  }
  const T* alpha = in.alpha + (in.alpha ? at.alpha + tile.first * at.gate_row : 0);
  if (s.gate == GateKind::kVector) {
    LoadRows(d, tile.tokens, s.dk, alpha, at.gate_row, tile.gates, s.ldk);
    return s.delta ? VectorGates<true>(d, s, tile) : VectorGates<false>(d, s, tile);
  }
  for (size_t i = 0; s.gate == GateKind::kScalar && i < tile.tokens; ++i) {
    tile.gates[i * kLine<T>] = alpha[i * at.gate_row];
  }
  ScalarGates(d, s, tile);
}

// What the state at the tile's start answers to the tile's queries, where wanted, and keys: Q̂ S, K̂ S.
template <class D, typename T = hn::TFromD<D>>
void ReadState(D d, const GatedSizes<T>& s, const T* S, bool queries, GatedTile<T>& tile) {
  const size_t ldk = s.ldk, ldv = s.ldv;
  // Decayed queries and keys lie one behind the other, and share the walk over the state.
  if (queries && s.delta && tile.K_hat == tile.Q_hat + tile.tokens * ldk) {
    return Product(d, tile.tokens + tile.writes, s.dv, s.dk, tile.Q_hat, ldk, 1, S, ldv, Store::kSet, tile.O,
                   ldv);
  }
  if (queries) Product(d, tile.tokens, s.dv, s.dk, tile.Q_hat, ldk, 1, S, ldv, Store::kSet, tile.O, ldv);
  if (s.delta) Product(d, tile.writes, s.dv, s.dk, tile.K_hat, ldk, 1, S, ldv, Store::kSet, tile.KS, ldv);
}

// (G5) by forward substitution: row r of Y and of U needs the rows of U before it, and K̂ S.
template <class D, typename T = hn::TFromD<D>>
void EffectiveValues(D d, const GatedInputs<T>& in, const GatedSizes<T>& s, const GatedPlace& at,
                     GatedTile<T>& tile) {
  const size_t n = tile.writes, ldv = s.ldv, ldn = s.ldn, lanes = hn::Lanes(d);
  const T* v = in.v + at.v + tile.first * s.steps * at.value_stride;
  if (!s.delta) return LoadRows(d, n, s.dv, v, at.value_stride, tile.U, ldv);
  LoadRows(d, n, s.dv, v, at.value_stride, tile.Y, ldv);
  for (size_t r = 0; r < n; ++r) {
    const T* a = tile.A + r * ldn;
    const auto beta = hn::Set(d, tile.beta[r]);
    for (size_t j = 0; j < ldv; j += lanes) {
      // The columns of padding are never written by the product.
      auto y = j < s.dv ? hn::Sub(hn::LoadU(d, tile.Y + r * ldv + j), hn::LoadU(d, tile.KS + r * ldv + j))
                        : hn::Zero(d);
      auto odd = hn::Zero(d);
      size_t i = 0;
      for (; i + 2 <= r; i += 2) {
        y = hn::NegMulAdd(hn::Set(d, a[i]), hn::LoadU(d, tile.U + i * ldv + j), y);
        odd = hn::NegMulAdd(hn::Set(d, a[i + 1]), hn::LoadU(d, tile.U + (i + 1) * ldv + j), odd);
      }
      if (i < r) y = hn::NegMulAdd(hn::Set(d, a[i]), hn::LoadU(d, tile.U + i * ldv + j), y);
      y = hn::Add(y, odd);
      hn::StoreU(y, d, tile.Y + r * ldv + j);
      hn::StoreU(hn::Mul(beta, y), d, tile.U + r * ldv + j);
    }
  }
}

// (G7): S_next, which may be S, becomes the state after the tile.
template <class D, typename T = hn::TFromD<D>>
void AdvanceState(D d, const GatedSizes<T>& s, const GatedTile<T>& tile, const T* S, T* S_next) {
  if (s.gate != GateKind::kNone) {
    for (size_t c = 0; c < s.dk; ++c) CopyScaled(d, tile.lambda[c], S + c * s.ldv, S_next + c * s.ldv, s.ldv);
  } else if (S != S_next) {
    std::copy_n(S, s.dk * s.ldv, S_next);
  }
  Product(d, s.dk, s.dv, tile.writes, tile.Kt, s.ldn, 1, tile.U, s.ldv, Store::kAdd, S_next, s.ldv);
}

// Calls f(first, tokens) for the tiles of the chunk [first, last).
template <typename T, class F>
HWY_INLINE void ForTiles(const GatedSizes<T>& s, size_t first, size_t last, const F& f) {
  for (; first < last; first += s.tokens) f(first, std::min(s.tokens, last - first));
}

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
