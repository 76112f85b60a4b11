// The chunkwise face of the decay family, forward and backward. Included per target. Tags: nn/mixers/linear_attention.h.
//
// Within a chunk the first token has index 0, so that the factors of (L5) and (L6) read
//   Λ_i = γ^(i+1),  R_j = γ^(n-1-j)        n tokens in the chunk
// Heads take turns within a chunk, so that the caller's arrays are walked once, in order. Work goes by tiles of six rows
// i: the row tile of P (C×C, lower triangle) is made only as far as its last column, and products with it run only so
// far; about half of the square is never touched.
#if defined(STORYTAPE_DECAY_CHUNKWISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_DECAY_CHUNKWISE_INL_H_
#undef STORYTAPE_DECAY_CHUNKWISE_INL_H_
#else
#define STORYTAPE_DECAY_CHUNKWISE_INL_H_
#endif

#include "tensor/simd_targets.h"
// After simd_targets.h.
#include "hwy/cache_control.h"
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
  size_t boundary() const { return ldk * ldv + ldk; }
};

// One chunk of one head.
struct ChunkPlace {
  size_t b, h;
  size_t first, n;  // tokens [first, first + n)
  size_t q_row, v_row;  // of the first token
  // What comes after it: the same rows of the next head, or the first head's of the next chunk.
  size_t next_q_row, next_v_row, next_n;
  ChunkPlace(const DecayShape& s, const HeadPlace& at, size_t batch, size_t head, size_t chunk, size_t index,
             bool rising)
      : b(batch),
        h(head),
        first(index * chunk),
        n(std::min(chunk, s.tokens - first)),
        q_row(at.q + first * at.q_stride),
        v_row(at.v + first * at.v_stride),
        next_q_row(q_row + s.dk),
        next_v_row(v_row + s.dv),
        next_n(n) {
    if (h + 1 < s.heads) return;
    const size_t chunks = (s.tokens + chunk - 1) / chunk;
    const bool last = rising ? index + 1 == chunks : index == 0;
    const size_t next_first = last ? first : rising ? first + chunk : first - chunk;
    next_n = last ? 0 : std::min(chunk, s.tokens - next_first);
    const size_t next_token = batch * s.tokens + next_first;
    next_q_row = next_token * at.q_stride;
    next_v_row = next_token * at.v_stride;
  }
};

// Asks for rows [first, first + rows), as far as there are any, of an array whose chunk starts at `chunk`: while the
// products of one tile run, the cache fetches what the next chunk will read.
template <typename T>
HWY_INLINE void PrefetchRows(const T* chunk, size_t stride, size_t width, size_t n, size_t first, size_t rows) {
  for (size_t i = first; i < std::min(n, first + rows); ++i) {
    for (size_t j = 0; j < width; j += kLine<T>) hwy::Prefetch(chunk + i * stride + j);
  }
}

template <class D, typename T = hn::TFromD<D>>
class ChunkwiseForward {
 public:
  ChunkwiseForward(D d, const DecayForward<T>& args)
      : d_(d), args_(args), in_(args.in), size_(args.in), heads_(args.in.shape.heads) {
    const auto& s = size_;
    scratch_ = CutScratch<T>({{&A_, s.chunk * s.ldk},
                              {&B_, s.chunk * s.ldk},
                              {&Bt_, s.ldk * s.ldc},
                              {&V_, s.chunk * s.ldv},
                              {&P_, kTileRows * s.ldc},
                              {&tile_, kTileRows * s.ldv},
                              {&S_, heads_ * s.state()},
                              {&z_, heads_ * s.ldk},
                              {&powers_, HeadPowers<T>::Size(heads_, s.chunk)}});
  }

  void Run() {
    const auto& s = size_;
    const HeadPowers<T> powers(in_.gamma, heads_, s.chunk, powers_);
    const size_t chunks = (in_.shape.tokens + s.chunk - 1) / s.chunk;
    for (size_t b = 0; b < in_.shape.batch; ++b) {
      for (size_t h = 0; h < heads_; ++h) LoadState(HeadPlace(in_.shape, b, h), h);
      for (size_t c = 0; c < chunks; ++c) {
        for (size_t h = 0; h < heads_; ++h) {
          const HeadPlace at(in_.shape, b, h);
          if (args_.boundaries) SaveState(h, args_.boundaries + ((b * chunks + c) * heads_ + h) * s.boundary());
          Chunk(at, ChunkPlace(in_.shape, at, b, h, s.chunk, c, true), powers[h], c > 0 || in_.S_init || in_.z_init);
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
  void SaveState(size_t h, T* boundary) {
    const auto& s = size_;
    Transpose(s.dk, s.dv, S_ + h * s.state(), s.ldv, boundary, s.ldk);
    std::copy_n(z_ + h * s.ldk, s.ldk, boundary + s.state());
  }
  void StoreState(const HeadPlace& at, size_t h) {
    const auto& s = size_;
    StoreRows(d_, s.dk, s.dv, S_ + h * s.state(), s.ldv, args_.S + at.state, s.dv, false);
    if (args_.z) StoreRows(d_, 1, s.dk, z_ + h * s.ldk, s.ldk, args_.z + at.normaliser, s.dk, false);
  }

  void Chunk(const HeadPlace& at, const ChunkPlace& c, const Powers<T>& powers, bool has_state) {
    const auto [dk, dv, chunk, ldk, ldv, ldc] = size_;
    const size_t n = c.n;
    T* S = S_ + c.h * size_.state();
    T* z = z_ + c.h * ldk;
    LoadRows(d_, in_.elu, n, dk, in_.q + c.q_row, at.q_stride, A_, ldk);
    LoadRows(d_, in_.elu, n, dk, in_.k + c.q_row, at.q_stride, B_, ldk);
    LoadRows(d_, false, n, dv, in_.v + c.v_row, at.v_stride, V_, ldv);
    Transpose(n, dk, B_, ldk, Bt_, ldc);

    for (size_t i0 = 0; i0 < n; i0 += kTileRows) {
      const size_t rows = std::min(kTileRows, n - i0);
      const size_t end = i0 + rows;
      T* a = A_ + i0 * ldk;
      T inverse[kTileRows];
      PrefetchRows(in_.q + c.next_q_row, at.q_stride, dk, c.next_n, i0, rows);
      PrefetchRows(in_.k + c.next_q_row, at.q_stride, dk, c.next_n, i0, rows);
      PrefetchRows(in_.v + c.next_v_row, at.v_stride, dv, c.next_n, i0, rows);
      Product(d_, rows, end, dk, a, ldk, 1, Bt_, ldc, Store::kSet, P_, ldc);
      for (size_t r = 0; r < rows; ++r) {
        auto sum = WeighRow(powers, i0 + r, end, P_ + r * ldc);
        if (has_state && powers.gated) ScaleArray(d_, powers.power[i0 + r + 1], a + r * ldk, ldk);
        inverse[r] = T{1};
        if (!in_.normalise) continue;
        if (has_state) sum = AddDot(d_, a + r * ldk, z, ldk, sum);
        const T denominator = Total(d_, sum) + in_.eps;
        inverse[r] = T{1} / denominator;
        if (args_.denominators) args_.denominators[at.tokens + c.first + i0 + r] = denominator;
      }
      if (has_state) Product(d_, rows, dv, dk, a, ldk, 1, S, ldv, Store::kSet, tile_, ldv);  // (L5)
      Product(d_, rows, dv, end, P_, ldc, 1, V_, ldv, has_state ? Store::kAdd : Store::kSet, tile_, ldv);
      for (size_t r = 0; r < rows; ++r) {  // (L3)
        const auto scale = hn::Set(d_, inverse[r]);
        StoreRow(d_, dv, tile_ + r * ldv, args_.o + c.v_row + (i0 + r) * at.v_stride, false,
                 [scale](auto x, size_t) HWY_ATTR { return hn::Mul(x, scale); });
      }
    }

    if (powers.gated) {  // (L6)
      for (size_t j = 0; j < n; ++j) ScaleArray(d_, powers.power[n - 1 - j], B_ + j * ldk, ldk);
      ScaleArray(d_, powers.power[n], S, dk * ldv);
      ScaleArray(d_, powers.power[n], z, ldk);
    }
    Product(d_, dk, dv, n, B_, 1, ldk, V_, ldv, Store::kAdd, S, ldv);
    for (size_t j = 0; j < n; ++j) AddScaled(d_, T{1}, B_ + j * ldk, z, ldk);
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

// The reverse of ChunkwiseForward, chunks from last to first. dS_, dz_: the gradients of the heads' states at the
// chunk's end.
template <class D, typename T = hn::TFromD<D>>
class ChunkwiseBackward {
 public:
  ChunkwiseBackward(D d, const DecayBackward<T>& args)
      : d_(d), args_(args), in_(args.in), size_(args.in), heads_(args.in.shape.heads) {
    const auto& s = size_;
    scratch_ = CutScratch<T>({{&A_, s.chunk * s.ldk},
                              {&B_, s.chunk * s.ldk},
                              {&Bt_, s.ldk * s.ldc},
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
  }

  void Run() {
    const auto& s = size_;
    const HeadPowers<T> powers(in_.gamma, heads_, s.chunk, powers_);
    const size_t chunks = (in_.shape.tokens + s.chunk - 1) / s.chunk;
    if (args_.d_gamma) std::fill_n(args_.d_gamma, heads_, T{0});
    for (size_t b = 0; b < in_.shape.batch; ++b) {
      for (size_t h = 0; h < heads_; ++h) LoadState(HeadPlace(in_.shape, b, h), h);
      for (size_t c = chunks; c-- > 0;) {
        for (size_t h = 0; h < heads_; ++h) {
          const HeadPlace at(in_.shape, b, h);
          const T* start = args_.boundaries + ((b * chunks + c) * heads_ + h) * s.boundary();
          Chunk(at, ChunkPlace(in_.shape, at, b, h, s.chunk, c, false), powers[h],
                c > 0 || in_.S_init || in_.z_init ? start : nullptr, c + 1 < chunks || args_.d_S || args_.d_z);
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
    if (args_.d_S_init) StoreRows(d_, s.dk, s.dv, dS_ + h * s.state(), s.ldv, args_.d_S_init + at.state, s.dv, false);
    if (args_.d_z_init) StoreRows(d_, 1, s.dk, dz_ + h * s.ldk, s.ldk, args_.d_z_init + at.normaliser, s.dk, false);
  }

  // `start` holds the transposed S and z at the chunk's start, null if they are zero; has_end says whether dS, dz are
  // not.
  void Chunk(const HeadPlace& at, const ChunkPlace& c, const Powers<T>& powers, const T* start, bool has_end) {
    const auto [dk, dv, chunk, ldk, ldv, ldc] = size_;
    const size_t n = c.n;
    T* dS = dS_ + c.h * size_.state();
    T* dz = dz_ + c.h * ldk;
    wants_gamma_ = args_.d_gamma && powers.gated;
    LoadRows(d_, in_.elu, n, dk, in_.q + c.q_row, at.q_stride, A_, ldk);
    LoadRows(d_, in_.elu, n, dk, in_.k + c.q_row, at.q_stride, B_, ldk);
    LoadRows(d_, false, n, dv, in_.v + c.v_row, at.v_stride, V_, ldv);
    Transpose(n, dk, B_, ldk, Bt_, ldc);
    Transpose(n, dv, V_, ldv, Vt_, ldc);
    if (has_end) Transpose(dk, dv, dS, ldv, dSt_, ldk);
    LoadOutputGradients(at, c);

    auto slopes = hn::Zero(d_);  // lanes of (L14)
    for (size_t i0 = 0; i0 < n; i0 += kTileRows) {
      slopes = QueryTile(at, c, powers, start, i0, std::min(kTileRows, n - i0), slopes);
    }
    for (size_t j0 = 0; j0 < n; j0 += kTileRows) {
      slopes = KeyTile(at, c, powers, has_end, j0, std::min(kTileRows, n - j0), slopes);
    }
    if (wants_gamma_) {
      if (start && has_end) {
        auto whole = AddDot(d_, start, dSt_, dv * ldk, hn::Zero(d_));
        if (in_.normalise) whole = AddDot(d_, start + size_.state(), dz, ldk, whole);
        slopes = hn::MulAdd(hn::Set(d_, powers.slope[n]), whole, slopes);
      }
      args_.d_gamma[c.h] += Total(d_, slopes);
    }

    if (c.first == 0 && !args_.d_S_init && !args_.d_z_init) return;
    if (powers.gated) {
      ScaleArray(d_, powers.power[n], dS, dk * ldv);
      ScaleArray(d_, powers.power[n], dz, ldk);
      for (size_t i = 0; i < n; ++i) ScaleArray(d_, powers.power[i + 1], A_ + i * ldk, ldk);
    }
    Product(d_, dk, dv, n, A_, 1, ldk, dN_, ldv, Store::kAdd, dS, ldv);  // (L13)
    if (in_.normalise) {
      for (size_t i = 0; i < n; ++i) AddScaled(d_, dd_[i], A_ + i * ldk, dz, ldk);
    }
  }

  // (L7)
  void LoadOutputGradients(const HeadPlace& at, const ChunkPlace& c) {
    const size_t dv = size_.dv, ldv = size_.ldv, lanes = hn::Lanes(d_);
    LoadRows(d_, false, c.n, dv, args_.d_o + c.v_row, at.v_stride, dN_, ldv);
    for (size_t i = 0; i < c.n; ++i) {
      dd_[i] = T{0};
      if (!in_.normalise) continue;
      const T inverse = T{1} / args_.denominators[at.tokens + c.first + i];
      const T* o = args_.o + c.v_row + i * at.v_stride;
      T* dn = dN_ + i * ldv;
      auto sum = hn::Zero(d_);
      size_t j = 0;
      for (; j + lanes <= dv; j += lanes) sum = hn::MulAdd(hn::LoadU(d_, dn + j), hn::LoadU(d_, o + j), sum);
      if (j < dv) sum = hn::MulAdd(hn::LoadU(d_, dn + j), LoadPartial(d_, o + j, dv - j), sum);
      dd_[i] = -Total(d_, sum) * inverse;
      ScaleArray(d_, inverse, dn, ldv);
    }
  }

  // Rows [i0, i0 + rows) of P and E ⊙ Γ, for the keys to use, and of dq.
  HWY_INLINE hn::Vec<D> QueryTile(const HeadPlace& at, const ChunkPlace& c, const Powers<T>& powers, const T* start,
                                  size_t i0, size_t rows, hn::Vec<D> slopes) {
    const auto [dk, dv, chunk, ldk, ldv, ldc] = size_;
    const size_t end = i0 + rows;
    const T* a = A_ + i0 * ldk;
    const T* dn = dN_ + i0 * ldv;
    PrefetchRows(in_.q + c.next_q_row, at.q_stride, dk, c.next_n, i0, rows);
    PrefetchRows(in_.k + c.next_q_row, at.q_stride, dk, c.next_n, i0, rows);
    PrefetchRows(in_.v + c.next_v_row, at.v_stride, dv, c.next_n, i0, rows);
    Product(d_, rows, end, dk, a, ldk, 1, Bt_, ldc, Store::kSet, P_ + i0 * ldc, ldc);
    Product(d_, rows, end, dv, dn, ldv, 1, Vt_, ldc, Store::kSet, E_ + i0 * ldc, ldc);
    if (start) Product(d_, rows, dk, dv, dn, ldv, 1, start, ldk, Store::kSet, tile_, ldk);
    for (size_t r = 0; r < rows; ++r) {
      const size_t i = i0 + r;
      slopes = WeighRow(powers, i, end, P_ + i * ldc, E_ + i * ldc, slopes);
      if (!start) continue;
      T* u = tile_ + r * ldk;
      if (in_.normalise) AddScaled(d_, dd_[i], start + size_.state(), u, ldk);  // (L9)
      if (!powers.gated) continue;
      if (wants_gamma_) slopes = AddSlope(powers.slope[i + 1], a + r * ldk, u, slopes);
      ScaleArray(d_, powers.power[i + 1], u, ldk);
    }
    if (!args_.d_q) return slopes;
    Product(d_, rows, dk, end, E_ + i0 * ldc, ldc, 1, B_, ldk, start ? Store::kAdd : Store::kSet, tile_, ldk);  // (L10)
    StoreFeatureGradients(rows, a, args_.d_q + c.q_row + i0 * at.q_stride, at.q_stride, args_.add_q);
    return slopes;
  }

  // Rows [j0, j0 + rows) of dv and dk.
  HWY_INLINE hn::Vec<D> KeyTile(const HeadPlace& at, const ChunkPlace& c, const Powers<T>& powers, bool has_end,
                                size_t j0, size_t rows, hn::Vec<D> slopes) {
    const auto [dk, dv, chunk, ldk, ldv, ldc] = size_;
    const size_t below = c.n - j0;           // rows i ≥ j0
    const size_t corner = j0 * ldc + j0;     // of P at (j0, j0)
    const size_t last = c.n - 1 - j0;
    const Store then = has_end ? Store::kAdd : Store::kSet;
    const T* b = B_ + j0 * ldk;
    const T* dz = dz_ + c.h * ldk;
    PrefetchRows(args_.d_o + c.next_v_row, at.v_stride, dv, c.next_n, j0, rows);
    PrefetchRows(args_.o + c.next_v_row, at.v_stride, dv, c.next_n, j0, rows);
    if (args_.d_v) {
      if (has_end) {
        Product(d_, rows, dv, dk, b, ldk, 1, dS_ + c.h * size_.state(), ldv, Store::kSet, tile_, ldv);
        for (size_t r = 0; powers.gated && r < rows; ++r) ScaleArray(d_, powers.power[last - r], tile_ + r * ldv, ldv);
      }
      Product(d_, rows, dv, below, P_ + corner, 1, ldc, dN_ + j0 * ldv, ldv, then, tile_, ldv);  // (L12)
      StoreRows(d_, rows, dv, tile_, ldv, args_.d_v + c.v_row + j0 * at.v_stride, at.v_stride, args_.add_v);
    }
    if (has_end && (args_.d_k || wants_gamma_)) {
      Product(d_, rows, dk, dv, V_ + j0 * ldv, ldv, 1, dSt_, ldk, Store::kSet, tile_, ldk);
      for (size_t r = 0; r < rows; ++r) {
        T* w = tile_ + r * ldk;
        AddScaled(d_, T{1}, dz, w, ldk);  // (L9)
        if (!powers.gated) continue;
        if (wants_gamma_) slopes = AddSlope(powers.slope[last - r], b + r * ldk, w, slopes);
        ScaleArray(d_, powers.power[last - r], w, ldk);
      }
    }
    if (!args_.d_k) return slopes;
    Product(d_, rows, dk, below, E_ + corner, 1, ldc, A_ + j0 * ldk, ldk, then, tile_, ldk);  // (L11)
    StoreFeatureGradients(rows, b, args_.d_k + c.q_row + j0 * at.q_stride, at.q_stride, args_.add_k);
    return slopes;
  }

  // Row i: p becomes P_i (L4), e becomes E_i ⊙ Γ_i (L8); slopes plus the first sum of (L14).
  HWY_INLINE hn::Vec<D> WeighRow(const Powers<T>& powers, size_t i, size_t end, T* p, T* e, hn::Vec<D> slopes) {
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
  bool wants_gamma_ = false;
  Buffer scratch_;
  T *A_, *B_, *Bt_, *V_, *Vt_, *dN_, *dd_, *P_, *E_, *tile_, *dSt_, *dS_, *dz_, *powers_;
};

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
