#include "train/corpus.h"

#include <unordered_set>
#include <utility>

#include "train/corpus_plots.h"
#include "train/corpus_story.h"
#include "train/text.h"

namespace storytape {

std::string make_story(uint64_t seed, uint64_t index) {
  StoryWriter writer(Random(seed, index));
  const std::span<const Plot> groups[] = {friend_plots(), home_plots(), world_plots(), growing_plots()};
  size_t plots = 0;
  for (const auto group : groups) plots += group.size();
  size_t chosen = writer.below(plots);
  for (const auto group : groups) {
    if (chosen < group.size()) {
      group[chosen](writer);
      break;
    }
    chosen -= group.size();
  }
  return writer.text();
}

std::string make_corpus(uint64_t seed, size_t bytes) {
  std::string text;
  std::unordered_set<std::string> seen;
  for (uint64_t index = 0; text.size() < bytes; ++index) {
    auto [story, is_new] = seen.insert(make_story(seed, index));
    if (!is_new) continue;
    text += *story;
    text += '\n';
    text += kStorySeparator;
    text += '\n';
  }
  return text;
}

SplitCorpus embedded_corpus(uint64_t seed, size_t bytes) {
  const std::string text = make_corpus(seed, bytes);
  const TextSplit split = split_stories(text);
  return {std::string(split.train), std::string(split.held_out)};
}

}  // namespace storytape
