// The writer behind the embedded corpus: templates with slots and alternatives, sentences, paragraphs.
//
// A template is plain text with
//   {slot}    what the slot holds, a template itself; written {Slot}, with a capital letter at its start
//   [a|b|]    one of the alternatives, each as likely as the others; they nest and may be empty
// Every choice comes from one Random, so a story is a pure function of it.
#pragma once

#include <array>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/random.h"

namespace storytape {

class StoryWriter {
 public:
  explicit StoryWriter(Random random) : random_(random) {}

  // Sets a slot, replacing what it held. Names are lower-case, such as "toy" or "friend.his".
  void set(std::string_view slot, std::string_view text);
  // What a slot holds, as it was set. Throws for a slot that was never set.
  const std::string& get(std::string_view slot) const;

  // The template with its slots and alternatives filled in.
  std::string fill(std::string_view text);

  // Adds one of the sentences (each a template), with a space before it unless it opens a paragraph. An empty
  // one adds nothing.
  template <class... Sentence>
  void say(Sentence... sentences) {
    const std::array<std::string_view, sizeof...(sentences)> choices{sentences...};
    add(choices[below(choices.size())]);
  }
  // Begins a new paragraph.
  void paragraph();

  size_t below(size_t n) { return static_cast<size_t>(random_.below(n)); }
  bool chance(size_t percent) { return below(100) < percent; }
  // One element of an array, each as likely as the others.
  template <class List>
  const auto& pick(const List& list) {
    return list[below(std::size(list))];
  }
  // Two different elements of an array of at least two.
  template <class List>
  auto pick_two(const List& list) {
    const size_t first = below(std::size(list));
    const size_t step = 1 + below(std::size(list) - 1);
    return std::pair{list[first], list[(first + step) % std::size(list)]};
  }

  const std::string& text() const { return text_; }

 private:
  void add(std::string_view sentence);
  // Append what the template, or the slot, comes to.
  void expand(std::string_view text, std::string& out);
  void expand_slot(std::string_view slot, std::string& out);

  Random random_;
  std::vector<std::pair<std::string, std::string>> slots_;
  std::string text_;
};

// "a " or "an " and the words.
std::string with_article(std::string_view words);

}  // namespace storytape
