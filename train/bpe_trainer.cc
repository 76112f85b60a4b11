#include "train/bpe_trainer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tensor/error.h"
#include "train/bpe_pair_table.h"

namespace storytape {
namespace {

// A token during training, numbered so that numbers compare as (T3) says: 0..255 the bytes in the order of
// their letters, then the merges.
using Symbol = uint32_t;
constexpr Symbol kCut = 0xFFFFFFFE;   // stands before, between and after the stories
constexpr Symbol kHole = 0xFFFFFFFF;  // stands where a token began that is now the inside of another

constexpr size_t kLookAhead = 16;  // places whose memory is fetched early

// Two facts carry the design. A pair gains places only in the step that makes the younger of its parts (a
// span between two boundaries is merged as it would be alone, and a boundary never comes back); so the places
// of a pair are listed once, in rising order, in the list of that step, and are looked at once more, when the
// pair is merged, by then in part gone. And its count only falls after that step; so a heap whose entries are
// corrected when they reach the top always shows the highest.
class Trainer {
 public:
  explicit Trainer(std::span<const BpeStory> stories);

  // Makes up to `wanted` merges as pairs of symbols.
  std::vector<BpePair> run(int wanted, int64_t min_count, const std::function<void(int, int)>& progress);

  int64_t stories() const { return static_cast<int64_t>(story_begins_.size()); }
  int64_t bytes() const { return static_cast<int64_t>(text_.size()) - stories() - 1; }

 private:
  struct Candidate {
    int64_t count;
    BpePair pair;
    // std::push_heap keeps the greatest in front: the highest count, then the smallest pair.
    bool operator<(const Candidate& o) const { return count != o.count ? count < o.count : pair > o.pair; }
  };

  // What stands beside the new token on one side, summed over its places.
  struct Neighbours {
    std::vector<int64_t> weight;   // by symbol
    std::vector<uint32_t> places;  // by symbol
    std::vector<Symbol> seen;

    void add(Symbol s, int64_t w) {
      if (places[s] == 0) seen.push_back(s);
      ++places[s];
      weight[s] += w;
    }
    void reset() {
      for (const Symbol s : seen) {
        places[s] = 0;
        weight[s] = 0;
      }
      seen.clear();
    }
  };

  void count_byte_pairs();
  bool next(BpePair* best);
  void merge(BpePair pair);
  // Step of (T4): rewrites the text and leaves the places of the new token in merged_.
  void replace(BpePair pair, Symbol made);
  void add_pair(BpePair pair, int64_t count, uint32_t begin, uint32_t places);

  std::vector<uint32_t>& list_of(BpePair pair) {
    const Symbol younger = std::max(left_of(pair), right_of(pair));
    return lists_[younger < 256 ? 0 : younger - 255];
  }

  // A token is written at its first and at its last place: both neighbours can be reached without links.
  std::vector<Symbol> text_;
  std::vector<uint32_t> length_;              // in bytes, by symbol
  std::vector<std::vector<uint32_t>> lists_;  // the places found in each step; [0] those of the bytes
  std::vector<uint32_t> story_begins_;
  std::vector<int64_t> story_weights_;
  bool weighted_ = false;

  BpePairTable pairs_;
  std::vector<Candidate> heap_;
  int64_t min_count_ = 1;

  std::vector<uint32_t> merged_;
  Neighbours left_, right_;
};

Trainer::Trainer(std::span<const BpeStory> stories) : length_(256, 1), lists_(1) {
  size_t places = 1;
  int64_t most = 0;
  for (const BpeStory& story : stories) {
    if (story.weight < 0) fail("BPE training: a story has the weight {}, wanted 0 or more", story.weight);
    if (story.text.empty() || story.weight == 0) continue;
    places += story.text.size() + 1;
    int64_t total = 0;
    if (__builtin_mul_overflow(story.weight, static_cast<int64_t>(story.text.size()), &total) ||
        __builtin_add_overflow(most, total, &most)) {
      fail("BPE training: the stories' weights exceed what 64 bits can count");
    }
  }
  if (places >= kCut) fail("BPE training takes less than 4 GiB of text, got {} bytes", places);

  std::array<Symbol, 256> symbol;
  for (Symbol s = 0; s < 256; ++s) symbol[bytes_by_letter()[s]] = s;
  text_.reserve(places);
  text_.push_back(kCut);
  for (const BpeStory& story : stories) {
    if (story.text.empty() || story.weight == 0) continue;
    story_begins_.push_back(static_cast<uint32_t>(text_.size()));
    story_weights_.push_back(story.weight);
    weighted_ |= story.weight != 1;
    for (const char c : story.text) text_.push_back(symbol[static_cast<uint8_t>(c)]);
    text_.push_back(kCut);
  }
}

void Trainer::add_pair(BpePair pair, int64_t count, uint32_t begin, uint32_t places) {
  if (count < min_count_) return;  // its count will never rise
  pairs_.insert({pair, count, begin, places});
  heap_.push_back({count, pair});
  std::push_heap(heap_.begin(), heap_.end());
}

void Trainer::count_byte_pairs() {
  std::vector<uint32_t> places(256 * 256, 0), begin(256 * 256, 0);
  std::vector<int64_t> count(256 * 256, 0);
  size_t story = 0;
  // The loops end before the last kCut, so that p + 1 exists.
  for (uint32_t p = 1; p + 1 < text_.size(); ++p) {
    if (text_[p] == kCut) ++story;
    if (text_[p] == kCut || text_[p + 1] == kCut) continue;
    const Symbol index = text_[p] << 8 | text_[p + 1];
    ++places[index];
    count[index] += story_weights_[story];
  }
  uint32_t total = 0;
  for (Symbol index = 0; index < 256 * 256; ++index) {
    begin[index] = total;
    total += places[index];
    if (places[index] > 0) {
      add_pair(bpe_pair(index >> 8, index & 255), count[index], begin[index], places[index]);
    }
  }
  lists_[0].resize(total);
  for (uint32_t p = 1; p + 1 < text_.size(); ++p) {
    if (text_[p] == kCut || text_[p + 1] == kCut) continue;
    lists_[0][begin[text_[p] << 8 | text_[p + 1]]++] = p;
  }
}

bool Trainer::next(BpePair* best) {
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    Candidate& top = heap_.back();
    const int64_t now = pairs_.find(top.pair)->count;
    if (now == top.count) {
      *best = top.pair;
      heap_.pop_back();
      return true;
    }
    if (now >= min_count_) {
      top.count = now;
      std::push_heap(heap_.begin(), heap_.end());
    } else {
      heap_.pop_back();
    }
  }
  return false;
}

void Trainer::replace(BpePair pair, Symbol made) {
  const Symbol a = left_of(pair), b = right_of(pair);
  const uint32_t length_a = length_[a], length = length_[made];
  const BpePairTable::Entry& entry = *pairs_.find(pair);
  const std::span<const uint32_t> places(list_of(pair).data() + entry.begin, entry.places);
  merged_.clear();
  for (size_t i = 0; i < places.size(); ++i) {
    if (i + kLookAhead < places.size()) __builtin_prefetch(&text_[places[i + kLookAhead]], 1);
    const uint32_t p = places[i], q = p + length_a;
    if (text_[p] != a || text_[q] != b) continue;
    text_[q] = kHole;
    text_[p] = made;
    text_[p + length - 1] = made;
    merged_.push_back(p);
  }
}

void Trainer::merge(BpePair pair) {
  const Symbol a = left_of(pair), b = right_of(pair), made = static_cast<Symbol>(length_.size());
  const uint32_t length = length_[a] + length_[b];
  length_.push_back(length);
  lists_.emplace_back();
  for (Neighbours* side : {&left_, &right_}) {
    side->weight.resize(length_.size(), 0);
    side->places.resize(length_.size(), 0);
  }
  replace(pair, made);

  // Between two new tokens the pair is counted once, as the right one's left neighbour.
  size_t story = 0;
  for (size_t i = 0; i < merged_.size(); ++i) {
    if (i + kLookAhead < merged_.size()) __builtin_prefetch(&text_[merged_[i + kLookAhead] - 1]);
    const uint32_t p = merged_[i];
    int64_t weight = 1;
    if (weighted_) {
      while (story + 1 < story_begins_.size() && story_begins_[story + 1] <= p) ++story;
      weight = story_weights_[story];
    }
    const Symbol l = text_[p - 1], r = text_[p + length];
    if (l != kCut) left_.add(l, weight);
    if (r != kCut && r != made) right_.add(r, weight);
  }

  // What vanished: (l, a) and (b, r), and (b, a) between two new tokens.
  const auto subtract = [&](BpePair gone, int64_t weight) {
    if (BpePairTable::Entry* entry = pairs_.find(gone)) entry->count -= weight;
  };
  // What appeared: (l, made) and (made, r), with their places in one list.
  std::vector<uint32_t>& list = lists_.back();
  uint32_t total = 0;
  const auto appear = [&](BpePair fresh, Neighbours& side, Symbol s) {
    add_pair(fresh, side.weight[s], total, side.places[s]);
    // From here on the number of places is where the next place goes.
    total += std::exchange(side.places[s], total);
  };
  for (const Symbol l : left_.seen) {
    subtract(bpe_pair(l == made ? b : l, a), left_.weight[l]);
    appear(bpe_pair(l, made), left_, l);
  }
  for (const Symbol r : right_.seen) {
    subtract(bpe_pair(b, r), right_.weight[r]);
    appear(bpe_pair(made, r), right_, r);
  }
  list.resize(total);
  for (const uint32_t p : merged_) {
    const Symbol l = text_[p - 1], r = text_[p + length];
    if (l != kCut) list[left_.places[l]++] = p - length_[l];
    if (r != kCut && r != made) list[right_.places[r]++] = p;
  }
  left_.reset();
  right_.reset();
}

std::vector<BpePair> Trainer::run(int wanted, int64_t min_count,
                                  const std::function<void(int, int)>& progress) {
  min_count_ = std::max<int64_t>(1, min_count);
  std::vector<BpePair> merges;
  if (wanted == 0) return merges;
  count_byte_pairs();
  for (BpePair best = 0; static_cast<int>(merges.size()) < wanted && next(&best);) {
    merge(best);
    merges.push_back(best);
    if (progress) progress(static_cast<int>(merges.size()), wanted);
  }
  return merges;
}

}  // namespace

BpeTraining train_bpe_stories(std::span<const BpeStory> stories, const BpeTrainOptions& options) {
  const int first_merge = 256 + static_cast<int>(options.specials.size());
  if (options.vocab_size < first_merge) {
    fail("vocab_size is {}, wanted at least {}: 256 bytes and {} special tokens", options.vocab_size,
         first_merge, options.specials.size());
  }
  Trainer trainer(stories);
  const std::vector<BpePair> pairs =
      trainer.run(options.vocab_size - first_merge, options.min_frequency, options.progress);

  const auto id = [&](Symbol s) {
    return s < 256 ? static_cast<int32_t>(bytes_by_letter()[s]) : static_cast<int32_t>(s) - 256 + first_merge;
  };
  BpeTraining training;
  for (const BpePair pair : pairs) {
    const int32_t made = first_merge + static_cast<int32_t>(training.merges.size());
    training.merges.push_back({id(left_of(pair)), id(right_of(pair)), made});
  }
  training.vocab_size = first_merge + static_cast<int>(pairs.size());
  training.stories = trainer.stories();
  training.bytes = trainer.bytes();
  return training;
}

BpeTraining train_bpe(std::span<const std::string_view> texts, const BpeTrainOptions& options) {
  if (std::find(options.specials.begin(), options.specials.end(), "") != options.specials.end()) {
    fail("BPE training: a special token is empty");
  }
  const SpecialFinder finder(options.specials);
  std::vector<BpeStory> stories;
  for (const std::string_view text : texts) {
    for (size_t at = 0; at < text.size();) {
      const SpecialFinder::Found special = finder.find(text, at);
      if (special.begin > at) stories.push_back({text.substr(at, special.begin - at)});
      at = special.begin + special.length;
    }
  }
  return train_bpe_stories(stories, options);
}

}  // namespace storytape
