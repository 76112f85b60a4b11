// The recurrent face of the gated family: the definition write by write, forward and backward. Included per
// target. Tags: nn/mixers/gated_recurrence.h.
//
// The backward keeps the states of one chunk at a time, made again from the one at its start.
#if defined(STORYTAPE_GATED_RECURRENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_GATED_RECURRENT_INL_H_
#undef STORYTAPE_GATED_RECURRENT_INL_H_
#else
#define STORYTAPE_GATED_RECURRENT_INL_H_
#endif

#include "tensor/simd_targets.h"
// After simd_targets.h.
#include "hwy/highway.h"
#include "nn/mixers/kernels/gated_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One write of one head; rows in the caller's memory or in scratch, never read past their ends.
template <typename T>
struct Write {
  const T* k;     // [dk]
  const T* v;     // [dv]
  const T* gate;  // [dk], or [1] where gate_step is 0; null for a write without gate
  size_t gate_step;
  const T* beta;  // null for an additive write
  const T* q;     // [dk] where the write is read, else null
};

// Columns [column, column + kVectors·lanes) of S, rows ld apart: (G1), (G2). Columns don't meet, so a write
// is two passes over a few of them: the read for y, then, in cache, decay, write and read-out in one.
template <size_t kVectors, bool kPartial, class D, typename T = hn::TFromD<D>>
HWY_INLINE void WriteColumns(D d, size_t dk, const Write<T>& w, size_t column, size_t last, const T* S,
                             T* S_new, size_t ld, T* o) {
  using V = hn::Vec<D>;
  const size_t lanes = hn::Lanes(d);
  V u[kVectors], sums[kVectors];
  HWY_UNROLL(4) for (size_t j = 0; j < kVectors; ++j) {
    u[j] = LoadSome<kPartial>(d, w.v + column + j * lanes, last);
    sums[j] = hn::Zero(d);
  }
  const auto gate = [&](size_t i) HWY_ATTR { return w.gate ? w.gate[i * w.gate_step] : T{1}; };
  const T* from = S + column;
  if (w.beta) {
    V read[kVectors];
    HWY_UNROLL(4) for (size_t j = 0; j < kVectors; ++j) read[j] = hn::Zero(d);
    for (size_t i = 0; i < dk; ++i) {
      const V key = hn::Set(d, w.k[i] * gate(i));
      HWY_UNROLL(4) for (size_t j = 0; j < kVectors; ++j) {
        read[j] = hn::MulAdd(key, LoadSome<kPartial>(d, from + i * ld + j * lanes, last), read[j]);
      }
    }
    HWY_UNROLL(4)
    for (size_t j = 0; j < kVectors; ++j) u[j] = hn::Mul(hn::Set(d, *w.beta), hn::Sub(u[j], read[j]));
  }
  for (size_t i = 0; i < dk; ++i) {
    const V key = hn::Set(d, w.k[i]);
    const V factor = hn::Set(d, gate(i));
    const V query = hn::Set(d, w.q ? w.q[i] : T{0});
    HWY_UNROLL(4) for (size_t j = 0; j < kVectors; ++j) {
      const V decayed = hn::Mul(factor, LoadSome<kPartial>(d, from + i * ld + j * lanes, last));
      const V s = hn::MulAdd(key, u[j], decayed);
      StoreSome<kPartial>(d, s, S_new + column + i * ld + j * lanes, last);
      sums[j] = hn::MulAdd(query, s, sums[j]);
    }
  }
  if (!o || !w.q) return;
  HWY_UNROLL(4)
  for (size_t j = 0; j < kVectors; ++j) StoreSome<kPartial>(d, sums[j], o + column + j * lanes, last);
}

// S_new = S after the write (the two may be one), o its read-out where it is read and wanted.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void OneWrite(D d, size_t dk, size_t dv, const Write<T>& w, const T* S, T* S_new, size_t ld,
                         T* o) {
  const size_t lanes = hn::Lanes(d);
  size_t j = 0;
  for (; j + 2 * lanes <= dv; j += 2 * lanes) WriteColumns<2, false>(d, dk, w, j, 0, S, S_new, ld, o);
  for (; j + lanes <= dv; j += lanes) WriteColumns<1, false>(d, dk, w, j, 0, S, S_new, ld, o);
  if (j < dv) WriteColumns<1, true>(d, dk, w, j, dv - j, S, S_new, ld, o);
}

// Write r of the sequence, in the caller's memory.
template <typename T>
HWY_INLINE Write<T> WriteOf(const GatedInputs<T>& in, const GatedPlace& at, size_t r) {
  const size_t steps = in.shape.steps, token = r / steps;
  Write<T> w;
  w.k = in.k + at.k + r * at.key_stride;
  w.v = in.v + at.v + r * at.value_stride;
  w.gate = in.alpha && r % steps == 0 ? in.alpha + at.alpha + token * at.gate_row : nullptr;
  w.gate_step = in.gate == GateKind::kVector ? 1 : 0;
  w.beta = in.beta ? in.beta + at.beta + r * at.beta_stride : nullptr;
  w.q = r % steps + 1 == steps ? in.q + at.q + token * at.key_stride : nullptr;
  return w;
}

template <class D, typename T = hn::TFromD<D>>
void GatedRecurrentForward(D d, const GatedForward<T>& args) {
  const GatedInputs<T>& in = args.in;
  const GatedShape& s = in.shape;
  const size_t size = s.dk * s.dv, chunks = (s.tokens + in.chunk - 1) / in.chunk;
  for (size_t b = 0; b < s.batch; ++b) {
    for (size_t h = 0; h < s.heads; ++h) {
      const GatedPlace at(s, in.gate, b, h);
      T* S = args.S + at.state;
      if (!in.S_init) {
        std::fill_n(S, size, T{0});
      } else if (in.S_init != args.S) {
        std::copy_n(in.S_init + at.state, size, S);
      }
      for (size_t r = 0; r < s.tokens * s.steps; ++r) {
        const size_t token = r / s.steps;
        if (args.records && r % (in.chunk * s.steps) == 0) {
          const size_t record = (b * s.heads + h) * chunks + token / in.chunk;
          std::copy_n(S, size, args.records + record * size);
        }
        OneWrite(d, s.dk, s.dv, WriteOf(in, at, r), S, S, s.dv, args.o + at.o(s) + token * at.value_stride);
      }
    }
  }
}

template <class D, typename T = hn::TFromD<D>>
class GatedRecurrentBackward {
 public:
  GatedRecurrentBackward(D d, const GatedBackward<T>& args)
      : d_(d), args_(args), in_(args.in), s_(args.in.shape), ldv_(Padded<T>(s_.dv)), ldk_(Padded<T>(s_.dk)) {
    const size_t writes = std::min(in_.chunk, s_.tokens) * s_.steps;
    scratch_ = CutScratch<T>({{&states_, (writes + 1) * s_.dk * ldv_},
                              {&G_, s_.dk * ldv_},
                              {&d_o_, ldv_},
                              {&y_, ldv_},
                              {&u_, ldv_},
                              {&dq_, ldk_},
                              {&dk_, ldk_},
                              {&dgate_, ldk_}});
  }

  void Run() {
    const size_t chunks = (s_.tokens + in_.chunk - 1) / in_.chunk;
    for (size_t b = 0; b < s_.batch; ++b) {
      for (size_t h = 0; h < s_.heads; ++h) {
        const GatedPlace at(s_, in_.gate, b, h);
        ZeroArray(d_, G_, s_.dk * ldv_);
        if (args_.d_S) LoadRows(d_, s_.dk, s_.dv, args_.d_S + at.state, s_.dv, G_, ldv_);
        for (size_t chunk = chunks; chunk-- > 0;) {
          Chunk(at, (b * s_.heads + h) * chunks + chunk, chunk * in_.chunk * s_.steps,
                std::min(s_.tokens, (chunk + 1) * in_.chunk) * s_.steps);
        }
        if (args_.d_S_init) StoreRows(d_, s_.dk, s_.dv, G_, ldv_, args_.d_S_init + at.state, s_.dv, false);
      }
    }
  }

 private:
  T* StateBefore(size_t index) { return states_ + index * s_.dk * ldv_; }

  // Writes [first, last).
  void Chunk(const GatedPlace& at, size_t record, size_t first, size_t last) {
    ZeroArray(d_, states_, (last - first + 1) * s_.dk * ldv_);
    LoadRows(d_, s_.dk, s_.dv, args_.records + record * s_.dk * s_.dv, s_.dv, states_, ldv_);
    for (size_t r = first; r < last; ++r) {
      T* S = StateBefore(r - first);
      OneWrite(d_, s_.dk, s_.dv, WriteOf(in_, at, r), S, S + s_.dk * ldv_, ldv_, static_cast<T*>(nullptr));
    }
    for (size_t r = last; r-- > first;) Reverse(at, r, StateBefore(r - first));
  }

  // G_ goes from the gradient of the state after write r to that of the state before it.
  void Reverse(const GatedPlace& at, size_t r, const T* S) {
    const size_t dk = s_.dk, dv = s_.dv, token = r / s_.steps;
    const T* S_new = S + dk * ldv_;
    const Write<T> w = WriteOf(in_, at, r);
    const auto gate = [&](size_t i) { return w.gate ? w.gate[i * w.gate_step] : T{1}; };
    if (w.q) {
      LoadRows(d_, 1, dv, args_.d_o + at.o(s_) + token * at.value_stride, dv, d_o_, ldv_);
      for (size_t i = 0; i < dk; ++i) {
        dq_[i] = Dot(S_new + i * ldv_, d_o_);              // (R2)
        AddScaled(d_, w.q[i], d_o_, G_ + i * ldv_, ldv_);  // (R1)
      }
      if (args_.d_q) {
        StoreRows(d_, 1, dk, dq_, ldk_, args_.d_q + at.q + token * at.key_stride, dk, args_.add_q);
      }
    }

    // y and u of (G1) again; then u_ becomes du, y_ becomes dy.
    LoadRows(d_, 1, dv, w.v, dv, y_, ldv_);
    if (w.beta) {
      for (size_t i = 0; i < dk; ++i) AddScaled(d_, -w.k[i] * gate(i), S + i * ldv_, y_, ldv_);
    }
    const T beta = w.beta ? *w.beta : T{1};
    CopyScaledRow(beta, y_, u_);
    for (size_t i = 0; i < dk; ++i) dk_[i] = Dot(G_ + i * ldv_, u_);  // (R4)
    ZeroArray(d_, u_, ldv_);
    for (size_t i = 0; i < dk; ++i) AddScaled(d_, w.k[i], G_ + i * ldv_, u_, ldv_);  // (R3)
    if (args_.d_beta) args_.d_beta[at.beta + r * at.beta_stride] = Dot(u_, y_);      // (R5)
    CopyScaledRow(beta, u_, y_);                                                     // (R5)
    if (args_.d_v) {
      StoreRows(d_, 1, dv, y_, ldv_, args_.d_v + at.v + r * at.value_stride, dv, args_.add_v);
    }
    if (w.beta) {
      for (size_t i = 0; i < dk; ++i) {
        dk_[i] -= gate(i) * Dot(S + i * ldv_, y_);        // (R6)
        AddScaled(d_, -w.k[i], y_, G_ + i * ldv_, ldv_);  // (R7)
      }
    }
    if (args_.d_k) StoreRows(d_, 1, dk, dk_, ldk_, args_.d_k + at.k + r * at.key_stride, dk, args_.add_k);
    if (!w.gate) return;
    for (size_t i = 0; i < dk; ++i) {
      dgate_[i] = Dot(G_ + i * ldv_, S + i * ldv_);  // (R8)
      ScaleArray(d_, gate(i), G_ + i * ldv_, ldv_);  // (R9)
    }
    StoreGate(at, token);
  }

  void StoreGate(const GatedPlace& at, size_t token) {
    if (!args_.d_alpha) return;
    T* to = args_.d_alpha + at.alpha + token * at.gate_row;
    if (in_.gate == GateKind::kVector) return StoreRows(d_, 1, s_.dk, dgate_, ldk_, to, s_.dk, false);
    T sum = 0;
    for (size_t i = 0; i < s_.dk; ++i) sum += dgate_[i];
    *to = sum;
  }

  HWY_INLINE T Dot(const T* x, const T* y) { return Total(d_, AddDot(d_, x, y, ldv_, hn::Zero(d_))); }
  HWY_INLINE void CopyScaledRow(T scale, const T* x, T* y) { CopyScaled(d_, scale, x, y, ldv_); }

  D d_;
  const GatedBackward<T>& args_;
  const GatedInputs<T>& in_;
  const GatedShape& s_;
  size_t ldv_, ldk_;
  Buffer scratch_;
  T *states_, *G_, *d_o_, *y_, *u_, *dq_, *dk_, *dgate_;
};

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
