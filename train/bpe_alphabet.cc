#include "train/bpe_alphabet.h"

#include <algorithm>
#include <numeric>

namespace storytape {
namespace {

constexpr int kLetters = 0x144;  // one past the last letter

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<int, 256> letter{};
  std::array<int, kLetters> byte{};
  std::array<uint8_t, 256> by_letter{};
  std::array<std::string, 256> utf8;

  Alphabet() {
    byte.fill(-1);
    int next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const int code = stands_for_itself(b) ? b : next++;
      letter[b] = code;
      byte[code] = b;
      if (code < 0x80) {
        utf8[b] = {static_cast<char>(code)};
      } else {
        utf8[b] = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
      }
    }
    std::iota(by_letter.begin(), by_letter.end(), uint8_t{0});
    std::sort(by_letter.begin(), by_letter.end(),
              [&](uint8_t a, uint8_t b) { return letter[a] < letter[b]; });
  }
};

const Alphabet& alphabet() {
  static const Alphabet the_alphabet;
  return the_alphabet;
}

}  // namespace

const std::array<uint8_t, 256>& bytes_by_letter() {
  return alphabet().by_letter;
}

std::string bytes_to_letters(std::string_view bytes) {
  std::string letters;
  letters.reserve(bytes.size() * 2);
  for (const char c : bytes) letters += alphabet().utf8[static_cast<uint8_t>(c)];
  return letters;
}

std::optional<std::string> letters_to_bytes(std::string_view letters) {
  std::string bytes;
  bytes.reserve(letters.size());
  for (size_t i = 0; i < letters.size(); ++i) {
    int code = static_cast<uint8_t>(letters[i]);
    if (code >= 0x80) {
      // All letters have at most two bytes in UTF-8.
      if (code >= 0xE0 || i + 1 == letters.size()) return std::nullopt;
      code = (code & 0x1F) << 6 | (static_cast<uint8_t>(letters[++i]) & 0x3F);
    }
    if (code >= kLetters || alphabet().byte[code] < 0) return std::nullopt;
    bytes += static_cast<char>(alphabet().byte[code]);
  }
  return bytes;
}

}  // namespace storytape
