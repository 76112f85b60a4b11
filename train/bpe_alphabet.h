// The letters of byte-level BPE: in a tokenizer.json each byte is written as one printable character, as
// GPT-2 did first.
//
// 0x21..0x7E, 0xA1..0xAC and 0xAE..0xFF stand for themselves as code points; the other 68 bytes, in rising
// order, are U+0100..U+0143, so that a space is U+0120 and a newline U+010A. The order of the letters decides
// ties in training.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace storytape {

// One rule of a tokenizer: the tokens `left` and `right`, side by side, become the token `result`. Its rank
// (age) is its place in the list of rules.
struct BpeMerge {
  int32_t left = 0;
  int32_t right = 0;
  int32_t result = 0;
  bool operator==(const BpeMerge&) const = default;
};

// The bytes in the order of their letters' code points: '!' first, the other printable ones, then the rest.
const std::array<uint8_t, 256>& bytes_by_letter();

// The letters of a token's bytes, in UTF-8.
std::string bytes_to_letters(std::string_view bytes);

// The bytes of a token written in letters; nothing if a character is no letter. REQUIRES: valid UTF-8.
std::optional<std::string> letters_to_bytes(std::string_view letters);

}  // namespace storytape
