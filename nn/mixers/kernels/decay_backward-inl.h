// The chunkwise backward of the decay family: the forward's lines reversed, chunks from last to first. Included per
// target. Tags: nn/mixers/linear_attention.h.
#if defined(STORYTAPE_DECAY_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_DECAY_BACKWARD_INL_H_
#undef STORYTAPE_DECAY_BACKWARD_INL_H_
#else
#define STORYTAPE_DECAY_BACKWARD_INL_H_
#endif

#include "tensor/simd_targets.h"
// After simd_targets.h.
#include "hwy/highway.h"
#include "nn/mixers/kernels/decay_chunks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// dS_, dz_: the gradients of the heads' states at the chunk's end.
template <class D, typename T = hn::TFromD<D>>
class ChunkwiseBackward {
 public:
  ChunkwiseBackward(D d, const DecayBackward<T>& args)
      : d_(d), args_(args), in_(args.in), size_(args.in), heads_(args.in.shape.heads) {
    const auto& s = size_;
    scratch_ = CutScratch<T>({{&Bt_, s.ldk * s.ldc},
                              {&V_, s.chunk * s.ldv},
                              {&Vt_, s.ldv * s.ldc},
                              {&dN_, s.chunk * s.ldv},
                              {&dd_, s.chunk},
                              {&P_, s.chunk * s.ldc},
                              {&E_, s.chunk * s.ldc},
                              {&tile_, kTileRows * std::max(s.ldk, s.ldv)},
                              {&dSt_, s.state()},
                              {&dS_, heads_ * s.state()},
                              {&dz_, heads_ * s.ldk},
                              {&powers_, HeadPowers<T>::Size(heads_, s.chunk)}});
    wants_gamma_ = args.d_gamma && in_.gamma;
  }

  void Run() {
    const HeadPowers<T> powers(in_.gamma, heads_, size_.chunk, powers_);
    const size_t chunks = (in_.shape.tokens + size_.chunk - 1) / size_.chunk;
    if (wants_gamma_) std::fill_n(args_.d_gamma, heads_, T{0});
    for (size_t b = 0; b < in_.shape.batch; ++b) {
      for (size_t h = 0; h < heads_; ++h) LoadState(HeadPlace(in_.shape, b, h), h);
      for (size_t c = chunks; c-- > 0;) {
        for (size_t h = 0; h < heads_; ++h) {
          Chunk(ChunkPlace(in_.shape, size_.chunk, b, c, h), powers[h], c > 0 || in_.S_init || in_.z_init,
                c + 1 < chunks || args_.d_S || args_.d_z);
        }
      }
      for (size_t h = 0; h < heads_; ++h) StoreState(HeadPlace(in_.shape, b, h), h);
    }
  }

 private:
  void LoadState(const HeadPlace& at, size_t h) {
    const auto& s = size_;
    T* dS = dS_ + h * s.state();
    T* dz = dz_ + h * s.ldk;
    ZeroArray(d_, dS, s.state());
    ZeroArray(d_, dz, s.ldk);
    if (args_.d_S) LoadRows(d_, false, s.dk, s.dv, args_.d_S + at.state, s.dv, dS, s.ldv);
    if (args_.d_z) LoadRows(d_, false, 1, s.dk, args_.d_z + at.normaliser, s.dk, dz, s.ldk);
  }
  void StoreState(const HeadPlace& at, size_t h) {
    const auto& s = size_;
    if (args_.d_S_init)
      StoreRows(d_, s.dk, s.dv, dS_ + h * s.state(), s.ldv, args_.d_S_init + at.state, s.dv, false);
    if (args_.d_z_init)
      StoreRows(d_, 1, s.dk, dz_ + h * s.ldk, s.ldk, args_.d_z_init + at.normaliser, s.dk, false);
  }

  // has_start, has_end: whether the state at the chunk's start, and dS, dz at its end, may be other than zero.
  void Chunk(const ChunkPlace& c, const Powers<T>& powers, bool has_start, bool has_end) {
    const auto [dk, dv, chunk, ldk, ldv, ldc] = size_;
    const size_t n = c.n;
    const T* record = args_.records + c.record * size_.record();
    const T* A = record + size_.state() + ldk;
    const T* B = A + size_.features();
    T* dS = dS_ + c.h * size_.state();
    T* dz = dz_ + c.h * ldk;
    LoadRows(d_, false, n, dv, in_.v + c.v_row, c.v_stride, V_, ldv);
    Transpose(n, dk, B, ldk, Bt_, ldc);
    Transpose(n, dv, V_, ldv, Vt_, ldc);
    if (has_end) Transpose(dk, dv, dS, ldv, dSt_, ldk);
    LoadOutputGradients(c);

    auto slopes = hn::Zero(d_);  // lanes of (L14)
    const T* start = has_start ? record : nullptr;
    for (size_t i0 = 0; i0 < n; i0 += kTileRows) {
      slopes = QueryTile(c, powers, A, B, start, i0, std::min(kTileRows, n - i0), slopes);
    }
    for (size_t j0 = 0; j0 < n; j0 += kTileRows) {
      slopes = KeyTile(c, powers, A, B, has_end, j0, std::min(kTileRows, n - j0), slopes);
    }
    if (wants_gamma_) {
      if (has_start && has_end) {
        auto whole = AddDot(d_, record, dSt_, dv * ldk, hn::Zero(d_));
        if (in_.normalise) whole = AddDot(d_, record + size_.state(), dz, ldk, whole);
        slopes = hn::MulAdd(hn::Set(d_, powers.slope[n]), whole, slopes);
      }
      args_.d_gamma[c.h] += Total(d_, slopes);
    }

    if (c.first == 0 && !args_.d_S_init && !args_.d_z_init) return;
    if (powers.gated) {  // (L13), Λ on the side of dN and dd
      ScaleArray(d_, powers.power[n], dS, dk * ldv);
      for (size_t i = 0; i < n; ++i) ScaleArray(d_, powers.power[i + 1], dN_ + i * ldv, ldv);
      for (size_t i = 0; i < n; ++i) dd_[i] *= powers.power[i + 1];
    }
    Product(d_, dk, dv, n, A, 1, ldk, dN_, ldv, Store::kAdd, dS, ldv);
    if (in_.normalise) AccumulateRows(d_, n, dd_, 1, A, ldk, powers.power[n], dz);
  }

  // (L7)
  void LoadOutputGradients(const ChunkPlace& c) {
    const size_t dv = size_.dv, ldv = size_.ldv, lanes = hn::Lanes(d_);
    if (!in_.normalise) {
      std::fill_n(dd_, c.n, T{0});
      return LoadRows(d_, false, c.n, dv, args_.d_o + c.v_row, c.v_stride, dN_, ldv);
    }
    for (size_t i = 0; i < c.n; ++i) {
      const T inverse = T{1} / args_.denominators[c.token + i];
      const auto scale = hn::Set(d_, inverse);
      const T* d_o = args_.d_o + c.v_row + i * c.v_stride;
      const T* o = args_.o + c.v_row + i * c.v_stride;
      T* dn = dN_ + i * ldv;
      auto sum = hn::Zero(d_);
      size_t j = 0;
      for (; j + lanes <= dv; j += lanes) {
        const auto x = hn::LoadU(d_, d_o + j);
        sum = hn::MulAdd(x, hn::LoadU(d_, o + j), sum);
        hn::StoreU(hn::Mul(x, scale), d_, dn + j);
      }
      for (; j < ldv; j += lanes) {
        const auto x = j < dv ? LoadPartial(d_, d_o + j, dv - j) : hn::Zero(d_);
        if (j < dv) sum = hn::MulAdd(x, LoadPartial(d_, o + j, dv - j), sum);
        hn::StoreU(hn::Mul(x, scale), d_, dn + j);
      }
      dd_[i] = -Total(d_, sum) * inverse;
    }
  }

  // Rows [i0, i0 + rows) of P and E ⊙ Γ, for the keys to use, and of dq. `start` holds the transposed S and z at the
  // chunk's start, null where they are zero.
  HWY_INLINE hn::Vec<D> QueryTile(const ChunkPlace& c, const Powers<T>& powers, const T* A, const T* B,
                                  const T* start, size_t i0, size_t rows, hn::Vec<D> slopes) {
    const auto [dk, dv, chunk, ldk, ldv, ldc] = size_;
    const size_t end = i0 + rows;
    const T* a = A + i0 * ldk;
    const T* dn = dN_ + i0 * ldv;
    T* p = P_ + i0 * ldc;
    T* e = E_ + i0 * ldc;
    Product(d_, rows, end, dk, a, ldk, 1, Bt_, ldc, Store::kSet, p, ldc);
    Product(d_, rows, end, dv, dn, ldv, 1, Vt_, ldc, Store::kSet, e, ldc);
    // Padded columns too: (L14) sums over whole rows.
    if (start) Product(d_, rows, ldk, dv, dn, ldv, 1, start, ldk, Store::kSet, tile_, ldk);
    for (size_t r = 0; r < rows; ++r) {
      const size_t i = i0 + r;
      slopes = WeighRow(powers, i, end, p + r * ldc, e + r * ldc, slopes);
      if (!start) continue;
      T* u = tile_ + r * ldk;
      if (in_.normalise) AddScaled(d_, dd_[i], start + size_.state(), u, ldk);  // (L9)
      if (wants_gamma_) slopes = AddSlope(powers.slope[i + 1], a + r * ldk, u, slopes);
      if (powers.gated) ScaleArray(d_, powers.power[i + 1], u, ldk);
    }
    if (!args_.d_q) return slopes;
    Product(d_, rows, dk, end, e, ldc, 1, B, ldk, start ? Store::kAdd : Store::kSet, tile_, ldk);  // (L10)
    StoreFeatureGradients(rows, a, args_.d_q + c.q_row + i0 * c.q_stride, c.q_stride, args_.add_q);
    return slopes;
  }

  // Rows [j0, j0 + rows) of dv and dk.
  HWY_INLINE hn::Vec<D> KeyTile(const ChunkPlace& c, const Powers<T>& powers, const T* A, const T* B,
                                bool has_end, size_t j0, size_t rows, hn::Vec<D> slopes) {
    const auto [dk, dv, chunk, ldk, ldv, ldc] = size_;
    const size_t below = c.n - j0;                  // rows i ≥ j0
    const size_t corner = j0 * ldc + j0;            // of P at (j0, j0)
    const T* weight = powers.power + c.n - 1 - j0;  // R of row j0; those after it lie before it
    const T* slope = powers.slope + c.n - 1 - j0;
    const Store then = has_end ? Store::kAdd : Store::kSet;
    const T* b = B + j0 * ldk;
    if (args_.d_v) {  // (L12)
      if (has_end) {
        Product(d_, rows, dv, dk, b, ldk, 1, dS_ + c.h * size_.state(), ldv, Store::kSet, tile_, ldv);
        for (size_t r = 0; powers.gated && r < rows; ++r) ScaleArray(d_, *(weight - r), tile_ + r * ldv, ldv);
      }
      Product(d_, rows, dv, below, P_ + corner, 1, ldc, dN_ + j0 * ldv, ldv, then, tile_, ldv);
      StoreRows(d_, rows, dv, tile_, ldv, args_.d_v + c.v_row + j0 * c.v_stride, c.v_stride, args_.add_v);
    }
    if (has_end && (args_.d_k || wants_gamma_)) {
      Product(d_, rows, ldk, dv, V_ + j0 * ldv, ldv, 1, dSt_, ldk, Store::kSet, tile_, ldk);
      for (size_t r = 0; r < rows; ++r) {
        T* w = tile_ + r * ldk;
        AddScaled(d_, T{1}, dz_ + c.h * ldk, w, ldk);  // (L9)
        if (wants_gamma_) slopes = AddSlope(*(slope - r), b + r * ldk, w, slopes);
        if (powers.gated) ScaleArray(d_, *(weight - r), w, ldk);
      }
    }
    if (!args_.d_k) return slopes;
    Product(d_, rows, dk, below, E_ + corner, 1, ldc, A + j0 * ldk, ldk, then, tile_, ldk);  // (L11)
    StoreFeatureGradients(rows, b, args_.d_k + c.q_row + j0 * c.q_stride, c.q_stride, args_.add_k);
    return slopes;
  }

  // Row i: p becomes P_i (L4), e becomes E_i ⊙ Γ_i (L8); slopes plus the first sum of (L14).
  HWY_INLINE hn::Vec<D> WeighRow(const Powers<T>& powers, size_t i, size_t end, T* p, T* e,
                                 hn::Vec<D> slopes) {
    const size_t lanes = hn::Lanes(d_);
    const T* power = powers.PowerRow(i);
    const T* slope = powers.SlopeRow(i);
    const auto dd = hn::Set(d_, dd_[i]);
    for (size_t j = 0; j < end; j += lanes) {
      auto x = hn::LoadU(d_, p + j);
      auto dx = hn::Add(hn::LoadU(d_, e + j), dd);
      if (j + lanes > i + 1) {
        const auto mask = hn::FirstN(d_, j > i ? 0 : i + 1 - j);
        x = hn::IfThenElseZero(mask, x);
        dx = hn::IfThenElseZero(mask, dx);
      }
      if (powers.gated) {
        if (wants_gamma_) slopes = hn::MulAdd(hn::Mul(x, hn::LoadU(d_, slope + j)), dx, slopes);
        x = hn::Mul(x, hn::LoadU(d_, power + j));
        dx = hn::Mul(dx, hn::LoadU(d_, power + j));
      }
      hn::StoreU(x, d_, p + j);
      hn::StoreU(dx, d_, e + j);
    }
    return slopes;
  }

  // slopes + slope·(x·y), lane by lane.
  HWY_INLINE hn::Vec<D> AddSlope(T slope, const T* x, const T* y, hn::Vec<D> slopes) {
    return hn::MulAdd(hn::Set(d_, slope), AddDot(d_, x, y, size_.ldk, hn::Zero(d_)), slopes);
  }

  // (L15) for the rows of dA or dB in tile_.
  HWY_INLINE void StoreFeatureGradients(size_t rows, const T* features, T* to, size_t stride, bool add) {
    for (size_t r = 0; r < rows; ++r) {
      const T* feature = features + r * size_.ldk;
      StoreRow(d_, size_.dk, tile_ + r * size_.ldk, to + r * stride, add, [&](auto x, size_t j) HWY_ATTR {
        return hn::Mul(x, FeatureGrad(d_, in_.elu, hn::LoadU(d_, feature + j)));
      });
    }
  }

  D d_;
  const DecayBackward<T>& args_;
  const DecayInputs<T>& in_;
  ChunkSizes<T> size_;
  size_t heads_;
  bool wants_gamma_;
  Buffer scratch_;
  T *Bt_, *V_, *Vt_, *dN_, *dd_, *P_, *E_, *tile_, *dSt_, *dS_, *dz_, *powers_;
};

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
