// The embedded corpus: small stories made from a seed, for training without any file.
//
// Each story has characters with names, who want, lose, fear or make something, a turn and an end. Names keep
// their pronouns, things their adjectives, and what is said of who has what and where it is stays true, so a
// small model can learn to keep track of them. The text has the form of TinyStories: a story, a newline,
// <|endoftext|>, a newline; one newline between paragraphs; ASCII.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace storytape {

// Story number `index` of a seed: the same bytes with every compiler. No newline at its end.
std::string make_story(uint64_t seed, uint64_t index);

// Whole stories 0, 1, 2, ... of the seed until the text has `bytes` bytes or a little more (less than one
// story). A story that has come before is left out. A smaller corpus is a prefix of a larger one.
std::string make_corpus(uint64_t seed, size_t bytes);

struct SplitCorpus {
  std::string train, valid;
};

inline constexpr size_t kEmbeddedBytes = 6'000'000;

// make_corpus cut in two at a story: about the last 5% are held out (split_stories of text.h). No held-out
// story is in the training part.
SplitCorpus embedded_corpus(uint64_t seed, size_t bytes = kEmbeddedBytes);

}  // namespace storytape
