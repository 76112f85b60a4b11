// Characters out of bytes that arrive in pieces.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace storytape {

// What is given out for bytes that are no UTF-8.
enum class InvalidUtf8 {
  kReplace,  // one U+FFFD for each maximal part (Unicode 3.9, table 3-8; what browsers and Python do)
  kKeep,     // the bytes themselves: what is given out is what came in, only cut between characters
};

// Gives out each character as soon as it is whole, and an invalid part as soon as it is known to be one (half
// a surrogate pair, ED A0..BF, with the byte after it). Holds back at most 3 bytes.
class Utf8Stream {
 public:
  explicit Utf8Stream(InvalidUtf8 invalid = InvalidUtf8::kReplace) : invalid_(invalid) {}

  std::string push(std::string_view bytes);
  // What was held back, as an invalid part. The stream then stands at its start again.
  std::string finish();
  size_t held() const { return held_; }

 private:
  void start(uint8_t byte, std::string& out);
  void give_up(std::string& out);
  bool holds_surrogate() const;

  InvalidUtf8 invalid_;
  std::array<char, 4> bytes_{};  // held back
  size_t held_ = 0;
  size_t wanted_ = 0;                 // length of the character that has begun
  uint8_t low_ = 0x80, high_ = 0xBF;  // bounds of the next byte
};

// The text with each maximal invalid part replaced by one U+FFFD.
std::string replace_invalid_utf8(std::string_view bytes);

}  // namespace storytape
