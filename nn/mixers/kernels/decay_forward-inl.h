// The chunkwise forward of the decay family. Included per target. Tags: nn/mixers/linear_attention.h.
#if defined(STORYTAPE_DECAY_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_DECAY_FORWARD_INL_H_
#undef STORYTAPE_DECAY_FORWARD_INL_H_
#else
#define STORYTAPE_DECAY_FORWARD_INL_H_
#endif

#include "tensor/simd_targets.h"
// After simd_targets.h.
#include "hwy/highway.h"
#include "nn/mixers/kernels/decay_chunks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D, typename T = hn::TFromD<D>>
class ChunkwiseForward {
 public:
  ChunkwiseForward(D d, const DecayForward<T>& args)
      : d_(d), args_(args), in_(args.in), size_(args.in), heads_(args.in.shape.heads) {
    const auto& s = size_;
    scratch_ = CutScratch<T>({{&A_, s.features()},
                              {&B_, s.features()},
                              {&Bt_, s.ldk * s.ldc},
                              {&V_, s.chunk * s.ldv},
                              {&P_, kTileRows * s.ldc},
                              {&tile_, kTileRows * s.ldv},
                              {&S_, heads_ * s.state()},
                              {&z_, heads_ * s.ldk},
                              {&powers_, HeadPowers<T>::Size(heads_, s.chunk)}});
  }

  void Run() {
    const HeadPowers<T> powers(in_.gamma, heads_, size_.chunk, powers_);
    const size_t chunks = (in_.shape.tokens + size_.chunk - 1) / size_.chunk;
    for (size_t b = 0; b < in_.shape.batch; ++b) {
      for (size_t h = 0; h < heads_; ++h) LoadState(HeadPlace(in_.shape, b, h), h);
      for (size_t c = 0; c < chunks; ++c) {
        for (size_t h = 0; h < heads_; ++h) {
          Chunk(ChunkPlace(in_.shape, size_.chunk, b, c, h), powers[h], c > 0 || in_.S_init || in_.z_init);
        }
      }
      for (size_t h = 0; h < heads_; ++h) StoreState(HeadPlace(in_.shape, b, h), h);
    }
  }

 private:
  void LoadState(const HeadPlace& at, size_t h) {
    const auto& s = size_;
    T* S = S_ + h * s.state();
    T* z = z_ + h * s.ldk;
    ZeroArray(d_, S, s.state());
    ZeroArray(d_, z, s.ldk);
    if (in_.S_init) LoadRows(d_, false, s.dk, s.dv, in_.S_init + at.state, s.dv, S, s.ldv);
    if (in_.z_init) LoadRows(d_, false, 1, s.dk, in_.z_init + at.normaliser, s.dk, z, s.ldk);
  }
  void StoreState(const HeadPlace& at, size_t h) {
    const auto& s = size_;
    StoreRows(d_, s.dk, s.dv, S_ + h * s.state(), s.ldv, args_.S + at.state, s.dv, false);
    if (args_.z) StoreRows(d_, 1, s.dk, z_ + h * s.ldk, s.ldk, args_.z + at.normaliser, s.dk, false);
  }

  void Chunk(const ChunkPlace& c, const Powers<T>& powers, bool has_state) {
    const auto [dk, dv, chunk, ldk, ldv, ldc] = size_;
    const size_t n = c.n;
    T* S = S_ + c.h * size_.state();
    T* z = z_ + c.h * ldk;
    T* A = A_;
    T* B = B_;
    if (args_.records) {
      T* record = args_.records + c.record * size_.record();
      if (has_state) Transpose(dk, dv, S, ldv, record, ldk);
      std::copy_n(z, ldk, record + size_.state());
      A = record + size_.state() + ldk;
      B = A + size_.features();
    }
    LoadRows(d_, in_.elu, n, dk, in_.q + c.q_row, c.q_stride, A, ldk);
    LoadRows(d_, in_.elu, n, dk, in_.k + c.q_row, c.q_stride, B, ldk);
    LoadRows(d_, false, n, dv, in_.v + c.v_row, c.v_stride, V_, ldv);
    Transpose(n, dk, B, ldk, Bt_, ldc);

    for (size_t i0 = 0; i0 < n; i0 += kTileRows) {
      const size_t rows = std::min(kTileRows, n - i0);
      const size_t end = i0 + rows;
      const T* a = A + i0 * ldk;
      T inverse[kTileRows];
      Product(d_, rows, end, dk, a, ldk, 1, Bt_, ldc, Store::kSet, P_, ldc);
      for (size_t r = 0; r < rows; ++r) {
        const size_t i = i0 + r;
        auto sum = WeighRow(powers, i, end, P_ + r * ldc);
        inverse[r] = T{1};
        if (!in_.normalise) continue;
        if (has_state) {
          const auto carried = AddDot(d_, a + r * ldk, z, ldk, hn::Zero(d_));
          sum = hn::MulAdd(hn::Set(d_, powers.power[i + 1]), carried, sum);
        }
        const T denominator = Total(d_, sum) + in_.eps;
        inverse[r] = T{1} / denominator;
        if (args_.denominators) args_.denominators[c.token + i] = denominator;
      }
      if (has_state) {  // (L5)
        Product(d_, rows, dv, dk, a, ldk, 1, S, ldv, Store::kSet, tile_, ldv);
        for (size_t r = 0; powers.gated && r < rows; ++r) {
          ScaleArray(d_, powers.power[i0 + r + 1], tile_ + r * ldv, ldv);
        }
      }
      Product(d_, rows, dv, end, P_, ldc, 1, V_, ldv, has_state ? Store::kAdd : Store::kSet, tile_, ldv);
      for (size_t r = 0; r < rows; ++r) {  // (L3)
        const auto scale = hn::Set(d_, inverse[r]);
        StoreRow(d_, dv, tile_ + r * ldv, args_.o + c.v_row + (i0 + r) * c.v_stride, false,
                 [scale](auto x, size_t) HWY_ATTR { return hn::Mul(x, scale); });
      }
    }

    if (powers.gated) {  // (L6), R on the side of V
      for (size_t j = 0; j < n; ++j) ScaleArray(d_, powers.power[n - 1 - j], V_ + j * ldv, ldv);
      ScaleArray(d_, powers.power[n], S, dk * ldv);
    }
    Product(d_, dk, dv, n, B, 1, ldk, V_, ldv, Store::kAdd, S, ldv);
    AccumulateRows(d_, n, powers.power + n - 1, -1, B, ldk, powers.power[n], z);
  }

  // (L4) for row i: p becomes P_i, zeros from column i + 1 to the end of its vector. The lanes' sums of it.
  HWY_INLINE hn::Vec<D> WeighRow(const Powers<T>& powers, size_t i, size_t end, T* p) {
    const size_t lanes = hn::Lanes(d_);
    const T* weight = powers.PowerRow(i);
    auto sum = hn::Zero(d_);
    for (size_t j = 0; j < end; j += lanes) {
      auto x = hn::LoadU(d_, p + j);
      if (powers.gated) x = hn::Mul(x, hn::LoadU(d_, weight + j));
      if (j + lanes > i + 1) x = hn::IfThenElseZero(hn::FirstN(d_, j > i ? 0 : i + 1 - j), x);
      hn::StoreU(x, d_, p + j);
      sum = hn::Add(sum, x);
    }
    return sum;
  }

  D d_;
  const DecayForward<T>& args_;
  const DecayInputs<T>& in_;
  ChunkSizes<T> size_;
  size_t heads_;
  Buffer scratch_;
  T *A_, *B_, *Bt_, *V_, *P_, *tile_, *S_, *z_, *powers_;
};

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
