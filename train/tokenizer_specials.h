// Special tokens: texts that are one id, never made by merging.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace storytape {

inline constexpr std::string_view kEndOfText = "<|endoftext|>";

// The special tokens of StoryTokenizer (g2c.bpe version 2), ids 256..263.
inline constexpr std::array<std::string_view, 8> kStorySpecials = {
    kEndOfText,      "<|system|>",      "<|user|>", "<|assistant|>",
    "<|tool_call|>", "<|tool_result|>", "<|end|>",  "<|pad|>"};

// Finds special tokens in a text: the leftmost, and of those that start there the longest.
class SpecialFinder {
 public:
  struct Found {
    size_t begin = 0;   // the length of the text if there is none
    size_t length = 0;  // 0 if there is none
    int index = -1;     // in the list given to the constructor
  };

  SpecialFinder() = default;
  // REQUIRES: no text is empty.
  explicit SpecialFinder(std::vector<std::string> specials);

  // The first special that starts at `from` or later.
  Found find(std::string_view text, size_t from = 0) const;

 private:
  std::vector<std::string> specials_;
  std::vector<int> longest_first_;
  std::array<bool, 256> starts_{};
  int only_start_ = -1;  // the first byte of all, if they share it
};

// True if two different places of these texts can overlap: one stands within another, or one begins with
// another's end.
bool specials_can_overlap(const std::vector<std::string>& specials);

}  // namespace storytape
