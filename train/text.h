// Text files as training data, byte for byte: nothing is normalised, stripped or converted.
//
// A data file is a sequence of stories divided by the separator <|endoftext|>, wherever in a line it stands.
// Only text that is given as data is searched for it; a prompt is not. Newlines (LF or CRLF) and blank lines
// around a separator, a byte order mark and bytes that are no UTF-8 are text like any other. Bits per byte
// count these very bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "train/tokenizer_specials.h"

namespace storytape {

inline constexpr std::string_view kStorySeparator = kEndOfText;

struct TextOptions {
  // A file with a NUL byte in its first 64 KB is taken for binary data and refused, unless this is set. (A
  // tokenizer has no trouble with NUL.)
  bool allow_nul = false;
};

// The bytes of the files one after another, as `cat` joins them, so that a text cut into shards anywhere
// comes together again. A file named *.gz is unpacked; it may hold several members. Throws, naming the file,
// if one is missing, a directory, not permitted, empty, binary (see TextOptions), or if a .gz is truncated or
// damaged.
std::string load_text(const std::vector<std::filesystem::path>& paths, const TextOptions& options = {});

// The end of the story that begins at `begin`: after its separator, or the end of the text.
size_t story_end(std::string_view text, size_t begin);

struct TextSplit {
  std::string_view train, held_out;
};

inline constexpr double kHeldOutShare = 0.05;

// Cuts a text in two between stories: after the separator, and the end of its line, that is nearest to where
// `held_out_share` of the bytes remain. train + held_out is the text. A story is text with something beside
// white space. Throws if no cut leaves a story on both sides, and for a share outside (0, 1). Equal stories
// on both sides are not looked for.
TextSplit split_stories(std::string_view text, double held_out_share = kHeldOutShare);

// What a text is made of.
struct TextInfo {
  uint64_t bytes = 0;
  uint64_t stories = 0;  // pieces between separators with something beside white space
  uint64_t separators = 0;
  uint64_t longest_story = 0;  // bytes, without separator
  uint64_t invalid_parts = 0;  // maximal runs of bytes that are no UTF-8: how many U+FFFD a reader would see
  uint64_t crlf_lines = 0;
  bool byte_order_mark = false;
};
TextInfo describe_text(std::string_view text);

}  // namespace storytape
