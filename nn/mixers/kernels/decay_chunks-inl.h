// What the chunkwise forward and backward of the decay family share. Included per target. Tags:
// nn/mixers/linear_attention.h.
//
// Within a chunk the first token has index 0, so that the factors of (L5) and (L6) read
//   Λ_i = γ^(i+1),  R_j = γ^(n-1-j)        n tokens in the chunk
// Heads take turns within a chunk, so that the caller's arrays are walked once, in order. Work goes by tiles of six rows
// i: the row tile of P (C×C, lower triangle) is made only as far as its last column, and products with it run only so
// far; about half of the square is never touched.
#if defined(STORYTAPE_DECAY_CHUNKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_DECAY_CHUNKS_INL_H_
#undef STORYTAPE_DECAY_CHUNKS_INL_H_
#else
#define STORYTAPE_DECAY_CHUNKS_INL_H_
#endif

#include "tensor/simd_targets.h"
// After simd_targets.h.
#include "hwy/highway.h"
#include "nn/mixers/kernels/decay-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Sizes of a chunk's arrays; ld_* are padded.
template <typename T>
struct ChunkSizes {
  size_t dk, dv, chunk, ldk, ldv, ldc;
  explicit ChunkSizes(const DecayInputs<T>& in)
      : dk(in.shape.dk),
        dv(in.shape.dv),
        chunk(in.chunk),
        ldk(Padded<T>(dk)),
        ldv(Padded<T>(dv)),
        ldc(Padded<T>(chunk)) {}
  size_t state() const { return ldk * ldv; }
  // Of a record: Sᵀ, z, A, B.
  size_t features() const { return chunk * ldk; }
  size_t record() const { return state() + ldk + 2 * features(); }
};

// One chunk of one head.
struct ChunkPlace {
  size_t h;
  size_t first, n;      // tokens [first, first + n)
  size_t q_row, v_row;  // of the first token; rows are q_stride, v_stride apart
  size_t q_stride, v_stride;
  size_t token;   // in [B, H, T]
  size_t record;  // counted in [B, chunks, H]

  ChunkPlace(const DecayShape& s, size_t chunk, size_t b, size_t index, size_t head)
      : h(head), first(index * chunk), n(std::min(chunk, s.tokens - first)) {
    const HeadPlace at(s, b, head);
    q_stride = at.q_stride;
    v_stride = at.v_stride;
    q_row = at.q + first * q_stride;
    v_row = at.v + first * v_stride;
    token = at.tokens + first;
    record = (b * ((s.tokens + chunk - 1) / chunk) + index) * s.heads + head;
  }
};

// sums[0..width) = scale·sums + Σ_i weights[i·step]·rows[i·width ..]; width in whole lines. In registers throughout.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void AccumulateRows(D d, size_t n, const T* weights, ptrdiff_t step, const T* rows, size_t width,
                               T scale, T* sums) {
  for (size_t j = 0; j < width; j += hn::Lanes(d)) {
    auto sum = hn::Mul(hn::Set(d, scale), hn::LoadU(d, sums + j));
    const T* weight = weights;
    for (size_t i = 0; i < n; ++i, weight += step) {
      sum = hn::MulAdd(hn::Set(d, *weight), hn::LoadU(d, rows + i * width + j), sum);
    }
    hn::StoreU(sum, d, sums + j);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
