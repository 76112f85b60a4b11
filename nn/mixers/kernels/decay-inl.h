// What the kernels of the decay family share: features, and the powers of a head's decay. Included per target.
#if defined(STORYTAPE_DECAY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_DECAY_INL_H_
#undef STORYTAPE_DECAY_INL_H_
#else
#define STORYTAPE_DECAY_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "nn/mixers/kernels/decay.h"
#include "tensor/simd_targets.h"
// After simd_targets.h.
#include "hwy/highway.h"
#include "nn/mixers/kernels/rows-inl.h"
#include "tensor/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Where the parts of one (sequence, head) lie in the caller's arrays.
struct HeadPlace {
  size_t q, v;  // first row; rows are q_stride, v_stride apart
  size_t q_stride, v_stride;
  size_t state, normaliser;  // in S and z
  size_t tokens;             // in [B, H, T]
  HeadPlace(const DecayShape& s, size_t b, size_t h)
      : q((b * s.tokens * s.heads + h) * s.dk),
        v((b * s.tokens * s.heads + h) * s.dv),
        q_stride(s.heads * s.dk),
        v_stride(s.heads * s.dv),
        state((b * s.heads + h) * s.dk * s.dv),
        normaliser((b * s.heads + h) * s.dk),
        tokens((b * s.heads + h) * s.tokens) {}
};

// phi of (L15) of whole vectors.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Feature(D d, bool elu, V x) {
  return elu ? EluPlusOne(d, x) : x;
}
// phi'(x) from a = phi(x): 1 for x > 0, where a > 1, else a.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V FeatureGrad(D d, bool elu, V a) {
  return elu ? AtMost(d, a, hn::TFromD<D>{1}) : hn::Set(d, hn::TFromD<D>{1});
}

// Rows through the feature map, padded with zeros.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void LoadRows(D d, bool elu, size_t rows, size_t width, const T* from, size_t stride, T* to,
                         size_t ld) {
  LoadRows(d, rows, width, from, stride, to, ld, [&](auto x) HWY_ATTR { return Feature(d, elu, x); });
}

// Powers of one head's decay and their derivatives, made from products alone: nothing is divided by gamma,
// and 0^0 = 1.
template <typename T>
struct Powers {
  bool gated;
  size_t chunk;
  const T* power;  // [chunk + 1]  power[n] = gamma^n
  const T* slope;  // [chunk + 1]  slope[n] = n·gamma^(n-1)
  // The same falling, so that rows of the Toeplitz matrix gamma^(i-j), j rising, are contiguous.
  const T* power_falling;
  const T* slope_falling;

  // gamma^(i-j) and its derivative at j ≤ i; a tile's vectors may read on, to no use.
  const T* PowerRow(size_t i) const { return power_falling + (chunk - 1 - i); }
  const T* SlopeRow(size_t i) const { return slope_falling + (chunk - 1 - i); }
};

// Those of all heads, in memory of `size(heads, chunk)` values.
template <typename T>
class HeadPowers {
 public:
  static size_t Size(size_t heads, size_t chunk) { return heads * 2 * (Rising(chunk) + Falling(chunk)); }

  HeadPowers(const T* gamma /*[heads] or null*/, size_t heads, size_t chunk, T* memory)
      : gamma_(gamma), chunk_(chunk), memory_(memory) {
    for (size_t h = 0; h < heads; ++h)
      Fill(gamma ? static_cast<double>(gamma[h]) : 1.0, memory + Size(h, chunk));
  }

  Powers<T> operator[](size_t h) const {
    const T* at = memory_ + Size(h, chunk_);
    const T* falling = at + 2 * Rising(chunk_);
    return {gamma_ != nullptr, chunk_, at, at + Rising(chunk_), falling, falling + Falling(chunk_)};
  }

 private:
  static size_t Rising(size_t chunk) { return Padded<T>(chunk + 1); }
  static size_t Falling(size_t chunk) { return Padded<T>(chunk) + 2 * kLine<T>; }

  void Fill(double gamma, T* at) const {
    T* power = at;
    T* slope = at + Rising(chunk_);
    double p = 1;
    double s = 0;
    for (size_t n = 0; n <= chunk_; ++n) {
      power[n] = Normal(p);
      slope[n] = Normal(s);
      s = s * gamma + p;  // (n+1)·gamma^n = n·gamma^(n-1)·gamma + gamma^n
      p *= gamma;
    }
    T* power_falling = at + 2 * Rising(chunk_);
    T* slope_falling = power_falling + Falling(chunk_);
    for (size_t x = 0; x < Falling(chunk_); ++x) {
      power_falling[x] = x < chunk_ ? power[chunk_ - 1 - x] : T{0};
      slope_falling[x] = x < chunk_ ? slope[chunk_ - 1 - x] : T{0};
    }
  }

  // Powers under the smallest normal number would only cost time.
  static T Normal(double x) {
    return std::abs(x) < static_cast<double>(std::numeric_limits<T>::min()) ? T{0} : static_cast<T>(x);
  }

  const T* gamma_;
  size_t chunk_;
  T* memory_;
};

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
