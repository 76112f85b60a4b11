// Training of byte-level BPE: which pairs become tokens, exactly as Hugging Face's trainer finds them.
//
// (T1) Each text is cut at every special token; what stands between is a story, taken as it is. Merges cross
//      spaces.
// (T2) The count of a pair of tokens is the number of places where they stand side by side in one story;
//      overlapping places all count ("aaaa" has three of "aa").
// (T3) The pair with the highest count becomes a token. Ties: the smallest left part, then the smallest
//      right part, where bytes come in the order of their letters (bpe_alphabet.h) and before all merges,
//      and merges come by age.
// (T4) It is replaced in all stories from the left, without overlap ("aaa" becomes "aa a").
// (T5) It ends when the vocabulary is full or the highest count is below max(1, min_frequency).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/bpe_alphabet.h"
#include "train/tokenizer_specials.h"

namespace storytape {

struct BpeTrainOptions {
  int vocab_size = 4096;      // bytes, specials and merges; at least 256 + the number of specials
  int64_t min_frequency = 1;  // 0 means 1
  std::vector<std::string> specials{kStorySpecials.begin(), kStorySpecials.end()};
  // Called after every merge with the merges made and wanted; what it throws ends the training.
  std::function<void(int done, int wanted)> progress;
};

// Bytes are ids 0..255, specials follow, merges come after them by age.
struct BpeTraining {
  std::vector<BpeMerge> merges;
  int vocab_size = 0;   // reached; smaller than asked for when the pairs run out
  int64_t stories = 0;  // that are not empty
  int64_t bytes = 0;    // of all stories
};

// A story that counts `weight` times.
struct BpeStory {
  std::string_view text;
  int64_t weight = 1;  // ≥ 0
};

// Trains on stories that are not cut any further. Time is linear in the text (with a logarithm of the number
// of different pairs), memory about 20 bytes per byte of text. Throws if vocab_size is too small, or if the
// stories have 4 GiB or more, or weights that 64 bits can't count.
BpeTraining train_bpe_stories(std::span<const BpeStory> stories, const BpeTrainOptions& options);

// Cuts the texts into stories (T1) and trains on them. Throws also if a special is empty.
BpeTraining train_bpe(std::span<const std::string_view> texts, const BpeTrainOptions& options);

}  // namespace storytape
