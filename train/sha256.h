// SHA-256 (FIPS 180-4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace storytape {

// The digest of bytes that arrive in pieces, cut anywhere.
class Sha256 {
 public:
  void update(const void* data, size_t bytes);
  // The digest of everything so far, 64 lower-case digits; more may follow.
  std::string hex() const;

 private:
  static constexpr size_t kBlock = 64;

  void compress(const uint8_t* block /*[kBlock]*/);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, kBlock> pending_{};  // the begun block: its first bytes_ % kBlock bytes
  uint64_t bytes_ = 0;
};

std::string sha256_hex(std::string_view bytes);

}  // namespace storytape
