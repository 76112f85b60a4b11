// The rules of a tokenizer and what they say literally.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "train/bpe_alphabet.h"

namespace storytape {

inline constexpr uint32_t kNoRank = 0xFFFFFFFF;

// Looks up the rule of a pair of tokens: a hash table in one flat array behind a small filter, because nearly
// all pairs that are asked for have no rule.
class BpeRules {
 public:
  struct Rule {
    uint32_t rank = kNoRank;
    int32_t result = -1;
  };

  BpeRules() : BpeRules(std::span<const BpeMerge>{}) {}
  // Ranks are places in the list. REQUIRES: no pair stands twice, ids ≥ 0.
  explicit BpeRules(std::span<const BpeMerge> merges);

  // Rank kNoRank if the pair has no rule.
  Rule find(int32_t left, int32_t right) const {
    const uint64_t pair = key(left, right), hash = pair * 0x9E3779B97F4A7C15u;
    const uint64_t bit = hash >> filter_shift_;
    if ((filter_[bit >> 6] >> (bit & 63) & 1) == 0) return {};
    for (uint64_t slot = hash >> shift_;; slot = (slot + 1) & (slots_.size() - 1)) {
      if (slots_[slot].pair == pair) return slots_[slot].rule;
      if (slots_[slot].pair == kFree) return {};
    }
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  struct Slot {
    uint64_t pair = kFree;
    Rule rule;
  };
  static uint64_t key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }

  std::vector<Slot> slots_;
  std::vector<uint64_t> filter_;
  int shift_ = 0;
  int filter_shift_ = 0;
};

// Appends the ids of a piece, by definition: of all rules that apply anywhere the oldest, of its places the
// leftmost, one at a time, until none applies. Right for any rules; time n log n, memory about 30 bytes per
// byte. Throws if the piece has 2^32 bytes or more.
void merge_by_rank(const BpeRules& rules, const std::array<int32_t, 256>& byte_ids, std::string_view piece,
                   std::vector<int32_t>& ids);

}  // namespace storytape
