// Counter-based random numbers (Philox4x32-10; Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3",
// 2011).
//
// The n-th number of a stream is a pure function of (seed, stream, n): no state is shared between threads,
// and a stopped run goes on from its counter alone. Integers are the same on every compiler; a double is one
// of 2^53 equally spaced values in [0, 1), so it is the same too.
#pragma once

#include <array>
#include <cstdint>

namespace storytape {

// One Philox block: four 32-bit words from a 128-bit counter and a 64-bit key.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

class Random {
 public:
  explicit Random(uint64_t seed, uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  uint64_t next() { return at(counter_++); }
  // The number at a position of this stream, whatever was drawn before.
  uint64_t at(uint64_t position) const;

  // Uniform in [0, 1), a multiple of 2^-53.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // Uniform in {0, ..., n-1} without bias. REQUIRES: n > 0.
  uint64_t below(uint64_t n);
  // Standard normal (Box-Muller; to the rounding of the C library's log, sqrt and cos).
  double normal();

  uint64_t seed() const { return seed_; }
  uint64_t stream() const { return stream_; }
  uint64_t position() const { return counter_; }
  void seek(uint64_t position) { counter_ = position; }

 private:
  uint64_t seed_;
  uint64_t stream_;
  uint64_t counter_ = 0;
};

}  // namespace storytape
