#include "tensor/random.h"

#include <cmath>
#include <numbers>

namespace storytape {

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

uint64_t Random::at(uint64_t position) const {
  // A block gives two numbers; the stream takes the counter's upper half.
  const uint64_t block = position / 2;
  const auto words = philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                             static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                            {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
  const int half = static_cast<int>(position % 2) * 2;
  return uint64_t{words[half]} | uint64_t{words[half + 1]} << 32;
}

uint64_t Random::below(uint64_t n) {
  // The lowest 2^64 mod n values would be drawn once too often; they are drawn again.
  const uint64_t too_often = (0 - n) % n;
  for (;;) {
    const uint64_t x = next();
    if (x >= too_often) return x % n;
  }
}

double Random::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

}  // namespace storytape
