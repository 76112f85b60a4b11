#include "train/tokenizer_utf8.h"

#include <algorithm>

namespace storytape {

void Utf8Stream::give_up(std::string& out) {
  // The held bytes are one maximal part, except in half a surrogate pair, where no two bytes can stand
  // together.
  const size_t parts = holds_surrogate() ? held_ : std::min<size_t>(held_, 1);
  if (invalid_ == InvalidUtf8::kKeep) {
    out.append(bytes_.data(), held_);
  } else {
    for (size_t i = 0; i < parts; ++i) out += "\xEF\xBF\xBD";
  }
  held_ = 0;
}

bool Utf8Stream::holds_surrogate() const {
  return held_ >= 2 && static_cast<uint8_t>(bytes_[0]) == 0xED && static_cast<uint8_t>(bytes_[1]) >= 0xA0;
}

// Table 3-7: the second byte's bounds exclude overlong forms and what lies above U+10FFFF. Half a surrogate
// pair (ED A0..BF) is known to be invalid at its second byte as well, but is held to its third, as Python's
// decoder does it.
void Utf8Stream::start(uint8_t byte, std::string& out) {
  bytes_[0] = static_cast<char>(byte);
  held_ = 1;
  low_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
  high_ = byte == 0xF4 ? 0x8F : 0xBF;
  if (byte >= 0xC2 && byte <= 0xDF) {
    wanted_ = 2;
  } else if (byte >= 0xE0 && byte <= 0xEF) {
    wanted_ = 3;
  } else if (byte >= 0xF0 && byte <= 0xF4) {
    wanted_ = 4;
  } else {
    give_up(out);
  }
}

std::string Utf8Stream::push(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + held_);
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    if (held_ > 0 && byte >= low_ && byte <= high_) {
      bytes_[held_++] = c;
      low_ = 0x80;
      high_ = 0xBF;
      if (held_ < wanted_) continue;
      if (!holds_surrogate()) {
        out.append(bytes_.data(), held_);
        held_ = 0;
      }
      give_up(out);
      continue;
    }
    give_up(out);
    if (byte < 0x80) {
      out += c;
    } else {
      start(byte, out);
    }
  }
  return out;
}

std::string Utf8Stream::finish() {
  std::string out;
  give_up(out);
  return out;
}

std::string replace_invalid_utf8(std::string_view bytes) {
  Utf8Stream stream;
  std::string out = stream.push(bytes);
  return out += stream.finish();
}

}  // namespace storytape
