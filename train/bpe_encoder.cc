#include "train/bpe_encoder.h"

#include <algorithm>
#include <utility>

namespace storytape {
namespace {

// The search gives up beyond this: stories take about three, and merge_by_rank costs as much as a few dozen.
constexpr size_t kStepsPerByte = 64;

}  // namespace

BpeEncoder::BpeEncoder(const std::array<int32_t, 256>& byte_ids, std::span<const BpeMerge> merges,
                       const std::vector<std::string>& tokens)
    : byte_ids_(byte_ids), rules_(merges), can_search_(true), origins_(tokens.size()) {
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const BpeMerge& merge = merges[rank];
    Origin& made = origins_[merge.result];
    can_search_ &= made.rank < 0;
    made = {static_cast<int64_t>(rank), merge.left, merge.right};
  }
  for (const BpeMerge& merge : merges) {
    for (const int32_t part : {merge.left, merge.right}) {
      const bool is_made = tokens[part].size() == 1 || origins_[part].rank >= 0;
      can_search_ &= is_made && origins_[part].rank < origins_[merge.result].rank;
    }
  }
  if (!can_search_) return;

  // A token encodes to itself if its parts do and stay apart until its own rule acts.
  std::vector<bool> reachable(tokens.size(), false);
  std::vector<std::pair<std::string_view, int32_t>> words;
  size_t steps = 0;
  for (const int32_t id : byte_ids_) {
    reachable[id] = true;
    words.emplace_back(tokens[id], id);
  }
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto [left, right, made] = merges[rank];
    reachable[made] =
        reachable[left] && reachable[right] && stay_apart(left, right, static_cast<uint32_t>(rank), steps);
    if (reachable[made]) words.emplace_back(tokens[made], made);
  }

  lengths_.resize(tokens.size());
  shorter_.assign(tokens.size(), -1);
  trie_ = BpeTrie(words);
  for (const auto& [bytes, id] : words) {
    lengths_[id] = static_cast<uint32_t>(bytes.size());
    shorter_[id] = trie_.longest(bytes.substr(0, bytes.size() - 1)).token;
  }
}

bool BpeEncoder::stay_apart(int32_t x, int32_t y, uint32_t before, size_t& steps) const {
  // Backwards through time: the younger of the two is taken apart, and a rule for the new neighbours counts
  // only if its rank is below the rank of what was taken apart (E3).
  uint32_t x_until = before, y_until = before;
  while (true) {
    ++steps;
    const BpeRules::Rule rule = rules_.find(x, y);
    if (rule.rank < std::min(x_until, y_until)) return false;
    const Origin &of_x = origins_[x], &of_y = origins_[y];
    if (of_x.rank > of_y.rank) {
      x_until = static_cast<uint32_t>(of_x.rank);
      x = of_x.right;
    } else if (of_y.rank >= 0) {
      y_until = static_cast<uint32_t>(of_y.rank) + 1;
      y = of_y.left;
    } else {
      return true;
    }
  }
}

bool BpeEncoder::search(std::string_view piece, std::vector<int32_t>& ids) const {
  const size_t first = ids.size();
  const size_t most_steps = kStepsPerByte * piece.size() + 4096;
  size_t steps = 0;
  size_t at = 0;
  const auto longest = [&] {
    const BpeTrie::Match match = trie_.longest(piece.substr(at));
    steps += match.steps;
    return match.token;
  };
  const auto may_follow = [&](int32_t token) {
    return ids.size() == first || stay_apart(ids.back(), token, kNoRank, steps);
  };
  for (int32_t token = longest(); steps <= most_steps;) {
    while (token >= 0 && !may_follow(token)) token = shorter_[token];
    if (token >= 0) {
      ids.push_back(token);
      at += lengths_[token];
      if (at == piece.size()) return true;
      token = longest();
    } else {
      // There is an encoding, so the first token is never given up.
      at -= lengths_[ids.back()];
      token = shorter_[ids.back()];
      ids.pop_back();
    }
  }
  ids.resize(first);
  return false;
}

void BpeEncoder::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  if (piece.empty()) return;
  if (can_search_ && search(piece, ids)) return;
  merge_by_rank(rules_, byte_ids_, piece, ids);
}

}  // namespace storytape
