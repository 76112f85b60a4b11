#include "tensor/peak.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "tensor/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/kernels/peak.cc"
#include "tensor/simd.h"
#include "tensor/simd_targets.h"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// FLOPs of `rounds` rounds: 12 chains hide the latency of the multiply-add on every core so far (two units ×
// up to six cycles), and leave registers for the factors.
double Chains(size_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  constexpr size_t kChains = 12;
  hn::Vec<decltype(d)> sums[kChains];
  HWY_UNROLL(12) for (size_t i = 0; i < kChains; ++i) sums[i] = hn::Set(d, static_cast<float>(i));
  const auto factor = hn::Set(d, 0.999f);
  const auto term = hn::Set(d, 0.001f);
  for (size_t round = 0; round < rounds; ++round) {
    HWY_UNROLL(12) for (size_t i = 0; i < kChains; ++i) sums[i] = hn::MulAdd(sums[i], factor, term);
  }
  auto total = sums[0];
  HWY_UNROLL(12) for (size_t i = 1; i < kChains; ++i) total = hn::Add(total, sums[i]);
  *sink = hn::GetLane(hn::SumOfLanes(d, total));
  return 2.0 * static_cast<double>(kChains * hn::Lanes(d) * rounds);
}

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace storytape {
namespace {
HWY_EXPORT(Chains);
}  // namespace

double measure_fma_peak(size_t threads, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  ThreadPool pool(threads);
  std::atomic<float> keep{0};
  const size_t rounds = 400000;
  double best = 0;
  const auto begin = Clock::now();
  do {
    std::atomic<double> flops{0};
    const auto start = Clock::now();
    pool.run_on_each([&](size_t) {
      float sink = 0;
      const double mine = SIMD_DISPATCH(Chains)(rounds, &sink);
      keep.store(sink, std::memory_order_relaxed);
      double sum = flops.load();
      while (!flops.compare_exchange_weak(sum, sum + mine)) {
      }
    });
    best = std::max(best, flops.load() / since(start) / 1e9);
  } while (since(begin) < seconds);
  return best;
}

}  // namespace storytape
#endif  // HWY_ONCE
