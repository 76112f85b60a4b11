// All tokens by their first bytes: which is the longest token at the start of a text?
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace storytape {

// A trie as a double array: the child of node n for byte c is the slot base(n) + c, if n is that slot's
// parent.
class BpeTrie {
 public:
  struct Match {
    int32_t token = -1;  // -1 if no token begins the text
    size_t steps = 0;    // bytes looked at
  };

  BpeTrie() : BpeTrie(std::vector<std::pair<std::string_view, int32_t>>{}) {}
  // Tokens as bytes and id. REQUIRES: no bytes stand twice, none are empty.
  explicit BpeTrie(std::vector<std::pair<std::string_view, int32_t>> tokens);

  // The longest token that begins the text.
  Match longest(std::string_view text) const {
    Match match;
    uint32_t node = 0;
    for (const char c : text) {
      ++match.steps;
      const uint32_t child = nodes_[node].base + static_cast<uint8_t>(c);
      if (nodes_[child].parent != node) break;
      node = child;
      if (nodes_[node].token >= 0) match.token = nodes_[node].token;
    }
    return match;
  }

 private:
  static constexpr uint32_t kNone = 0xFFFFFFFF;
  struct Node {
    uint32_t base = 0;
    uint32_t parent = kNone;
    int32_t token = -1;
  };

  uint32_t free_from(uint32_t slot);
  uint32_t place(const std::vector<uint8_t>& children);
  void reserve(size_t slots);

  std::vector<Node> nodes_;
  std::vector<uint32_t> free_from_;  // while building: where to look for the next free slot
};

}  // namespace storytape
