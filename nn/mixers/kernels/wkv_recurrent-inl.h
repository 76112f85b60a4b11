// The recurrent face of WKV: the definition token by token, all channels of a token before the next. Included
// per target. Tags: nn/mixers/wkv.h.
#if defined(STORYTAPE_WKV_RECURRENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_WKV_RECURRENT_INL_H_
#undef STORYTAPE_WKV_RECURRENT_INL_H_
#else
#define STORYTAPE_WKV_RECURRENT_INL_H_
#endif

#include "tensor/simd_targets.h"
// After simd_targets.h.
#include "hwy/highway.h"
#include "nn/mixers/kernels/wkv-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D, typename T = hn::TFromD<D>>
void WkvRecurrentForward(D d, const WkvForward<T>& args) {
  const WkvInputs<T>& in = args.in;
  const size_t batch = in.shape.batch, tokens = in.shape.tokens, channels = in.shape.channels;
  T* rows;
  const Buffer scratch = CutScratch<T>({{&rows, 3 * channels}});
  for (size_t b = 0; b < batch; ++b) {
    InitialState(d, in, b, rows);
    for (size_t t = 0; t < tokens; ++t) {
      const size_t token = (b * tokens + t) * channels;
      ForVectors(d, channels, [&](auto partial, size_t c, size_t n) HWY_ATTR {
        auto state = LoadState<partial>(d, rows + c, channels, n);
        const auto before = state.mean;
        const auto shares = WkvStep(d, LoadSome<partial>(d, in.w + c, n), LoadSome<partial>(d, in.u + c, n),
                                    LoadSome<partial>(d, in.k + token + c, n),
                                    LoadSome<partial>(d, in.v + token + c, n), state);
        StoreSome<partial>(d, hn::MulAdd(shares.read, shares.difference, before), args.o + token + c,
                           n);  // (W7)
        StoreState<partial>(d, state, rows + c, channels, n);
      });
    }
    ForVectors(d, channels, [&](auto partial, size_t c, size_t n) HWY_ATTR {
      StoreFinalState<partial>(d, LoadState<partial>(d, rows + c, channels, n), args.mean + b * channels + c,
                               args.logden + b * channels + c, n);
    });
  }
}

// Forward once more, each token's shares kept, then back.
template <class D, typename T = hn::TFromD<D>>
void WkvRecurrentBackward(D d, const WkvBackward<T>& args) {
  constexpr size_t kBlock =
      64;  // tokens whose gradients of w and u are added up before the sum of all takes them
  const WkvInputs<T>& in = args.in;
  const size_t batch = in.shape.batch, tokens = in.shape.tokens, channels = in.shape.channels;
  const size_t padded = Padded<T>(channels);
  WkvAdjointRows<T> rows;
  T *state_rows, *kept, *block_w, *block_u;
  const Buffer scratch = CutScratch<T>({{&rows.mean, padded},
                                        {&rows.logden, padded},
                                        {&rows.d_w, padded},
                                        {&rows.d_u, padded},
                                        {&block_w, padded},
                                        {&block_u, padded},
                                        {&state_rows, 3 * channels},
                                        {&kept, tokens * kWkvShares * padded}});
  for (size_t b = 0; b < batch; ++b) {
    InitialState(d, in, b, state_rows);
    for (size_t t = 0; t < tokens; ++t) {
      const size_t token = (b * tokens + t) * channels;
      ForVectors(d, channels, [&](auto partial, size_t c, size_t n) HWY_ATTR {
        auto state = LoadState<partial>(d, state_rows + c, channels, n);
        const auto shares = WkvStep(d, LoadSome<partial>(d, in.w + c, n), LoadSome<partial>(d, in.u + c, n),
                                    LoadSome<partial>(d, in.k + token + c, n),
                                    LoadSome<partial>(d, in.v + token + c, n), state);
        StoreShares(d, shares, kept + t * kWkvShares * padded + c, padded);
        StoreState<partial>(d, state, state_rows + c, channels, n);
      });
    }
    StartAdjoint(d, args, b, rows);
    ZeroArray(d, block_w, padded);
    ZeroArray(d, block_u, padded);
    for (size_t t = tokens; t-- > 0;) {
      const size_t token = (b * tokens + t) * channels;
      ForVectors(d, channels, [&](auto partial, size_t c, size_t n) HWY_ATTR {
        const auto shares = LoadShares(d, kept + t * kWkvShares * padded + c, padded);
        WkvAdjoint<hn::Vec<D>> adjoint{hn::LoadU(d, rows.mean + c), hn::LoadU(d, rows.logden + c),
                                       hn::LoadU(d, block_w + c), hn::LoadU(d, block_u + c)};
        auto d_k = hn::Zero(d), d_v = hn::Zero(d);
        WkvStepBackward(d, shares, LoadSome<partial>(d, args.d_o + token + c, n), adjoint, d_k, d_v);
        if (args.d_v) StoreGradient<partial>(d, d_v, args.d_v + token + c, args.add_v, n);
        if (args.d_k) StoreGradient<partial>(d, d_k, args.d_k + token + c, args.add_k, n);
        hn::StoreU(adjoint.mean, d, rows.mean + c);
        hn::StoreU(adjoint.logden, d, rows.logden + c);
        hn::StoreU(adjoint.d_w, d, block_w + c);
        hn::StoreU(adjoint.d_u, d, block_u + c);
      });
      if (t % kBlock > 0) continue;
      AddScaled(d, T{1}, block_w, rows.d_w, padded);
      AddScaled(d, T{1}, block_u, rows.d_u, padded);
      ZeroArray(d, block_w, padded);
      ZeroArray(d, block_u, padded);
    }
    FinishAdjoint<D>(args, b, rows);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
