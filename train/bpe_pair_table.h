// Counts of pairs of tokens during training: a hash table in one flat array.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace storytape {

// Two tokens side by side, as one number that sorts by the left token and then by the right one.
using BpePair = uint64_t;

inline BpePair bpe_pair(uint32_t left, uint32_t right) {
  return uint64_t{left} << 32 | right;
}
inline uint32_t left_of(BpePair pair) {
  return static_cast<uint32_t>(pair >> 32);
}
inline uint32_t right_of(BpePair pair) {
  return static_cast<uint32_t>(pair);
}

// REQUIRES: no pair of two tokens 0xFFFFFFFF.
class BpePairTable {
 public:
  struct Entry {
    BpePair pair = kFree;
    int64_t count = 0;   // places now, times the weights of their stories
    uint32_t begin = 0;  // its places in the list of the step that made the pair
    uint32_t places = 0;
  };

  BpePairTable() : entries_(size_t{1} << kFirstBits) {}

  // Adds a pair that is not in the table.
  void insert(const Entry& entry) {
    if (2 * (size_ + 1) > entries_.size()) grow();
    entries_[slot_of(entry.pair)] = entry;
    ++size_;
  }

  // Null if the pair is not in the table. Valid until the next insert.
  Entry* find(BpePair pair) {
    Entry& entry = entries_[slot_of(pair)];
    return entry.pair == pair ? &entry : nullptr;
  }

 private:
  static constexpr BpePair kFree = ~uint64_t{0};
  static constexpr int kFirstBits = 12;

  size_t slot_of(BpePair pair) const {
    const size_t mask = entries_.size() - 1;
    size_t slot = pair * 0x9E3779B97F4A7C15u >> shift_;
    while (entries_[slot].pair != pair && entries_[slot].pair != kFree) slot = (slot + 1) & mask;
    return slot;
  }

  void grow() {
    std::vector<Entry> old(entries_.size() * 2);
    old.swap(entries_);
    --shift_;
    for (const Entry& entry : old) {
      if (entry.pair != kFree) entries_[slot_of(entry.pair)] = entry;
    }
  }

  std::vector<Entry> entries_;
  size_t size_ = 0;
  int shift_ = 64 - kFirstBits;
};

}  // namespace storytape
