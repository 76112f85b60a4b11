// The chunkwise backward of the gated family: chunks from last to first; each is run forward once more from
// the state kept at its start, tile by tile, as far as the effective values; then its tiles are reversed.
// Included per target. Tags: nn/mixers/gated_recurrence.h.
#if defined(STORYTAPE_GATED_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_GATED_BACKWARD_INL_H_
#undef STORYTAPE_GATED_BACKWARD_INL_H_
#else
#define STORYTAPE_GATED_BACKWARD_INL_H_
#endif

#include "tensor/simd_targets.h"
// After simd_targets.h.
#include "hwy/highway.h"
#include "nn/mixers/kernels/gated_gates-inl.h"
#include "nn/mixers/kernels/gated_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D, typename T = hn::TFromD<D>>
class GatedChunkwiseBackward {
 public:
  GatedChunkwiseBackward(D d, const GatedBackward<T>& args) : d_(d), args_(args), in_(args.in), s_(args.in) {
    const size_t chunk = std::min(in_.chunk, in_.shape.tokens);
    tiles_ = (chunk + s_.tokens - 1) / s_.tokens;
    scratch_ = CutScratch<T>({{&memory_, tiles_ * GatedTile<T>::Size(s_)},
                              {&grads_, GatedTileGrads<T>::Size(s_)},
                              {&St_, s_.ldv * s_.ldk},
                              {&states_, in_.shape.heads * s_.state()},
                              {&dSt_, s_.ldv * s_.ldk},
                              {&dO_, (s_.tokens + s_.writes) * s_.ldv},
                              {&Ut_, s_.ldv * s_.ldn},
                              {&dbeta_, s_.ldn}});
    // Columns of padding that no product writes are read by others.
    ZeroArray(d_, memory_, tiles_ * GatedTile<T>::Size(s_));
    ZeroArray(d_, dO_, (s_.tokens + s_.writes) * s_.ldv);
  }

  void Run() {
    const size_t heads = in_.shape.heads, tokens = in_.shape.tokens;
    const size_t chunks = (tokens + in_.chunk - 1) / in_.chunk;
    for (size_t b = 0; b < in_.shape.batch; ++b) {
      ZeroArray(d_, states_, heads * s_.state());
      for (size_t chunk = chunks; chunk-- > 0;) {
        for (size_t h = 0; h < heads; ++h) {
          const GatedPlace at(in_.shape, in_.gate, b, h);
          dS_ = states_ + h * s_.state();
          if (chunk + 1 == chunks && args_.d_S) {
            LoadRows(d_, s_.dk, s_.dv, args_.d_S + at.state, s_.dv, dS_, s_.ldv);
          }
          Chunk(at, (b * heads + h) * chunks + chunk, chunk * in_.chunk,
                std::min(tokens, (chunk + 1) * in_.chunk));
          if (chunk == 0 && args_.d_S_init) {
            StoreRows(d_, s_.dk, s_.dv, dS_, s_.ldv, args_.d_S_init + at.state, s_.dv, false);
          }
        }
      }
    }
  }

 private:
  // Tokens [first, last).
  void Chunk(const GatedPlace& at, size_t record, size_t first, size_t last) {
    const size_t count = (last - first + s_.tokens - 1) / s_.tokens;
    const auto tile_at = [&](size_t index) HWY_ATTR {
      GatedTile<T> tile(s_, memory_ + index * GatedTile<T>::Size(s_));
      tile.first = first + index * s_.tokens;
      tile.tokens = std::min(s_.tokens, last - tile.first);
      tile.writes = tile.tokens * s_.steps;
      if (in_.gate == GateKind::kNone) {
        tile.Q_hat = tile.Q;
        tile.K_hat = tile.K;
      }
      return tile;
    };
    LoadRows(d_, s_.dk, s_.dv, args_.records + record * s_.dk * s_.dv, s_.dv, tile_at(0).S, s_.ldv);
    for (size_t index = 0; index < count; ++index) {
      GatedTile<T> tile = tile_at(index);
      PrepareTile(d_, in_, s_, at, tile);
      ReadState(d_, s_, tile.S, false, tile);
      EffectiveValues(d_, in_, s_, at, tile);
      if (index + 1 < count) AdvanceState(d_, s_, tile, tile.S, tile_at(index + 1).S);
    }
    for (size_t index = count; index-- > 0;) Tile(at, tile_at(index));
  }

  // dS_ goes from the gradient of the state after the tile to that of the state before it.
  void Tile(const GatedPlace& at, const GatedTile<T>& tile) {
    const auto [dk, dv, steps, unused_tokens, unused_writes, ldk, ldv, ldn, delta, gate] = s_;
    const size_t n = tile.writes, tokens = tile.tokens;
    GatedTileGrads<T> g(s_, grads_);
    // Gradients of read-outs and of effective values lie one behind the other, as decayed queries and keys do.
    dU_ = dO_ + tokens * ldv;
    const T* d_o = args_.d_o + at.o(in_.shape);
    LoadRows(d_, tokens, dv, d_o + tile.first * at.value_stride, at.value_stride, dO_, ldv);
    Transpose(dk, dv, dS_, ldv, dSt_, ldk);
    Transpose(dk, dv, tile.S, ldv, St_, ldk);
    Transpose(n, dv, tile.U, ldv, Ut_, ldn);

    // (G8)
    Product(d_, n, dv, dk, tile.Kt, 1, ldn, dS_, ldv, Store::kSet, dU_, ldv);
    Product(d_, n, dv, tokens, tile.P, 1, ldn, dO_, ldv, Store::kAdd, dU_, ldv);
    // (G12): dK̃, dP, dλ
    Product(d_, n, ldk, dv, tile.U, ldv, 1, dSt_, ldk, Store::kSet, g.dK_end, ldk);
    ScoreGradients(tokens, dO_, tile, g.dP, [&](size_t i) { return (i + 1) * s_.steps; });
    if (gate != GateKind::kNone) {
      SpanGradient(g.dlambda);
      for (size_t c = 0; c < dk; ++c) ScaleArray(d_, tile.lambda[c], dS_ + c * ldv, ldv);  // (G11)
    }
    if (delta) {
      SolveBackward(tile);
      if (args_.d_v) StoreValues(at, tile, T{-1});
      ScoreGradients(n, dU_, tile, g.dA, [](size_t r) { return r; });
      StoreBetas(at, tile);
    } else if (args_.d_v) {
      StoreValues(at, tile, T{1});
    }
    // (G12): dQ̂, dK̂; (G11): what they add to dS_0
    const bool together =
        delta && tile.K_hat == tile.Q_hat + tokens * ldk && g.dK_hat == g.dQ_hat + tokens * ldk;
    const size_t rows = together ? tokens + n : tokens;
    Product(d_, rows, ldk, dv, dO_, ldv, 1, St_, ldk, Store::kSet, g.dQ_hat, ldk);
    Product(d_, dk, dv, rows, tile.Q_hat, 1, ldk, dO_, ldv, Store::kAdd, dS_, ldv);
    if (delta && !together) {
      Product(d_, n, ldk, dv, dU_, ldv, 1, St_, ldk, Store::kSet, g.dK_hat, ldk);
      Product(d_, dk, dv, n, tile.K_hat, 1, ldk, dU_, ldv, Store::kAdd, dS_, ldv);
    }
    GatesBackward(tile, g);
    StoreKeys(at, tile, g);
  }

  // (G12): dP or dA, from[r]·U_j for j < kept(r), else 0.
  template <class Kept>
  HWY_INLINE void ScoreGradients(size_t rows, const T* from, const GatedTile<T>& tile, T* scores,
                                 const Kept& kept) {
    Product(d_, rows, tile.writes, s_.dv, from, s_.ldv, 1, Ut_, s_.ldn, Store::kSet, scores, s_.ldn);
    for (size_t r = 0; r < rows; ++r) KeepFirst(d_, kept(r), scores + r * s_.ldn, s_.ldn);
  }

  // (G12): dλ, the rows' sums of S ⊙ dS; from the transposes, so that channels lie side by side.
  void SpanGradient(T* dlambda) {
    for (size_t c = 0; c < s_.ldk; c += hn::Lanes(d_)) {
      auto sum = hn::Zero(d_);
      for (size_t j = 0; j < s_.dv; ++j) {
        sum = hn::MulAdd(hn::LoadU(d_, St_ + j * s_.ldk + c), hn::LoadU(d_, dSt_ + j * s_.ldk + c), sum);
      }
      hn::StoreU(sum, d_, dlambda + c);
    }
  }

  // (G9), (G10), from the last write to the first: dU_ becomes -dY, which is what (G11) and (G12) take.
  void SolveBackward(const GatedTile<T>& tile) {
    const size_t n = tile.writes, ldv = s_.ldv, ldn = s_.ldn, lanes = hn::Lanes(d_);
    for (size_t r = n; r-- > 0;) {
      const auto minus_beta = hn::Set(d_, -tile.beta[r]);
      auto dot = hn::Zero(d_);
      for (size_t j = 0; j < ldv; j += lanes) {
        auto x = hn::LoadU(d_, dU_ + r * ldv + j);
        auto odd = hn::Zero(d_);
        size_t i = r + 1;
        for (; i + 2 <= n; i += 2) {
          x = hn::MulAdd(hn::Set(d_, tile.A[i * ldn + r]), hn::LoadU(d_, dU_ + i * ldv + j), x);
          odd =
              hn::MulAdd(hn::Set(d_, tile.A[(i + 1) * ldn + r]), hn::LoadU(d_, dU_ + (i + 1) * ldv + j), odd);
        }
        if (i < n) x = hn::MulAdd(hn::Set(d_, tile.A[i * ldn + r]), hn::LoadU(d_, dU_ + i * ldv + j), x);
        x = hn::Add(x, odd);
        dot = hn::MulAdd(x, hn::LoadU(d_, tile.Y + r * ldv + j), dot);
        hn::StoreU(hn::Mul(minus_beta, x), d_, dU_ + r * ldv + j);
      }
      dbeta_[r] = Total(d_, dot);
    }
  }

  void GatesBackward(const GatedTile<T>& tile, GatedTileGrads<T>& g) {
    if (s_.gate != GateKind::kVector) return ScalarGatesBackward(d_, s_, tile, g);
    s_.delta ? VectorGatesBackward<true>(d_, s_, tile, g) : VectorGatesBackward<false>(d_, s_, tile, g);
  }

  void StoreValues(const GatedPlace& at, const GatedTile<T>& tile, T sign) {
    const auto scale = hn::Set(d_, sign);
    for (size_t r = 0; r < tile.writes; ++r) {
      StoreRow(d_, s_.dv, dU_ + r * s_.ldv, args_.d_v + at.v + (tile.first * s_.steps + r) * at.value_stride,
               args_.add_v, [scale](auto x, size_t) HWY_ATTR { return hn::Mul(scale, x); });
    }
  }
  void StoreBetas(const GatedPlace& at, const GatedTile<T>& tile) {
    if (!args_.d_beta) return;
    T* to = args_.d_beta + at.beta + tile.first * s_.steps * at.beta_stride;
    for (size_t r = 0; r < tile.writes; ++r) to[r * at.beta_stride] = dbeta_[r];
  }
  void StoreKeys(const GatedPlace& at, const GatedTile<T>& tile, const GatedTileGrads<T>& g) {
    const size_t stride = at.key_stride;
    if (args_.d_q) {
      StoreRows(d_, tile.tokens, s_.dk, g.dQ, s_.ldk, args_.d_q + at.q + tile.first * stride, stride,
                args_.add_q);
    }
    if (args_.d_k) {
      StoreRows(d_, tile.writes, s_.dk, g.dK, s_.ldk, args_.d_k + at.k + tile.first * s_.steps * stride,
                stride, args_.add_k);
    }
    if (!args_.d_alpha) return;
    T* to = args_.d_alpha + at.alpha + tile.first * at.gate_row;
    if (s_.gate == GateKind::kVector) {
      return StoreRows(d_, tile.tokens, s_.dk, g.dgates, s_.ldk, to, at.gate_row, false);
    }
    for (size_t i = 0; i < tile.tokens; ++i) to[i * at.gate_row] = g.dgates[i * kLine<T>];
  }

  D d_;
  const GatedBackward<T>& args_;
  const GatedInputs<T>& in_;
  GatedSizes<T> s_;
  size_t tiles_;
  Buffer scratch_;
  T *memory_, *grads_, *St_, *states_, *dS_, *dSt_, *dO_, *dU_, *Ut_, *dbeta_;
};

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
