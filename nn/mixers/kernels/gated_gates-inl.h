// The reverse of (G3) and (G4): from the gradients of a tile's scores, decayed rows and whole decay to those
// of its queries, keys and gates, (G13) and (G14) for one gate per token or none, (G15) for one per channel.
// Included per target. Tags: nn/mixers/gated_recurrence.h; writes are counted from 0 as in gated_tile-inl.h.
#if defined(STORYTAPE_GATED_GATES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_GATED_GATES_INL_H_
#undef STORYTAPE_GATED_GATES_INL_H_
#else
#define STORYTAPE_GATED_GATES_INL_H_
#endif

#include "tensor/simd_targets.h"
// After simd_targets.h.
#include "hwy/highway.h"
#include "nn/mixers/kernels/gated_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Gradients of what a tile's forward made, and of its rows. dP and dA are used up.
template <typename T>
struct GatedTileGrads {
  T* dP;       // [tokens, writes], 0 for j > e(i)
  T* dA;       // [writes, writes], 0 for j ≥ r
  T* dQ_hat;   // [tokens, dk]
  T* dK_hat;   // [writes, dk]
  T* dK_end;   // [writes, dk]  of K̃
  T* dlambda;  // [dk]
  T* dQ;       // [tokens, dk]
  T* dK;       // [writes, dk]
  T* dgates;   // [tokens, dk] or [tokens, 1 line]
  T* sums;     // scalar gates: [writes], E of (G13); vector gates: [writes] vectors, λ of some channels
  T* decayed;  // [writes, writes] vectors, w_j^(r) of some channels, for the vector gates

  static size_t Size(const GatedSizes<T>& s) {
    return (s.tokens + s.writes) * s.ldn + (3 * s.writes + 2 * s.tokens + 1) * s.ldk +
           s.tokens * std::max(s.ldk, kLine<T>) + (s.writes + 1) * kLine<T> + s.ldn +
           s.writes * s.writes * kLine<T>;
  }
  GatedTileGrads(const GatedSizes<T>& s, T* memory) {
    const auto take = [&](size_t n) {
      T* at = memory;
      memory += n;
      return at;
    };
    dP = take(s.tokens * s.ldn);
    dA = take(s.writes * s.ldn);
    dQ_hat = take(s.tokens * s.ldk);
    dK_hat = take(s.writes * s.ldk);
    dK_end = take(s.writes * s.ldk);
    dlambda = take(s.ldk);
    dQ = take(s.tokens * s.ldk);
    dK = take(s.writes * s.ldk);
    dgates = take(s.tokens * std::max(s.ldk, kLine<T>));
    sums = take((s.writes + 1) * kLine<T> + s.ldn);
    decayed = take(s.writes * s.writes * kLine<T>);
  }
};

template <class D, typename T = hn::TFromD<D>>
void ScalarGatesBackward(D d, const GatedSizes<T>& s, const GatedTile<T>& tile, GatedTileGrads<T>& g) {
  const size_t n = tile.writes, dk = s.dk, ldk = s.ldk, ldn = s.ldn;
  const bool gated = s.gate != GateKind::kNone;
  if (gated) {
    // (G13) from the last write to the first: `sums` is the row E_r, `whole` is ε_r.
    T* sums = g.sums;
    ZeroArray(d, sums, ldn);
    for (size_t j = 0; j + 1 < n; ++j) {
      sums[j] = Total(d, AddDot(d, tile.K + j * ldk, g.dK_end + j * ldk, ldk, hn::Zero(d)));
    }
    T whole = 0;
    for (size_t c = 0; c < dk; ++c) whole += g.dlambda[c];
    for (size_t r = n; r-- > 0;) {
      const size_t i = r / s.steps;
      if (r % s.steps + 1 == s.steps) {
        const T* dP = g.dP + i * ldn;
        const T* raw = tile.raw + i * ldn;
        for (size_t j = 0; j < ldn; j += hn::Lanes(d)) {
          hn::StoreU(hn::MulAdd(hn::LoadU(d, dP + j), hn::LoadU(d, raw + j), hn::LoadU(d, sums + j)), d,
                     sums + j);
        }
        whole += Total(d, AddDot(d, tile.Q + i * ldk, g.dQ_hat + i * ldk, ldk, hn::Zero(d)));
      }
      if (s.delta) {
        const T* dA = g.dA + r * ldn;
        const T* raw = tile.raw_k + r * ldn;
        for (size_t j = 0; j < ldn; j += hn::Lanes(d)) {
          hn::StoreU(hn::MulAdd(hn::LoadU(d, dA + j), hn::LoadU(d, raw + j), hn::LoadU(d, sums + j)), d,
                     sums + j);
        }
        whole += Total(d, AddDot(d, tile.K + r * ldk, g.dK_hat + r * ldk, ldk, hn::Zero(d)));
      }
      if (r % s.steps > 0) continue;
      const T gate = tile.gates[i * kLine<T>];
      T dgate = whole * (r > 0 ? tile.span[r - 1] : T{1});
      if (r > 0) dgate += Total(d, AddDot(d, sums, tile.D + (r - 1) * ldn, ldn, hn::Zero(d)));
      g.dgates[i * kLine<T>] = dgate;
      ScaleArray(d, gate, sums, ldn);
      whole *= gate;
    }
    // (G14): dP, dA, dQ̂, dK̂ and dK̃ times the decays they passed; the products with rows follow for all gates.
    for (size_t i = 0; i < tile.tokens; ++i) {
      const size_t e = (i + 1) * s.steps - 1;
      MultiplyArrays(d, g.dP + i * ldn, tile.D + e * ldn, g.dP + i * ldn, ldn);
      ScaleArray(d, tile.span[e], g.dQ_hat + i * ldk, ldk);
    }
    for (size_t r = 0; r < n; ++r) {
      ScaleArray(d, tile.D[(n - 1) * ldn + r], g.dK_end + r * ldk, ldk);
      if (!s.delta) continue;
      MultiplyArrays(d, g.dA + r * ldn, tile.D + r * ldn, g.dA + r * ldn, ldn);
      ScaleArray(d, tile.span[r], g.dK_hat + r * ldk, ldk);
    }
  }
  std::copy_n(g.dQ_hat, tile.tokens * ldk, g.dQ);
  Product(d, tile.tokens, dk, n, g.dP, ldn, 1, tile.K, ldk, Store::kAdd, g.dQ, ldk);
  std::copy_n(g.dK_end, n * ldk, g.dK);
  Product(d, n, dk, tile.tokens, g.dP, 1, ldn, tile.Q, ldk, Store::kAdd, g.dK, ldk);
  if (!s.delta) return;
  AddScaled(d, T{1}, g.dK_hat, g.dK, n * ldk);
  Product(d, n, dk, n, g.dA, ldn, 1, tile.K, ldk, Store::kAdd, g.dK, ldk);
  Product(d, n, dk, n, g.dA, 1, ldn, tile.K, ldk, Store::kAdd, g.dK, ldk);
}

// (G15), channels by vectors: the decayed keys w_j^(r) and spans λ_r of those channels are made again, then
// walked from the last write to the first.
template <bool kDelta, class D, typename T = hn::TFromD<D>>
void VectorGatesBackward(D d, const GatedSizes<T>& s, const GatedTile<T>& tile, GatedTileGrads<T>& g) {
  const size_t n = tile.writes, ldk = s.ldk, ldn = s.ldn, lanes = hn::Lanes(d);
  T* span = g.sums;        // [n] vectors
  T* key_sums = g.dK_end;  // G_j of (G15), in place
  for (size_t c = 0; c < ldk; c += lanes) {
    auto lambda = hn::Set(d, T{1});
    for (size_t r = 0; r < n; ++r) {
      T* row = g.decayed + r * n * lanes;
      if (r % s.steps == 0) {
        const auto gate = hn::LoadU(d, tile.gates + r / s.steps * ldk + c);
        lambda = hn::Mul(lambda, gate);
        for (size_t j = 0; j < r; ++j) {
          hn::StoreU(hn::Mul(gate, hn::LoadU(d, row - (n - j) * lanes)), d, row + j * lanes);
        }
      } else {
        std::copy_n(row - n * lanes, r * lanes, row);
      }
      hn::StoreU(hn::LoadU(d, tile.K + r * ldk + c), d, row + r * lanes);
      hn::StoreU(lambda, d, span + r * lanes);
    }

    auto whole = hn::LoadU(d, g.dlambda + c);  // ε
    for (size_t r = n; r-- > 0;) {
      const size_t i = r / s.steps;
      const T* row = g.decayed + r * n * lanes;
      const auto lambda_r = hn::LoadU(d, span + r * lanes);
      const bool read = r % s.steps + 1 == s.steps, gated = r % s.steps == 0;
      const auto query = read ? hn::LoadU(d, tile.Q + i * ldk + c) : hn::Zero(d);
      const auto dq_hat = read ? hn::LoadU(d, g.dQ_hat + i * ldk + c) : hn::Zero(d);
      const auto key = hn::LoadU(d, tile.K + r * ldk + c);
      const auto gate = gated ? hn::LoadU(d, tile.gates + i * ldk + c) : hn::Set(d, T{1});
      const T* dP = g.dP + i * ldn;
      const T* dA = g.dA + r * ldn;
      whole = hn::MulAdd(query, dq_hat, whole);
      auto dq = hn::Mul(lambda_r, dq_hat);
      auto dk = hn::Zero(d);
      if (kDelta) {
        const auto dk_hat = hn::LoadU(d, g.dK_hat + r * ldk + c);
        whole = hn::MulAdd(key, dk_hat, whole);
        dk = hn::Mul(lambda_r, dk_hat);
      }
      auto dgate =
          gated ? hn::Mul(whole, r > 0 ? hn::LoadU(d, span + (r - 1) * lanes) : hn::Set(d, T{1})) : whole;
      const T* before = row - n * lanes;  // of write r - 1
      for (size_t j = 0; j < r; ++j) {
        T* sum = key_sums + j * ldk + c;
        auto x = hn::LoadU(d, sum);
        const auto w = hn::LoadU(d, row + j * lanes);
        if (read) {
          const auto p = hn::Set(d, dP[j]);
          dq = hn::MulAdd(p, w, dq);
          x = hn::MulAdd(p, query, x);
        }
        if (kDelta) {
          const auto a = hn::Set(d, dA[j]);
          dk = hn::MulAdd(a, w, dk);
          x = hn::MulAdd(a, key, x);
        }
        if (gated) {
          dgate = hn::MulAdd(x, hn::LoadU(d, before + j * lanes), dgate);
          x = hn::Mul(gate, x);
        }
        hn::StoreU(x, d, sum);
      }
      dk = hn::Add(dk, hn::LoadU(d, key_sums + r * ldk + c));
      if (read) {
        const auto p = hn::Set(d, dP[r]);
        hn::StoreU(hn::MulAdd(p, key, dq), d, g.dQ + i * ldk + c);
        dk = hn::MulAdd(p, query, dk);
      }
      hn::StoreU(dk, d, g.dK + r * ldk + c);
      if (!gated) continue;
      whole = hn::Mul(gate, whole);
      hn::StoreU(dgate, d, g.dgates + i * ldk + c);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
