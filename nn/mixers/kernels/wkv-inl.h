// One token of WKV for a vector of channels, forward and backward, and where states lie. Included per target.
// Tags: nn/mixers/wkv.h.
#if defined(STORYTAPE_WKV_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_WKV_INL_H_
#undef STORYTAPE_WKV_INL_H_
#else
#define STORYTAPE_WKV_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <limits>

#include "nn/mixers/kernels/wkv.h"
#include "tensor/simd_targets.h"
// After simd_targets.h.
#include "hwy/highway.h"
#include "nn/mixers/kernels/rows-inl.h"
#include "tensor/kernels/lanes-inl.h"
#include "tensor/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// m, d and p of (W3): what came before weighs d·exp(p) and has the mean m. d is 0 where there is nothing, at
// least 1 else.
template <class V>
struct WkvState {
  V mean, den, max;
};

// How a token's value and the mean before it share the output and the next mean, and how far they are apart.
template <class V>
struct WkvShares {
  V read, read_rest;    // g, 1 - g
  V write, write_rest;  // a, 1 - a
  V difference;         // δ
};

// The weights of the past, d·exp(max - top), and of a value, exp(key - top), with top the larger exponent. One
// of the exponentials is 1.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void WkvWeights(D d, V den, V max, V key, V& past, V& value) {
  const auto older = hn::Ge(max, key);
  const V e = ExpNonPositive(d, MinusAbs(d, hn::Sub(max, key)));
  past = hn::IfThenElse(older, den, hn::Mul(den, e));
  value = hn::IfThenElse(older, e, hn::Set(d, hn::TFromD<D>{1}));
}

// Moves the state on by one token. The output is m + g·δ with the m from before.
template <class D, class V = hn::Vec<D>>
HWY_INLINE WkvShares<V> WkvStep(D d, V w, V u, V k, V v, WkvState<V>& state) {
  V read_past, read_value, write_past, write_value;
  WkvWeights(d, state.den, state.max, hn::Add(u, k), read_past, read_value);  // (W5)
  const V decayed = hn::Sub(state.max, w);
  WkvWeights(d, state.den, decayed, k, write_past, write_value);  // (W6)
  const V one = hn::Set(d, hn::TFromD<D>{1});
  const V write_sum = hn::Add(write_past, write_value);
  const V of_read = hn::Div(one, hn::Add(read_past, read_value)), of_write = hn::Div(one, write_sum);
  WkvShares<V> shares;
  shares.read = hn::Mul(read_value, of_read);
  shares.read_rest = hn::Mul(read_past, of_read);
  shares.write = hn::Mul(write_value, of_write);
  shares.write_rest = hn::Mul(write_past, of_write);
  shares.difference = hn::Sub(v, state.mean);                            // (W4)
  state.mean = hn::MulAdd(shares.write, shares.difference, state.mean);  // (W8)
  state.den = write_sum;                                                 // (W6)
  state.max = hn::IfThenElse(hn::Ge(decayed, k), decayed, k);
  return shares;
}

// M and Λ, the gradients of a state's mean and log den, and the sums over tokens that w and u get.
template <class V>
struct WkvAdjoint {
  V mean, logden;
  V d_w, d_u;
};

// One token back: gives its dk and dv.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void WkvStepBackward(D /*d*/, const WkvShares<V>& s, V d_o, WkvAdjoint<V>& adjoint, V& d_k,
                                V& d_v) {
  const V x = hn::Mul(hn::Mul(s.read, s.read_rest), hn::Mul(d_o, s.difference));  // (W10)
  const V n = hn::Mul(adjoint.mean, s.difference);
  const V y = hn::Mul(s.write, hn::MulAdd(s.write_rest, n, adjoint.logden));         // (W11)
  const V z = hn::Mul(s.write_rest, hn::NegMulAdd(s.write, n, adjoint.logden));      // (W12)
  d_k = hn::Add(x, y);                                                               // (W13)
  d_v = hn::MulAdd(s.read, d_o, hn::Mul(s.write, adjoint.mean));                     // (W14)
  adjoint.mean = hn::MulAdd(s.read_rest, d_o, hn::Mul(s.write_rest, adjoint.mean));  // (W15)
  adjoint.logden = hn::Sub(z, x);
  adjoint.d_u = hn::Add(adjoint.d_u, x);  // (W16)
  adjoint.d_w = hn::Sub(adjoint.d_w, z);
}

// The shares of a token in scratch memory, `stride` values from one to the next.
inline constexpr size_t kWkvShares = 5;
template <class D, class V = hn::Vec<D>, typename T = hn::TFromD<D>>
HWY_INLINE void StoreShares(D d, const WkvShares<V>& s, T* to, size_t stride) {
  hn::StoreU(s.read, d, to);
  hn::StoreU(s.read_rest, d, to + stride);
  hn::StoreU(s.write, d, to + 2 * stride);
  hn::StoreU(s.write_rest, d, to + 3 * stride);
  hn::StoreU(s.difference, d, to + 4 * stride);
}
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE WkvShares<hn::Vec<D>> LoadShares(D d, const T* from, size_t stride) {
  return {hn::LoadU(d, from), hn::LoadU(d, from + stride), hn::LoadU(d, from + 2 * stride),
          hn::LoadU(d, from + 3 * stride), hn::LoadU(d, from + 4 * stride)};
}

// A state of all channels: rows of m, d and p, `stride` apart.
template <bool kPartial, class D, typename T = hn::TFromD<D>>
HWY_INLINE WkvState<hn::Vec<D>> LoadState(D d, const T* from, size_t stride, size_t n) {
  return {LoadSome<kPartial>(d, from, n), LoadSome<kPartial>(d, from + stride, n),
          LoadSome<kPartial>(d, from + 2 * stride, n)};
}
template <bool kPartial, class D, class V = hn::Vec<D>, typename T = hn::TFromD<D>>
HWY_INLINE void StoreState(D d, const WkvState<V>& state, T* to, size_t stride, size_t n) {
  StoreSome<kPartial>(d, state.mean, to, n);
  StoreSome<kPartial>(d, state.den, to + stride, n);
  StoreSome<kPartial>(d, state.max, to + 2 * stride, n);
}

// One sequence's initial state, in the scale-free form of the caller, to rows of m, d and p (W3).
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void InitialState(D d, const WkvInputs<T>& in, size_t sequence, T* rows) {
  const size_t channels = in.shape.channels;
  const auto nothing = hn::Set(d, -std::numeric_limits<T>::infinity());
  ForVectors(d, channels, [&](auto partial, size_t c, size_t n) HWY_ATTR {
    WkvState<hn::Vec<D>> state{hn::Zero(d), hn::Zero(d), nothing};
    if (in.logden_init) {
      state.max = LoadSome<partial>(d, in.logden_init + sequence * channels + c, n);
      const auto empty = hn::Eq(state.max, nothing);
      state.mean = hn::IfThenZeroElse(empty, LoadSome<partial>(d, in.mean_init + sequence * channels + c, n));
      state.den = hn::IfThenZeroElse(empty, hn::Set(d, T{1}));
    }
    StoreState<partial>(d, state, rows + c, channels, n);
  });
}

// The state after the last token in the caller's form (W9).
template <bool kPartial, class D, class V = hn::Vec<D>, typename T = hn::TFromD<D>>
HWY_INLINE void StoreFinalState(D d, const WkvState<V>& state, T* mean, T* logden, size_t n) {
  StoreSome<kPartial>(d, state.mean, mean, n);
  StoreSome<kPartial>(d, hn::Add(state.max, Log(d, state.den)), logden, n);
}

// Writes or adds one vector of a gradient.
template <bool kPartial, class D, class V = hn::Vec<D>, typename T = hn::TFromD<D>>
HWY_INLINE void StoreGradient(D d, V x, T* to, bool add, size_t n) {
  if (add) x = hn::Add(x, LoadSome<kPartial>(d, to, n));
  StoreSome<kPartial>(d, x, to, n);
}

// The adjoints of one sequence while its backward runs, and the parameters' gradients over all sequences: rows
// of Padded(channels) values.
template <typename T>
struct WkvAdjointRows {
  T *mean, *logden, *d_w, *d_u;
};

// M and Λ from the final state's gradients; nothing yet for w and u where this is the first sequence.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void StartAdjoint(D d, const WkvBackward<T>& args, size_t sequence,
                             const WkvAdjointRows<T>& rows) {
  const size_t channels = args.in.shape.channels, padded = Padded<T>(channels);
  if (sequence == 0) {
    ZeroArray(d, rows.d_w, padded);
    ZeroArray(d, rows.d_u, padded);
  }
  ZeroArray(d, rows.mean, padded);
  ZeroArray(d, rows.logden, padded);
  if (args.d_mean) LoadRows(d, 1, channels, args.d_mean + sequence * channels, channels, rows.mean, padded);
  if (args.d_logden) {
    LoadRows(d, 1, channels, args.d_logden + sequence * channels, channels, rows.logden, padded);
  }
}

// What the first token of a sequence leaves is the initial state's gradient; after the last sequence, w and u
// have theirs.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void FinishAdjoint(const WkvBackward<T>& args, size_t sequence, const WkvAdjointRows<T>& rows) {
  const size_t channels = args.in.shape.channels;
  if (args.d_mean_init) std::copy_n(rows.mean, channels, args.d_mean_init + sequence * channels);
  if (args.d_logden_init) std::copy_n(rows.logden, channels, args.d_logden_init + sequence * channels);
  if (sequence + 1 < args.in.shape.batch) return;
  if (args.d_w) std::copy_n(rows.d_w, channels, args.d_w);
  if (args.d_u) std::copy_n(rows.d_u, channels, args.d_u);
}

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
