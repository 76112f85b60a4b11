// The instruction set that the kernels use, chosen once per process for the CPU at hand.
#pragma once

#include <atomic>
#include <string>
#include <vector>

namespace storytape {

// Names of the instruction sets that are compiled in and that this CPU has, best first: of "AVX3" (AVX-512),
// "AVX2", "SSE4", "SSE2", "SCALAR", "EMU128" on x86; Highway's names elsewhere. Never empty.
std::vector<std::string> simd_targets();

// The one in use.
std::string simd_target();

// Makes the kernels use `name`, one of simd_targets(); "" takes the best again. Throws UsageError for another
// name. Not while kernels run on other threads.
void force_simd_target(const std::string& name);

namespace internal {
extern std::atomic<bool> simd_chosen;
void choose_simd();
}  // namespace internal

// Takes the choice from the environment variable STORYTAPE_SIMD (a name of simd_targets(); unset or empty:
// the best), the first time it is called. Throws UsageError for a name that isn't one of them.
inline void prepare_simd() {
  if (!internal::simd_chosen.load(std::memory_order_acquire)) internal::choose_simd();
}

}  // namespace storytape

// In a kernel's .cc, after HWY_EXPORT(Function): the version of Function for the instruction set in use. To
// be used in place of HWY_DYNAMIC_DISPATCH, which knows nothing of STORYTAPE_SIMD.
#define SIMD_DISPATCH(Function) (::storytape::prepare_simd(), HWY_DYNAMIC_DISPATCH(Function))
