#include "train/bpe_rules.h"

#include <bit>
#include <functional>
#include <queue>

#include "tensor/error.h"

namespace storytape {

BpeRules::BpeRules(std::span<const BpeMerge> merges) {
  // At most half of the slots are taken, and one bit in sixteen of the filter.
  const int bits = static_cast<int>(std::bit_width(merges.size())) + 1;
  slots_.resize(size_t{1} << bits);
  shift_ = 64 - bits;
  const int filter_bits = bits + 3 < 6 ? 6 : bits + 3;
  filter_.resize((size_t{1} << filter_bits) / 64);
  filter_shift_ = 64 - filter_bits;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t pair = key(merges[rank].left, merges[rank].right), hash = pair * 0x9E3779B97F4A7C15u;
    const uint64_t bit = hash >> filter_shift_;
    filter_[bit >> 6] |= uint64_t{1} << (bit & 63);
    uint64_t slot = hash >> shift_;
    while (slots_[slot].pair != kFree) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = {pair, {static_cast<uint32_t>(rank), merges[rank].result}};
  }
}

void merge_by_rank(const BpeRules& rules, const std::array<int32_t, 256>& byte_ids, std::string_view piece,
                   std::vector<int32_t>& ids) {
  if (piece.size() >= kNoRank) {
    fail("a piece of text to encode has {} bytes, wanted less than 4 GiB", piece.size());
  }
  const auto size = static_cast<uint32_t>(piece.size());
  std::vector<int32_t> token(size);
  std::vector<uint32_t> next(size), previous(size);  // `size` at the end; the first has none
  for (uint32_t p = 0; p < size; ++p) {
    token[p] = byte_ids[static_cast<uint8_t>(piece[p])];
    next[p] = p + 1;
    previous[p] = p - 1;
  }

  // Rank and place in one number, so that the smallest is the oldest rule at its leftmost place.
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> queue;
  const auto offer = [&](uint32_t left, uint32_t right) {
    const BpeRules::Rule rule = rules.find(token[left], token[right]);
    if (rule.rank != kNoRank) queue.push(uint64_t{rule.rank} << 32 | left);
  };
  for (uint32_t p = 0; p + 1 < size; ++p) offer(p, p + 1);
  while (!queue.empty()) {
    const auto rank = static_cast<uint32_t>(queue.top() >> 32), left = static_cast<uint32_t>(queue.top());
    queue.pop();
    if (token[left] < 0 || next[left] == size) continue;  // merged into another since
    const uint32_t right = next[left];
    const BpeRules::Rule rule = rules.find(token[left], token[right]);
    if (rule.rank != rank) continue;
    token[left] = rule.result;
    token[right] = -1;
    next[left] = next[right];
    if (next[left] != size) {
      previous[next[left]] = left;
      offer(left, next[left]);
    }
    if (left != 0) offer(previous[left], left);
  }
  for (uint32_t p = 0; p < size; p = next[p]) ids.push_back(token[p]);
}

}  // namespace storytape
