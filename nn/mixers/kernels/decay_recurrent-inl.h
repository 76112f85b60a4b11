// The recurrent face of the decay family: the definition token by token, forward and backward, with a state
// or three at a time and none kept. Included per target. Tags: nn/mixers/linear_attention.h.
#if defined(STORYTAPE_DECAY_RECURRENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_DECAY_RECURRENT_INL_H_
#undef STORYTAPE_DECAY_RECURRENT_INL_H_
#else
#define STORYTAPE_DECAY_RECURRENT_INL_H_
#endif

#include "tensor/simd_targets.h"
// After simd_targets.h.
#include "hwy/highway.h"
#include "nn/mixers/kernels/decay-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Columns [0, kVectors·lanes) of one token: S = gamma·S + bᵀv (L1), o = (a·S)·scale (L3); `last` < lanes
// values in the last vector where kPartial. S lies in the caller's memory, rows dv apart.
template <size_t kVectors, bool kPartial, class D, typename T = hn::TFromD<D>>
HWY_INLINE void StepColumns(D d, size_t dk, size_t dv, size_t last, const T* a, const T* b, const T* v,
                            T gamma, T scale, T* S, T* o) {
  using V = hn::Vec<D>;
  const size_t lanes = hn::Lanes(d);
  const auto load = [&](const T* p) HWY_ATTR { return kPartial ? LoadPartial(d, p, last) : hn::LoadU(d, p); };
  const auto store = [&](V x, T* p) HWY_ATTR {
    if constexpr (kPartial) {
      StorePartial(d, x, p, last);
    } else {
      hn::StoreU(x, d, p);
    }
  };
  V values[kVectors];
  V sums[kVectors];
  HWY_UNROLL(4) for (size_t j = 0; j < kVectors; ++j) {
    values[j] = load(v + j * lanes);
    sums[j] = hn::Zero(d);
  }
  const V decay = hn::Set(d, gamma);
  for (size_t i = 0; i < dk; ++i, S += dv) {
    const V key = hn::Set(d, b[i]);
    const V query = hn::Set(d, a[i]);
    HWY_UNROLL(4) for (size_t j = 0; j < kVectors; ++j) {
      const V s = hn::MulAdd(key, values[j], hn::Mul(decay, load(S + j * lanes)));
      store(s, S + j * lanes);
      sums[j] = hn::MulAdd(query, s, sums[j]);
    }
  }
  HWY_UNROLL(4)
  for (size_t j = 0; j < kVectors; ++j) store(hn::Mul(sums[j], hn::Set(d, scale)), o + j * lanes);
}

template <class D, typename T = hn::TFromD<D>>
void RecurrentForward(D d, const DecayForward<T>& args) {
  const DecayInputs<T>& in = args.in;
  const auto [batch, tokens, heads, dk, dv] = in.shape;
  const size_t lanes = hn::Lanes(d);
  const size_t ldk = Padded<T>(dk);
  T *a, *b, *z;
  const Buffer scratch = CutScratch<T>({{&a, ldk}, {&b, ldk}, {&z, ldk}});

  for (size_t sequence = 0; sequence < batch; ++sequence) {
    for (size_t h = 0; h < heads; ++h) {
      const HeadPlace at(in.shape, sequence, h);
      const T gamma = in.gamma ? in.gamma[h] : T{1};
      T* S = args.S + at.state;
      if (!in.S_init) {
        std::fill_n(S, dk * dv, T{0});
      } else if (in.S_init != args.S) {
        std::copy_n(in.S_init + at.state, dk * dv, S);
      }
      ZeroArray(d, z, ldk);
      if (in.z_init) LoadRows(d, false, 1, dk, in.z_init + at.normaliser, dk, z, ldk);

      for (size_t t = 0; t < tokens; ++t) {
        LoadRows(d, in.elu, 1, dk, in.q + at.q + t * at.q_stride, dk, a, ldk);
        LoadRows(d, in.elu, 1, dk, in.k + at.q + t * at.q_stride, dk, b, ldk);
        T scale = T{1};
        if (in.normalise) {
          ScaleArray(d, gamma, z, ldk);
          AddScaled(d, T{1}, b, z, ldk);  // (L2)
          const T denominator = Total(d, AddDot(d, a, z, ldk, hn::Zero(d))) + in.eps;
          scale = T{1} / denominator;
          if (args.denominators) args.denominators[at.tokens + t] = denominator;
        }
        const T* v = in.v + at.v + t * at.v_stride;
        T* o = args.o + at.v + t * at.v_stride;
        size_t j = 0;
        for (; j + 2 * lanes <= dv; j += 2 * lanes) {
          StepColumns<2, false>(d, dk, dv, 0, a, b, v + j, gamma, scale, S + j, o + j);
        }
        for (; j + lanes <= dv; j += lanes) {
          StepColumns<1, false>(d, dk, dv, 0, a, b, v + j, gamma, scale, S + j, o + j);
        }
        if (j < dv) StepColumns<1, true>(d, dk, dv, dv - j, a, b, v + j, gamma, scale, S + j, o + j);
      }
      if (args.z) StoreRows(d, 1, dk, z, ldk, args.z + at.normaliser, dk, false);
    }
  }
}

// One head's rows of a token, padded.
template <typename T>
struct TokenRows {
  T *a, *b, *v, *dn, *out;
  T dd;
};

template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void LoadToken(D d, const DecayBackward<T>& args, const HeadPlace& at, size_t t,
                          TokenRows<T>& row) {
  const DecayInputs<T>& in = args.in;
  const size_t dk = in.shape.dk, dv = in.shape.dv, ldk = Padded<T>(dk), ldv = Padded<T>(dv);
  LoadRows(d, in.elu, 1, dk, in.q + at.q + t * at.q_stride, dk, row.a, ldk);
  LoadRows(d, in.elu, 1, dk, in.k + at.q + t * at.q_stride, dk, row.b, ldk);
  LoadRows(d, false, 1, dv, in.v + at.v + t * at.v_stride, dv, row.v, ldv);
  LoadRows(d, false, 1, dv, args.d_o + at.v + t * at.v_stride, dv, row.dn, ldv);
  row.dd = T{0};
  if (!in.normalise) return;
  const T inverse = T{1} / args.denominators[at.tokens + t];  // (L7)
  LoadRows(d, false, 1, dv, args.o + at.v + t * at.v_stride, dv, row.out, ldv);
  row.dd = -Total(d, AddDot(d, row.dn, row.out, ldv, hn::Zero(d))) * inverse;
  ScaleArray(d, inverse, row.dn, ldv);
}

// With S and z running forward once more, dq; with their derivative S', z' with respect to gamma beside them,
// dgamma.
template <class D, typename T = hn::TFromD<D>>
T SweepForward(D d, const DecayBackward<T>& args, const HeadPlace& at, T gamma, bool wants_gamma,
               TokenRows<T>& row, T* S, T* z, T* S1, T* z1) {
  const DecayInputs<T>& in = args.in;
  const size_t dk = in.shape.dk, dv = in.shape.dv, ldk = Padded<T>(dk), ldv = Padded<T>(dv);
  ZeroArray(d, S, dk * ldv);
  ZeroArray(d, z, ldk);
  ZeroArray(d, S1, dk * ldv);
  ZeroArray(d, z1, ldk);
  if (in.S_init) LoadRows(d, false, dk, dv, in.S_init + at.state, dv, S, ldv);
  if (in.z_init) LoadRows(d, false, 1, dk, in.z_init + at.normaliser, dk, z, ldk);
  auto slopes = hn::Zero(d);
  for (size_t t = 0; t < in.shape.tokens; ++t) {
    LoadToken(d, args, at, t, row);
    if (wants_gamma) {  // (L16)
      ScaleArray(d, gamma, S1, dk * ldv);
      AddScaled(d, T{1}, S, S1, dk * ldv);
      ScaleArray(d, gamma, z1, ldk);
      AddScaled(d, T{1}, z, z1, ldk);
      slopes = hn::MulAdd(hn::Set(d, row.dd), AddDot(d, row.a, z1, ldk, hn::Zero(d)), slopes);  // (L17)
    }
    ScaleArray(d, gamma, S, dk * ldv);
    ScaleArray(d, gamma, z, ldk);
    AddScaled(d, T{1}, row.b, z, ldk);  // (L2)
    for (size_t i = 0; i < dk; ++i) {
      AddScaled(d, row.b[i], row.v, S + i * ldv, ldv);                                          // (L1)
      row.out[i] = Total(d, AddDot(d, S + i * ldv, row.dn, ldv, hn::Zero(d))) + row.dd * z[i];  // (L17)
      if (wants_gamma) {
        slopes = hn::MulAdd(hn::Set(d, row.a[i]), AddDot(d, S1 + i * ldv, row.dn, ldv, hn::Zero(d)), slopes);
      }
    }
    if (args.d_q) {
      StoreRow(d, dk, row.out, args.d_q + at.q + t * at.q_stride, args.add_q, [&](auto x, size_t j) HWY_ATTR {
        return hn::Mul(x, FeatureGrad(d, in.elu, hn::LoadU(d, row.a + j)));  // (L15)
      });
    }
  }
  if (!wants_gamma) return T{0};
  if (args.d_S) {
    for (size_t i = 0; i < dk; ++i) {
      LoadRows(d, false, 1, dv, args.d_S + at.state + i * dv, dv, row.out, ldv);
      slopes = AddDot(d, S1 + i * ldv, row.out, ldv, slopes);
    }
  }
  if (args.d_z) {
    LoadRows(d, false, 1, dk, args.d_z + at.normaliser, dk, row.out, ldk);
    slopes = AddDot(d, z1, row.out, ldk, slopes);
  }
  return Total(d, slopes);
}

// G and g, the gradients of S_t and z_t, running backward: dk, dv and the initial state's.
template <class D, typename T = hn::TFromD<D>>
void SweepBackward(D d, const DecayBackward<T>& args, const HeadPlace& at, T gamma, TokenRows<T>& row, T* G,
                   T* g) {
  const DecayInputs<T>& in = args.in;
  const size_t dk = in.shape.dk, dv = in.shape.dv, ldk = Padded<T>(dk), ldv = Padded<T>(dv);
  ZeroArray(d, G, dk * ldv);
  ZeroArray(d, g, ldk);
  if (args.d_S) LoadRows(d, false, dk, dv, args.d_S + at.state, dv, G, ldv);
  if (args.d_z) LoadRows(d, false, 1, dk, args.d_z + at.normaliser, dk, g, ldk);
  for (size_t t = in.shape.tokens; t-- > 0;) {
    LoadToken(d, args, at, t, row);
    AddScaled(d, row.dd, row.a, g, ldk);  // (L18)
    for (size_t i = 0; i < dk; ++i) AddScaled(d, row.a[i], row.dn, G + i * ldv, ldv);
    if (args.d_v) {
      ZeroArray(d, row.out, ldv);
      for (size_t i = 0; i < dk; ++i) AddScaled(d, row.b[i], G + i * ldv, row.out, ldv);  // (L19)
      StoreRows(d, 1, dv, row.out, ldv, args.d_v + at.v + t * at.v_stride, dv, args.add_v);
    }
    if (args.d_k) {
      for (size_t i = 0; i < dk; ++i) {
        row.out[i] = Total(d, AddDot(d, G + i * ldv, row.v, ldv, hn::Zero(d))) + g[i];  // (L19)
      }
      StoreRow(d, dk, row.out, args.d_k + at.q + t * at.q_stride, args.add_k, [&](auto x, size_t j) HWY_ATTR {
        return hn::Mul(x, FeatureGrad(d, in.elu, hn::LoadU(d, row.b + j)));  // (L15)
      });
    }
    ScaleArray(d, gamma, G, dk * ldv);  // (L18)
    ScaleArray(d, gamma, g, ldk);
  }
  if (args.d_S_init) StoreRows(d, dk, dv, G, ldv, args.d_S_init + at.state, dv, false);
  if (args.d_z_init) StoreRows(d, 1, dk, g, ldk, args.d_z_init + at.normaliser, dk, false);
}

template <class D, typename T = hn::TFromD<D>>
void RecurrentBackward(D d, const DecayBackward<T>& args) {
  const DecayInputs<T>& in = args.in;
  const size_t ldk = Padded<T>(in.shape.dk), ldv = Padded<T>(in.shape.dv);
  T *S, *z, *S1, *z1;
  TokenRows<T> row;
  const Buffer scratch = CutScratch<T>({{&row.a, ldk},
                                        {&row.b, ldk},
                                        {&row.v, ldv},
                                        {&row.dn, ldv},
                                        {&row.out, std::max(ldk, ldv)},
                                        {&S, ldk * ldv},
                                        {&z, ldk},
                                        {&S1, ldk * ldv},
                                        {&z1, ldk}});
  ZeroArray(d, row.out, std::max(ldk, ldv));
  for (size_t b = 0; b < in.shape.batch; ++b) {
    for (size_t h = 0; h < in.shape.heads; ++h) {
      const HeadPlace at(in.shape, b, h);
      const T gamma = in.gamma ? in.gamma[h] : T{1};
      const bool wants_gamma = in.gamma && args.d_gamma;
      if (args.d_q || wants_gamma) {
        const T sum = SweepForward(d, args, at, gamma, wants_gamma, row, S, z, S1, z1);
        if (wants_gamma) args.d_gamma[h] = (b > 0 ? args.d_gamma[h] : T{0}) + sum;
      }
      SweepBackward(d, args, at, gamma, row, S, z);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
