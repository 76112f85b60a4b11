#include "train/tokenizer_specials.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace storytape {

SpecialFinder::SpecialFinder(std::vector<std::string> specials) : specials_(std::move(specials)) {
  longest_first_.resize(specials_.size());
  std::iota(longest_first_.begin(), longest_first_.end(), 0);
  std::stable_sort(longest_first_.begin(), longest_first_.end(),
                   [&](int a, int b) { return specials_[a].size() > specials_[b].size(); });
  for (const std::string& special : specials_) starts_[static_cast<uint8_t>(special[0])] = true;
  if (std::count(starts_.begin(), starts_.end(), true) == 1)
    only_start_ = static_cast<uint8_t>(specials_[0][0]);
}

SpecialFinder::Found SpecialFinder::find(std::string_view text, size_t from) const {
  const Found none{text.size(), 0, -1};
  if (specials_.empty()) return none;
  for (size_t at = from; at < text.size(); ++at) {
    if (only_start_ >= 0) {
      const void* start = std::memchr(text.data() + at, only_start_, text.size() - at);
      if (!start) return none;
      at = static_cast<size_t>(static_cast<const char*>(start) - text.data());
    } else if (!starts_[static_cast<uint8_t>(text[at])]) {
      continue;
    }
    const std::string_view rest = text.substr(at);
    for (const int index : longest_first_) {
      if (rest.starts_with(specials_[index])) return {at, specials_[index].size(), index};
    }
  }
  return none;
}

bool specials_can_overlap(const std::vector<std::string>& specials) {
  for (const std::string& a : specials) {
    for (const std::string& b : specials) {
      // b laid over a from each place of a on; a over itself only from its second place.
      for (size_t at = &a == &b ? 1 : 0; at < a.size(); ++at) {
        const size_t common = std::min(a.size() - at, b.size());
        if (a.compare(at, common, b, 0, common) == 0) return true;
      }
    }
  }
  return false;
}

}  // namespace storytape
