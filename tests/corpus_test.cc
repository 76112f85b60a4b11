#include "train/corpus.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/catch.h"
#include "tests/error_message.h"
#include "train/corpus_plots.h"
#include "train/corpus_story.h"
#include "train/sha256.h"
#include "train/text.h"

namespace storytape {
namespace {

constexpr size_t kSample = 2'000'000;

std::vector<std::string> cut(std::string_view text, std::string_view at) {
  std::vector<std::string> pieces;
  while (!text.empty()) {
    const size_t end = std::min(text.find(at), text.size());
    pieces.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + at.size(), text.size()));
  }
  return pieces;
}

// The stories of a corpus, which must have the form of TinyStories.
std::vector<std::string> stories_of(std::string_view corpus) {
  return cut(corpus, "\n<|endoftext|>\n");
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (std::isalpha(static_cast<unsigned char>(c))) {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

bool is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}

const std::vector<std::string>& sample() {
  static const std::vector<std::string> stories = stories_of(make_corpus(7, kSample));
  return stories;
}

}  // namespace

TEST_CASE("a corpus is the same bytes with every compiler") {
  const std::string corpus = make_corpus(1, 200'000);
  CHECK(sha256_hex(corpus) == "a9b4df7c15da39a8a62627d389a733f3cb52174c2725c111a3b17646492c6788");
  CHECK(make_corpus(1, 200'000) == corpus);
  CHECK(make_corpus(2, 200'000) != corpus);
}

TEST_CASE("a smaller corpus is a prefix of a larger one") {
  const std::string large = make_corpus(3, 100'000);
  const std::string small = make_corpus(3, 10'000);
  CHECK(small == large.substr(0, small.size()));
  CHECK(small.size() >= 10'000);
  CHECK(small.size() < 10'000 + 3'000);
  CHECK(make_corpus(3, 0).empty());
  CHECK(make_corpus(3, 1) == make_story(3, 0) + "\n<|endoftext|>\n");
}

TEST_CASE("a corpus has the form of TinyStories") {
  const std::string corpus = make_corpus(4, 300'000);
  CHECK(corpus.ends_with("\n<|endoftext|>\n"));
  std::string again;
  for (const std::string& story : stories_of(corpus)) again += story + "\n<|endoftext|>\n";
  CHECK(again == corpus);
  CHECK(
      std::all_of(corpus.begin(), corpus.end(), [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
}

TEST_CASE("stories are clean English text") {
  size_t once = 0;
  for (const std::string& story : sample()) {
    CAPTURE(story);
    const std::vector<std::string> paragraphs = cut(story, "\n");
    REQUIRE(paragraphs.size() >= 3);
    for (const std::string& paragraph : paragraphs) {
      CAPTURE(paragraph);
      REQUIRE(paragraph.size() > 10);
      REQUIRE((is_upper(paragraph[0]) || paragraph[0] == '"'));
      REQUIRE((paragraph.ends_with(".") || paragraph.ends_with("!") || paragraph.ends_with(".\"") ||
               paragraph.ends_with("!\"") || paragraph.ends_with("?\"")));
      REQUIRE(std::count(paragraph.begin(), paragraph.end(), '"') % 2 == 0);
      for (const char* wrong :
           {"  ", " .", " ,", "..", ".,", ",.", "!.", "?.", "\".", "\",", "{", "}", "[", "]", "|"}) {
        CAPTURE(wrong);
        REQUIRE(paragraph.find(wrong) == std::string::npos);
      }
      // A sentence begins with a capital letter, maybe after a quotation mark.
      for (const char* end : {". ", ".\" "}) {
        for (size_t at = paragraph.find(end); at != std::string::npos; at = paragraph.find(end, at + 1)) {
          size_t next = at + std::string_view(end).size();
          if (paragraph[next] == '"') ++next;
          CAPTURE(paragraph.substr(at));
          REQUIRE(is_upper(paragraph[next]));
        }
      }
    }
    const std::vector<std::string> words = words_of(story);
    for (size_t i = 0; i + 1 < words.size(); ++i) {
      std::string word = words[i];
      word[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(word[0])));
      const bool vowel = std::string_view("aeiou").find(words[i + 1][0]) != std::string_view::npos;
      CAPTURE(word, words[i + 1]);
      if (word == "a") REQUIRE(!vowel);
      if (word == "an") REQUIRE(vowel);
      // "that that", "the the": no word stands twice, but for calls such as "Boom! Boom!".
      if (word == "the" || word == "a" || word == "to" || word == "was") REQUIRE(words[i + 1] != words[i]);
    }
    once += story.starts_with("Once upon a time");
  }
  CHECK(once > sample().size() / 2);
  CHECK(once < sample().size() * 4 / 5);
}

TEST_CASE("stories use a few hundred words and vary") {
  std::map<std::string, size_t> words;
  std::map<std::string, size_t> sentences;
  size_t all_sentences = 0;
  for (const std::string& story : sample()) {
    for (std::string word : words_of(story)) {
      std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
      ++words[word];
    }
    for (const std::string& paragraph : cut(story, "\n")) {
      for (const std::string& sentence : cut(paragraph, ". ")) ++sentences[sentence], ++all_sentences;
    }
  }
  CHECK(words.size() > 500);
  CHECK(words.size() < 1000);
  // Every word occurs often enough to be learned.
  size_t rare = 0;
  for (const auto& [word, n] : words) rare += n < 10;
  CHECK(rare < words.size() / 20);
  CHECK(sentences.size() > all_sentences / 4);
}

TEST_CASE("a story never repeats") {
  std::set<std::string> seen;
  for (const std::string& story : stories_of(make_corpus(5, 6'000'000))) CHECK(seen.insert(story).second);
}

TEST_CASE("names keep their pronouns") {
  std::map<std::string, std::set<std::string>> pronouns;
  for (const std::string& story : sample()) {
    const std::vector<std::string> words = words_of(story);
    for (size_t i = 0; i + 2 < words.size(); ++i) {
      if (words[i] == "named" && (words[i + 2] == "He" || words[i + 2] == "She")) {
        pronouns[words[i + 1]].insert(words[i + 2]);
      }
    }
  }
  CHECK(pronouns.size() > 30);
  for (const auto& [name, forms] : pronouns) {
    CAPTURE(name);
    CHECK(forms.size() == 1);
  }
}

TEST_CASE("a thing keeps its adjective through its story") {
  const std::set<std::string> things = {"kite", "doll", "drum", "robot", "balloon", "vase", "rug", "box"};
  const std::set<std::string> not_adjectives = {"the",  "The",  "a",  "his", "her", "my",
                                                "your", "What", "My", "No",  "nice"};
  size_t seen = 0;
  for (const std::string& story : sample()) {
    std::map<std::string, std::set<std::string>> adjectives;
    const std::vector<std::string> words = words_of(story);
    for (size_t i = 1; i < words.size(); ++i) {
      const bool told = things.contains(words[i]) && !not_adjectives.contains(words[i - 1]);
      // "a warm box to sleep in" and "a box with a ribbon" are no things that are followed.
      if (told && !(words[i] == "box" &&
                    (words[i - 1] == "warm" || words[i - 1] == "toy" || words[i - 1] == "big"))) {
        adjectives[words[i]].insert(words[i - 1]);
      }
    }
    for (const auto& [thing, list] : adjectives) {
      CAPTURE(story, thing);
      REQUIRE(list.size() == 1);
      ++seen;
    }
  }
  CHECK(seen > 300);
}

TEST_CASE("every plot is told, in many ways") {
  for (const auto plots : {friend_plots(), home_plots(), world_plots(), growing_plots()}) {
    for (const Plot plot : plots) {
      std::set<std::string> told;
      for (uint64_t i = 0; i < 300; ++i) {
        StoryWriter writer(Random(11, i));
        plot(writer);
        told.insert(writer.text());
        REQUIRE(writer.text().size() > 300);
        REQUIRE(writer.text().size() < 2000);
      }
      CHECK(told.size() == 300);
    }
  }
}

TEST_CASE("the held-out part of the embedded corpus holds no training story") {
  const SplitCorpus corpus = embedded_corpus(1, 3'000'000);
  CHECK(corpus.train + corpus.valid == make_corpus(1, 3'000'000));
  const double share = static_cast<double>(corpus.valid.size()) /
                       static_cast<double>(corpus.train.size() + corpus.valid.size());
  CHECK(share > 0.049);
  CHECK(share < 0.051);
  std::set<std::string> train;
  for (std::string& story : stories_of(corpus.train)) train.insert(std::move(story));
  const std::vector<std::string> valid = stories_of(corpus.valid);
  CHECK(valid.size() > 100);
  for (const std::string& story : valid) CHECK(!train.contains(story));
}

TEST_CASE("an embedded corpus too small to split is refused") {
  CHECK(test::message_of([] { embedded_corpus(1, 1); }).find("1 story") != std::string::npos);
}

TEST_CASE("templates fill slots and choose among alternatives") {
  std::set<std::string> seen;
  for (uint64_t i = 0; i < 200; ++i) {
    StoryWriter w(Random(1, i));
    w.set("who", "the [old |]fox");
    w.set("where", "home");
    seen.insert(w.fill("{Who} [ran|walked [slowly|]] {where}."));
  }
  CHECK(seen == std::set<std::string>{"The fox ran home.", "The fox walked  home.",
                                      "The fox walked slowly home.", "The old fox ran home.",
                                      "The old fox walked  home.", "The old fox walked slowly home."});
}

TEST_CASE("sentences are joined with spaces and paragraphs with newlines") {
  StoryWriter w(Random(1));
  w.say("One.");
  w.say("");
  w.say("Two.");
  w.paragraph();
  w.say("Three.");
  CHECK(w.text() == "One. Two.\nThree.");
}

TEST_CASE("a template that can't be filled is an error") {
  StoryWriter w(Random(1));
  CHECK(test::message_of([&] { w.fill("{nobody} ran"); }) ==
        "corpus template: nothing fills the slot {nobody}");
  CHECK(test::message_of([&] { w.fill("[a|b"); }).find("never closed") != std::string::npos);
  CHECK(test::message_of([&] { w.fill("{a"); }).find("never closed") != std::string::npos);
}

TEST_CASE("words get the article that they need") {
  CHECK(with_article("red ball") == "a red ball");
  CHECK(with_article("old ball") == "an old ball");
}

}  // namespace storytape
