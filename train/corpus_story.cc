#include "train/corpus_story.h"

#include "tensor/error.h"

namespace storytape {
namespace {

// The letters of the corpus are ASCII; toupper would ask the locale.
char upper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}
char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// The place of the bracket that closes the one at `open`.
size_t closing_bracket(std::string_view text, size_t open) {
  size_t depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == '[') ++depth;
    if (text[i] == ']' && --depth == 0) return i;
  }
  fail("corpus template \"{}\": a [ is never closed", text);
}

// The alternatives between a pair of brackets, cut at the bars that stand in no inner bracket.
std::vector<std::string_view> alternatives(std::string_view inside) {
  std::vector<std::string_view> list;
  size_t depth = 0, begin = 0;
  for (size_t i = 0; i <= inside.size(); ++i) {
    if (i == inside.size() || (inside[i] == '|' && depth == 0)) {
      list.push_back(inside.substr(begin, i - begin));
      begin = i + 1;
    } else if (inside[i] == '[') {
      ++depth;
    } else if (inside[i] == ']') {
      --depth;
    }
  }
  return list;
}

}  // namespace

void StoryWriter::set(std::string_view slot, std::string_view text) {
  for (auto& [name, value] : slots_) {
    if (name == slot) {
      value = text;
      return;
    }
  }
  slots_.emplace_back(slot, text);
}

const std::string& StoryWriter::get(std::string_view slot) const {
  for (const auto& [name, value] : slots_) {
    if (name == slot) return value;
  }
  fail("corpus template: nothing fills the slot {{{}}}", slot);
}

std::string StoryWriter::fill(std::string_view text) {
  std::string out;
  expand(text, out);
  return out;
}

void StoryWriter::paragraph() {
  if (!text_.empty()) text_ += '\n';
}

void StoryWriter::add(std::string_view sentence) {
  if (sentence.empty()) return;
  if (!text_.empty() && text_.back() != '\n') text_ += ' ';
  expand(sentence, text_);
}

void StoryWriter::expand(std::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{') {
      const size_t end = text.find('}', i);
      if (end == std::string_view::npos) fail("corpus template \"{}\": a {{ is never closed", text);
      expand_slot(text.substr(i + 1, end - i - 1), out);
      i = end;
    } else if (text[i] == '[') {
      const size_t end = closing_bracket(text, i);
      expand(pick(alternatives(text.substr(i + 1, end - i - 1))), out);
      i = end;
    } else {
      out += text[i];
    }
  }
}

void StoryWriter::expand_slot(std::string_view slot, std::string& out) {
  std::string name(slot);
  const bool capital = !name.empty() && name[0] != lower(name[0]);
  if (capital) name[0] = lower(name[0]);
  const size_t begin = out.size();
  expand(get(name), out);
  if (capital && begin < out.size()) out[begin] = upper(out[begin]);
}

std::string with_article(std::string_view words) {
  const bool vowel = !words.empty() && std::string_view("aeiou").find(words[0]) != std::string_view::npos;
  return (vowel ? "an " : "a ") + std::string(words);
}

}  // namespace storytape
