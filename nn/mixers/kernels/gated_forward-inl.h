// The chunkwise forward of the gated family: (G3)-(G7) tile after tile. A chunk is no more than the distance
// between two records of the state. Included per target. Tags: nn/mixers/gated_recurrence.h.
#if defined(STORYTAPE_GATED_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_GATED_FORWARD_INL_H_
#undef STORYTAPE_GATED_FORWARD_INL_H_
#else
#define STORYTAPE_GATED_FORWARD_INL_H_
#endif

#include "tensor/simd_targets.h"
// After simd_targets.h.
#include "hwy/highway.h"
#include "nn/mixers/kernels/gated_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Heads take turns within a chunk, so that the caller's arrays are walked once, in order.
template <class D, typename T = hn::TFromD<D>>
void GatedChunkwiseForward(D d, const GatedForward<T>& args) {
  const GatedInputs<T>& in = args.in;
  const GatedSizes<T> s(in);
  const size_t heads = in.shape.heads, tokens = in.shape.tokens, chunks = (tokens + in.chunk - 1) / in.chunk;
  T *memory, *states;
  const Buffer scratch = CutScratch<T>({{&memory, GatedTile<T>::Size(s)}, {&states, heads * s.state()}});
  // Columns of padding that no product writes are read by others.
  ZeroArray(d, memory, GatedTile<T>::Size(s));

  const auto run_tile = [&](const GatedPlace& at, size_t first, size_t count, T* S) HWY_ATTR {
    GatedTile<T> tile(s, memory);
    tile.first = first;
    tile.tokens = count;
    tile.writes = count * s.steps;
    PrepareTile(d, in, s, at, tile);
    ReadState(d, s, S, true, tile);  // (G6)
    EffectiveValues(d, in, s, at, tile);
    Product(d, count, s.dv, tile.writes, tile.P, s.ldn, 1, tile.U, s.ldv, Store::kAdd, tile.O,
            s.ldv);  // (G6)
    AdvanceState(d, s, tile, S, S);
    StoreRows(d, count, s.dv, tile.O, s.ldv, args.o + at.o(in.shape) + first * at.value_stride,
              at.value_stride, false);
  };
  for (size_t b = 0; b < in.shape.batch; ++b) {
    ZeroArray(d, states, heads * s.state());
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      const size_t last = std::min(tokens, (chunk + 1) * in.chunk);
      for (size_t h = 0; h < heads; ++h) {
        const GatedPlace at(in.shape, in.gate, b, h);
        T* S = states + h * s.state();
        if (chunk == 0 && in.S_init) LoadRows(d, s.dk, s.dv, in.S_init + at.state, s.dv, S, s.ldv);
        if (args.records) {
          const size_t record = (b * heads + h) * chunks + chunk;
          StoreRows(d, s.dk, s.dv, S, s.ldv, args.records + record * s.dk * s.dv, s.dv, false);
        }
        ForTiles(s, chunk * in.chunk, last,
                 [&](size_t first, size_t count) HWY_ATTR { run_tile(at, first, count, S); });
        if (last == tokens) StoreRows(d, s.dk, s.dv, S, s.ldv, args.S + at.state, s.dv, false);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
