// The chunkwise face of WKV: a vector of channels walks the tokens of a chunk with its state in registers, then
// the next vector. Included per target. Tags: nn/mixers/wkv.h.
#if defined(STORYTAPE_WKV_CHUNKWISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_WKV_CHUNKWISE_INL_H_
#undef STORYTAPE_WKV_CHUNKWISE_INL_H_
#else
#define STORYTAPE_WKV_CHUNKWISE_INL_H_
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
void WkvChunkwiseForward(D d, const WkvForward<T>& args) {
  const WkvInputs<T>& in = args.in;
  const size_t batch = in.shape.batch, tokens = in.shape.tokens, channels = in.shape.channels;
  const size_t chunks = (tokens + in.chunk - 1) / in.chunk;
  T* between;  // the state between two chunks, where no record is kept
  const Buffer scratch = CutScratch<T>({{&between, 3 * channels}});

  for (size_t b = 0; b < batch; ++b) {
    const auto rows = [&](size_t j) {
      return args.records ? args.records + (b * chunks + j) * wkv_record(in.shape) : between;
    };
    InitialState(d, in, b, rows(0));
    for (size_t j = 0; j < chunks; ++j) {
      const size_t first = j * in.chunk, last = std::min(first + in.chunk, tokens);
      ForVectors(d, channels, [&](auto partial, size_t c, size_t n) HWY_ATTR {
        const auto w = LoadSome<partial>(d, in.w + c, n), u = LoadSome<partial>(d, in.u + c, n);
        auto state = LoadState<partial>(d, rows(j) + c, channels, n);
        for (size_t t = first; t < last; ++t) {
          const size_t at = (b * tokens + t) * channels + c;
          const auto before = state.mean;
          const auto shares =
              WkvStep(d, w, u, LoadSome<partial>(d, in.k + at, n), LoadSome<partial>(d, in.v + at, n), state);
          StoreSome<partial>(d, hn::MulAdd(shares.read, shares.difference, before), args.o + at, n);  // (W7)
        }
        if (j + 1 < chunks) {
          StoreState<partial>(d, state, rows(j + 1) + c, channels, n);
        } else {
          StoreFinalState<partial>(d, state, args.mean + b * channels + c, args.logden + b * channels + c, n);
        }
      });
    }
  }
}

template <class D, typename T = hn::TFromD<D>>
void WkvChunkwiseBackward(D d, const WkvBackward<T>& args) {
  const WkvInputs<T>& in = args.in;
  const size_t batch = in.shape.batch, tokens = in.shape.tokens, channels = in.shape.channels;
  const size_t chunks = (tokens + in.chunk - 1) / in.chunk;
  const size_t padded = Padded<T>(channels), lanes = hn::Lanes(d);
  WkvAdjointRows<T> rows;
  T* kept;  // the shares of a chunk's tokens, one vector of channels
  const Buffer scratch = CutScratch<T>({{&rows.mean, padded},
                                        {&rows.logden, padded},
                                        {&rows.d_w, padded},
                                        {&rows.d_u, padded},
                                        {&kept, std::min(in.chunk, tokens) * kWkvShares * lanes}});
  for (size_t b = 0; b < batch; ++b) {
    StartAdjoint(d, args, b, rows);
    for (size_t j = chunks; j-- > 0;) {
      const size_t first = j * in.chunk, last = std::min(first + in.chunk, tokens);
      const T* record = args.records + (b * chunks + j) * wkv_record(in.shape);
      ForVectors(d, channels, [&](auto partial, size_t c, size_t n) HWY_ATTR {
        const auto w = LoadSome<partial>(d, in.w + c, n), u = LoadSome<partial>(d, in.u + c, n);
        auto state = LoadState<partial>(d, record + c, channels, n);
        for (size_t t = first; t < last; ++t) {
          const size_t at = (b * tokens + t) * channels + c;
          const auto shares =
              WkvStep(d, w, u, LoadSome<partial>(d, in.k + at, n), LoadSome<partial>(d, in.v + at, n), state);
          StoreShares(d, shares, kept + (t - first) * kWkvShares * lanes, lanes);
        }
        // The chunk's own sums for w and u first.
        WkvAdjoint<hn::Vec<D>> adjoint{hn::LoadU(d, rows.mean + c), hn::LoadU(d, rows.logden + c),
                                       hn::Zero(d), hn::Zero(d)};
        for (size_t t = last; t-- > first;) {
          const size_t at = (b * tokens + t) * channels + c;
          const auto shares = LoadShares(d, kept + (t - first) * kWkvShares * lanes, lanes);
          auto d_k = hn::Zero(d), d_v = hn::Zero(d);
          WkvStepBackward(d, shares, LoadSome<partial>(d, args.d_o + at, n), adjoint, d_k, d_v);
          if (args.d_v) StoreGradient<partial>(d, d_v, args.d_v + at, args.add_v, n);
          if (args.d_k) StoreGradient<partial>(d, d_k, args.d_k + at, args.add_k, n);
        }
        hn::StoreU(adjoint.mean, d, rows.mean + c);
        hn::StoreU(adjoint.logden, d, rows.logden + c);
        StoreGradient<false>(d, adjoint.d_w, rows.d_w + c, true, n);
        StoreGradient<false>(d, adjoint.d_u, rows.d_u + c, true, n);
      });
    }
    FinishAdjoint<D>(args, b, rows);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
