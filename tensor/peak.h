// The machine's arithmetic limit, as the yardstick of every speed that is reported.
#pragma once

#include <cstddef>
#include <string>

namespace storytape {

// Float multiply-adds per second × 2, in GFLOP/s, that `threads` threads reach together with independent
// chains in registers, on the SIMD target in use. The best of several runs within about `seconds`.
double measure_fma_peak(size_t threads, double seconds = 0.5);

}  // namespace storytape
