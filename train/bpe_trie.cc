#include "train/bpe_trie.h"

#include <algorithm>
#include <deque>

namespace storytape {

void BpeTrie::reserve(size_t slots) {
  nodes_.resize(slots);
  for (size_t slot = free_from_.size(); slot <= slots; ++slot)
    free_from_.push_back(static_cast<uint32_t>(slot));
}

// The first free slot at or after `slot`; the paths that lead there get shorter with every walk.
uint32_t BpeTrie::free_from(uint32_t slot) {
  while (free_from_[slot] != slot) slot = free_from_[slot] = free_from_[free_from_[slot]];
  return slot;
}

// A base above 0, where the root stands, that puts all children on free slots. The first fit is looked for a
// while only, so that building takes linear time.
uint32_t BpeTrie::place(const std::vector<uint8_t>& children) {
  constexpr int kTries = 200;
  const auto end = static_cast<uint32_t>(nodes_.size());
  uint32_t slot = free_from(children[0] + 1);
  for (int tries = 0; tries < kTries && slot < end; ++tries) {
    const uint32_t base = slot - children[0];
    const bool fits = std::all_of(children.begin(), children.end(), [&](uint8_t c) {
      return base + c >= end || nodes_[base + c].parent == kNone;
    });
    if (fits) return base;
    slot = free_from(slot + 1);
  }
  return end;
}

BpeTrie::BpeTrie(std::vector<std::pair<std::string_view, int32_t>> tokens) {
  std::sort(tokens.begin(), tokens.end());
  reserve(257);

  // Nodes level by level, so that the upper levels, which every look-up passes, lie together.
  struct Range {
    uint32_t node;
    size_t begin, end, depth;
  };
  std::deque<Range> open{{0, 0, tokens.size(), 0}};
  std::vector<uint8_t> children;
  std::vector<size_t> begins;
  for (; !open.empty(); open.pop_front()) {
    Range range = open.front();
    if (range.begin < range.end && tokens[range.begin].first.size() == range.depth) {
      nodes_[range.node].token = tokens[range.begin++].second;
    }
    children.clear();
    begins.clear();
    for (size_t i = range.begin; i < range.end; ++i) {
      const auto c = static_cast<uint8_t>(tokens[i].first[range.depth]);
      if (!children.empty() && children.back() == c) continue;
      children.push_back(c);
      begins.push_back(i);
    }
    if (children.empty()) continue;
    begins.push_back(range.end);
    const uint32_t base = place(children);
    if (base + 257 > nodes_.size()) reserve(base + 257);
    nodes_[range.node].base = base;
    for (size_t i = 0; i < children.size(); ++i) {
      const uint32_t child = base + children[i];
      nodes_[child].parent = range.node;
      free_from_[child] = child + 1;
      open.push_back({child, begins[i], begins[i + 1], range.depth + 1});
    }
  }
  free_from_ = {};
}

}  // namespace storytape
