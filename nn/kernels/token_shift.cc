#include "nn/kernels/token_shift.h"

#include <algorithm>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/token_shift.cc"
#include "tensor/simd.h"
#include "tensor/simd_targets.h"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tensor/kernels/lanes-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Channels [c, c + n) of the token before token t of sequence b.
template <bool kPartial, class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> TokenBefore(D d, const TokenShiftInputs<T>& in, size_t b, size_t t, size_t c,
                                  size_t n) {
  if (t > 0) return LoadSome<kPartial>(d, in.x + (b * in.tokens + t - 1) * in.channels + c, n);
  return in.x_prev ? LoadSome<kPartial>(d, in.x_prev + b * in.channels + c, n) : hn::Zero(d);
}

template <typename T>
void ForwardT(const TokenShiftInputs<T>& in, T* y) {
  const hn::ScalableTag<T> d;
  for (size_t b = 0; b < in.batch; ++b) {
    for (size_t t = 0; t < in.tokens; ++t) {
      const size_t token = (b * in.tokens + t) * in.channels;
      ForVectors(d, in.channels, [&](auto partial, size_t c, size_t n) HWY_ATTR {
        const auto mu = LoadSome<partial>(d, in.mu + c, n);
        const auto before = TokenBefore<partial>(d, in, b, t, c, n);
        const auto rest = hn::Sub(hn::Set(d, T{1}), mu);
        const auto x = LoadSome<partial>(d, in.x + token + c, n);
        StoreSome<partial>(d, hn::MulAdd(mu, x, hn::Mul(rest, before)), y + token + c, n);  // (T1)
      });
    }
  }
}

template <typename T>
void BackwardT(const TokenShiftBackward<T>& args) {
  constexpr size_t kBlock = 64;  // tokens whose part of dmu is summed before it joins the rest
  const hn::ScalableTag<T> d;
  const TokenShiftInputs<T>& in = args.in;
  if (args.d_mu) std::fill_n(args.d_mu, in.channels, T{0});
  for (size_t b = 0; b < in.batch; ++b) {
    for (size_t first = 0; first < in.tokens; first += kBlock) {
      const size_t last = std::min(first + kBlock, in.tokens);
      ForVectors(d, in.channels, [&](auto partial, size_t c, size_t n) HWY_ATTR {
        const auto mu = LoadSome<partial>(d, in.mu + c, n);
        const auto rest = hn::Sub(hn::Set(d, T{1}), mu);
        auto d_mu = hn::Zero(d);
        for (size_t t = first; t < last; ++t) {
          const size_t at = (b * in.tokens + t) * in.channels + c;
          const auto d_y = LoadSome<partial>(d, args.d_y + at, n);
          const auto before = TokenBefore<partial>(d, in, b, t, c, n);
          d_mu = hn::MulAdd(d_y, hn::Sub(LoadSome<partial>(d, in.x + at, n), before), d_mu);  // (T5)
          auto d_x = hn::Mul(mu, d_y);                                                        // (T3)
          if (t + 1 < in.tokens) {
            d_x = hn::MulAdd(rest, LoadSome<partial>(d, args.d_y + at + in.channels, n), d_x);
          } else if (args.d_last) {
            d_x = hn::Add(d_x, LoadSome<partial>(d, args.d_last + b * in.channels + c, n));
          }
          if (args.d_x) {
            if (args.add_x) d_x = hn::Add(d_x, LoadSome<partial>(d, args.d_x + at, n));
            StoreSome<partial>(d, d_x, args.d_x + at, n);
          }
          if (t == 0 && args.d_x_prev) {
            StoreSome<partial>(d, hn::Mul(rest, d_y), args.d_x_prev + b * in.channels + c, n);  // (T4)
          }
        }
        if (args.d_mu) {
          StoreSome<partial>(d, hn::Add(d_mu, LoadSome<partial>(d, args.d_mu + c, n)), args.d_mu + c, n);
        }
      });
    }
  }
}

void ForwardF(const TokenShiftInputs<float>& in, float* y) {
  ForwardT(in, y);
}
void ForwardD(const TokenShiftInputs<double>& in, double* y) {
  ForwardT(in, y);
}
void BackwardF(const TokenShiftBackward<float>& args) {
  BackwardT(args);
}
void BackwardD(const TokenShiftBackward<double>& args) {
  BackwardT(args);
}

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace storytape {
namespace {
HWY_EXPORT(ForwardF);
HWY_EXPORT(ForwardD);
HWY_EXPORT(BackwardF);
HWY_EXPORT(BackwardD);
}  // namespace

template <class T>
void token_shift_forward(const TokenShiftInputs<T>& in, T* y) {
  if constexpr (std::is_same_v<T, float>) {
    SIMD_DISPATCH(ForwardF)(in, y);
  } else {
    SIMD_DISPATCH(ForwardD)(in, y);
  }
}
template <class T>
void token_shift_backward(const TokenShiftBackward<T>& args) {
  if constexpr (std::is_same_v<T, float>) {
    SIMD_DISPATCH(BackwardF)(args);
  } else {
    SIMD_DISPATCH(BackwardD)(args);
  }
}
template void token_shift_forward(const TokenShiftInputs<float>&, float*);
template void token_shift_forward(const TokenShiftInputs<double>&, double*);
template void token_shift_backward(const TokenShiftBackward<float>&);
template void token_shift_backward(const TokenShiftBackward<double>&);

}  // namespace storytape
#endif  // HWY_ONCE
