#include "nn/kernels/short_convolution.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/short_convolution.cc"
#include "tensor/simd.h"
#include "tensor/simd_targets.h"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tensor/kernels/lanes-inl.h"
#include "tensor/kernels/math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Tokens whose products are added up before they go to the gradient of a weight.
constexpr size_t kSumRows = 64;

// Row e of X = [state; x] of sequence b; null for zeros.
template <typename T>
HWY_INLINE const T* RowOfX(const ShortConvolutionArgs<T>& a, size_t b, size_t e) {
  const size_t before = a.width - 1;
  if (e >= before) return a.x + (b * a.tokens + e - before) * a.channels;
  return a.state ? a.state + (b * before + e) * a.channels : nullptr;
}

// z_t for one vector of channels from c on.
template <bool kPartial, class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> Convolve(D d, const ShortConvolutionArgs<T>& a, size_t b, size_t t, size_t c,
                               size_t left) {
  auto z = a.bias ? LoadSome<kPartial>(d, a.bias + c, left) : hn::Zero(d);
  for (size_t j = 0; j < a.width; ++j) {
    const T* row = RowOfX(a, b, t + j);
    if (!row) continue;
    z = hn::MulAdd(LoadSome<kPartial>(d, a.w + j * a.channels + c, left),
                   LoadSome<kPartial>(d, row + c, left),
                   z);  // (C1)
  }
  return z;
}

template <typename T>
void ConvolutionForwardT(const ShortConvolutionArgs<T>& a, T* y, T* next_state) {
  const hn::ScalableTag<T> d;
  const size_t before = a.width - 1;
  for (size_t b = 0; b < a.batch; ++b) {
    for (size_t t = 0; t < a.tokens; ++t, y += a.channels) {
      ForVectors(d, a.channels, [&](auto partial, size_t c, size_t left) HWY_ATTR {
        constexpr bool kPartial = decltype(partial)::value;
        const auto z = Convolve<kPartial>(d, a, b, t, c, left);
        StoreSome<kPartial>(d, a.silu ? Silu(d, z) : z, y + c, left);  // (C2)
      });
    }
    // Rows move towards the front, also where next_state is the state.
    for (size_t r = 0; r < before; ++r) {
      const T* from = RowOfX(a, b, a.tokens + r);
      T* to = next_state + (b * before + r) * a.channels;
      if (!from) {
        std::fill_n(to, a.channels, T{0});
      } else if (from != to) {
        std::copy_n(from, a.channels, to);  // (C3)
      }
    }
  }
}

// dz of one sequence.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void GradBeforeSilu(D d, const ShortConvolutionArgs<T>& a, size_t b, const T* dy, T* dz) {
  for (size_t t = 0; t < a.tokens; ++t, dz += a.channels) {
    ForVectors(d, a.channels, [&](auto partial, size_t c, size_t left) HWY_ATTR {
      constexpr bool kPartial = decltype(partial)::value;
      auto g = hn::Zero(d);
      if (dy) g = LoadSome<kPartial>(d, dy + (b * a.tokens + t) * a.channels + c, left);
      if (a.silu) g = hn::Mul(g, SiluGrad(d, Convolve<kPartial>(d, a, b, t, c, left)));  // (C4)
      StoreSome<kPartial>(d, g, dz + c, left);
    });
  }
}

// dX_e of sequence b to a row of dx or dstate.
template <bool kAdd, class D, typename T = hn::TFromD<D>>
HWY_INLINE void GradOfRow(D d, const ShortConvolutionArgs<T>& a, size_t b, size_t e, const T* dz,
                          const T* d_state, T* to) {
  const size_t first = e < a.tokens ? 0 : e - a.tokens + 1;
  const size_t last = std::min(a.width, e + 1);
  ForVectors(d, a.channels, [&](auto partial, size_t c, size_t left) HWY_ATTR {
    constexpr bool kPartial = decltype(partial)::value;
    auto g = hn::Zero(d);
    if (d_state && e >= a.tokens) {
      g = LoadSome<kPartial>(d, d_state + (b * (a.width - 1) + e - a.tokens) * a.channels + c, left);
    }
    for (size_t j = first; j < last; ++j) {
      g = hn::MulAdd(LoadSome<kPartial>(d, a.w + j * a.channels + c, left),
                     LoadSome<kPartial>(d, dz + (e - j) * a.channels + c, left), g);  // (C5)
    }
    if constexpr (kAdd) g = hn::Add(g, LoadSome<kPartial>(d, to + c, left));
    StoreSome<kPartial>(d, g, to + c, left);
  });
}

template <typename T>
HWY_INLINE void GradOfRows(const ShortConvolutionArgs<T>& a, size_t b, size_t first, size_t count,
                           const T* dz, const T* d_state, const ShortConvolutionGrad<T>& grad) {
  const hn::ScalableTag<T> d;
  if (!grad.data) return;
  T* to = grad.data + b * count * a.channels;
  for (size_t e = first; e < first + count; ++e, to += a.channels) {
    grad.add ? GradOfRow<true>(d, a, b, e, dz, d_state, to) : GradOfRow<false>(d, a, b, e, dz, d_state, to);
  }
}

// sum += Σ dz_t ⊙ X_t+j over the tokens [first, last), or Σ dz_t alone for the bias.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void GradOfTap(D d, const ShortConvolutionArgs<T>& a, size_t b, size_t j, bool bias, size_t first,
                          size_t last, const T* dz, T* sum) {
  ForVectors(d, a.channels, [&](auto partial, size_t c, size_t left) HWY_ATTR {
    constexpr bool kPartial = decltype(partial)::value;
    auto s = hn::Zero(d);
    for (size_t t = first; t < last; ++t) {
      const auto g = LoadSome<kPartial>(d, dz + t * a.channels + c, left);
      if (bias) {
        s = hn::Add(s, g);  // (C7)
      } else if (const T* row = RowOfX(a, b, t + j)) {
        s = hn::MulAdd(g, LoadSome<kPartial>(d, row + c, left), s);  // (C6)
      }
    }
    StoreSome<kPartial>(d, hn::Add(s, LoadSome<kPartial>(d, sum + c, left)), sum + c, left);
  });
}

template <typename T>
void ConvolutionBackwardT(const ShortConvolutionArgs<T>& a, const T* dy, const T* d_state, T* dz,
                          const ShortConvolutionGrads<T>& grads) {
  const hn::ScalableTag<T> d;
  const size_t before = a.width - 1;
  for (size_t b = 0; b < a.batch; ++b) {
    GradBeforeSilu(d, a, b, dy, dz);
    GradOfRows(a, b, before, a.tokens, dz, d_state, grads.x);
    GradOfRows(a, b, size_t{0}, before, dz, d_state, grads.state);
    for (size_t t = 0; t < a.tokens; t += kSumRows) {
      const size_t end = std::min(a.tokens, t + kSumRows);
      for (size_t j = 0; grads.w && j < a.width; ++j) {
        GradOfTap(d, a, b, j, false, t, end, dz, grads.w + j * a.channels);
      }
      if (grads.bias) GradOfTap(d, a, b, 0, true, t, end, dz, grads.bias);
    }
  }
}

void ConvolutionForwardF(const ShortConvolutionArgs<float>& a, float* y, float* next_state) {
  ConvolutionForwardT(a, y, next_state);
}
void ConvolutionForwardD(const ShortConvolutionArgs<double>& a, double* y, double* next_state) {
  ConvolutionForwardT(a, y, next_state);
}
void ConvolutionBackwardF(const ShortConvolutionArgs<float>& a, const float* dy, const float* d_state,
                          float* dz, const ShortConvolutionGrads<float>& grads) {
  ConvolutionBackwardT(a, dy, d_state, dz, grads);
}
void ConvolutionBackwardD(const ShortConvolutionArgs<double>& a, const double* dy, const double* d_state,
                          double* dz, const ShortConvolutionGrads<double>& grads) {
  ConvolutionBackwardT(a, dy, d_state, dz, grads);
}

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace storytape {
namespace {
HWY_EXPORT(ConvolutionForwardF);
HWY_EXPORT(ConvolutionForwardD);
HWY_EXPORT(ConvolutionBackwardF);
HWY_EXPORT(ConvolutionBackwardD);
}  // namespace

template <>
void short_convolution_forward(const ShortConvolutionArgs<float>& args, float* y, float* next_state) {
  SIMD_DISPATCH(ConvolutionForwardF)(args, y, next_state);
}
template <>
void short_convolution_forward(const ShortConvolutionArgs<double>& args, double* y, double* next_state) {
  SIMD_DISPATCH(ConvolutionForwardD)(args, y, next_state);
}
template <>
void short_convolution_backward(const ShortConvolutionArgs<float>& args, const float* dy,
                                const float* d_state, float* dz, const ShortConvolutionGrads<float>& grads) {
  SIMD_DISPATCH(ConvolutionBackwardF)(args, dy, d_state, dz, grads);
}
template <>
void short_convolution_backward(const ShortConvolutionArgs<double>& args, const double* dy,
                                const double* d_state, double* dz,
                                const ShortConvolutionGrads<double>& grads) {
  SIMD_DISPATCH(ConvolutionBackwardD)(args, dy, d_state, dz, grads);
}

}  // namespace storytape
#endif  // HWY_ONCE
