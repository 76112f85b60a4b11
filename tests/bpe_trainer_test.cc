#include "train/bpe_trainer.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tensor/error.h"
#include "tests/catch.h"
#include "tests/error_message.h"
#include "tests/tokenizer_clock.h"
#include "train/tokenizer.h"

using namespace storytape;

namespace {

// The definition (T1)..(T5), literally: every pair is counted again before every merge. Ids as without
// specials.
std::vector<BpeMerge> reference_merges(const std::vector<std::string>& stories, int wanted,
                                       int64_t min_frequency) {
  // The order of tokens for ties: bytes by the code point of their letter, then merges.
  std::vector<int> order(256);
  int next_printable = 0, next_other = 1000;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    order[b] = printable ? next_printable++ : next_other++;
  }
  std::vector<std::vector<int32_t>> words;
  for (const std::string& story : stories) {
    words.emplace_back();
    for (const char c : story) words.back().push_back(static_cast<unsigned char>(c));
  }
  std::vector<BpeMerge> merges;
  while (static_cast<int>(merges.size()) < wanted) {
    std::map<std::pair<int32_t, int32_t>, int64_t> count;
    for (const auto& word : words) {
      for (size_t i = 0; i + 1 < word.size(); ++i) ++count[{word[i], word[i + 1]}];
    }
    const auto key = [&](int32_t id) { return id < 256 ? order[id] : 10000 + id; };
    const auto better = [&](const auto& a, const auto& b) {
      if (a.second != b.second) return a.second > b.second;
      if (a.first.first != b.first.first) return key(a.first.first) < key(b.first.first);
      return key(a.first.second) < key(b.first.second);
    };
    const auto best = std::min_element(count.begin(), count.end(), better);
    if (best == count.end() || best->second < std::max<int64_t>(1, min_frequency)) break;
    const auto [left, right] = best->first;
    const auto made = static_cast<int32_t>(256 + merges.size());
    for (auto& word : words) {
      std::vector<int32_t> merged;
      for (size_t i = 0; i < word.size(); ++i) {
        const bool here = i + 1 < word.size() && word[i] == left && word[i + 1] == right;
        merged.push_back(here ? made : word[i]);
        if (here) ++i;
      }
      word = std::move(merged);
    }
    merges.push_back({left, right, made});
  }
  return merges;
}

BpeTrainOptions without_specials(int merges, int64_t min_frequency = 1) {
  BpeTrainOptions options;
  options.specials.clear();
  options.vocab_size = 256 + merges;
  options.min_frequency = min_frequency;
  return options;
}

BpeTraining train_stories(const std::vector<std::string>& stories, const BpeTrainOptions& options) {
  std::vector<BpeStory> views;
  for (const std::string& story : stories) views.push_back({story, 1});
  return train_bpe_stories(views, options);
}

BpeTraining train_text(std::string_view text, const BpeTrainOptions& options) {
  return train_bpe({&text, 1}, options);
}

std::vector<int32_t> encode(const std::vector<BpeMerge>& merges, const std::string& text) {
  return Tokenizer::from_merges(merges, {}).encode(text, Specials::kPlain);
}

// Of this thread on its processor, whatever else the machine does.
double seconds_to_train(const std::string& text) {
  double best = 1e9;
  for (int i = 0; i < 2; ++i) {
    const double start = test::thread_seconds();
    train_text(text, without_specials(256));
    best = std::min(best, test::thread_seconds() - start);
  }
  return best;
}

}  // namespace

TEST_CASE("B062 training finds the merges of the definition, ties included, in every order of the stories") {
  std::mt19937_64 random(62);
  std::string runs;
  for (int i = 0; i < 50; ++i) runs += "bbbaaaddddcccc";
  CHECK(train_stories({runs}, without_specials(40)).merges == reference_merges({runs}, 40, 1));

  for (int trial = 0; trial < 1000; ++trial) {
    const size_t alphabet = 1 + random() % (trial % 10 == 0 ? 256 : 5);
    std::vector<std::string> stories(1 + random() % 6);
    for (std::string& story : stories) {
      for (size_t i = random() % 60; i > 0; --i) {
        // A few letters on both sides of the order, or any bytes.
        const size_t letter = random() % alphabet;
        story += alphabet > 5 ? static_cast<char>(letter) : " !a\n\xAD"[letter];
      }
    }
    const int wanted = static_cast<int>(random() % 80);
    const auto min_frequency = static_cast<int64_t>(random() % 4);
    const auto expected = reference_merges(stories, wanted, min_frequency);
    const BpeTraining training = train_stories(stories, without_specials(wanted, min_frequency));
    std::shuffle(stories.begin(), stories.end(), random);
    const BpeTraining shuffled = train_stories(stories, without_specials(wanted, min_frequency));
    if (training.merges != expected || shuffled.merges != expected) {
      CAPTURE(trial, stories);
      REQUIRE(training.merges == expected);
      REQUIRE(shuffled.merges == expected);
    }
  }
}

TEST_CASE("B063 text without a pair gives the base vocabulary") {
  for (const std::string text : {"", "x", "\n", "<|endoftext|>", "a<|endoftext|>b<|endoftext|>\n"}) {
    const BpeTraining training = train_text(text, {});
    CHECK(training.merges.empty());
    CHECK(training.vocab_size == 264);
  }
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  CHECK(train_text(all, without_specials(1000, 2)).merges.empty());
  CHECK(train_text(all, without_specials(1000)).merges.size() == 255);
  CHECK(train_text(std::string(1000, ' '), without_specials(3)).merges.front() == BpeMerge{' ', ' ', 256});
}

TEST_CASE("B064 overlapping pairs merge from the left") {
  const auto one_merge = train_stories({"aaa"}, without_specials(1)).merges;
  CHECK(one_merge == std::vector<BpeMerge>{{'a', 'a', 256}});
  CHECK(encode(one_merge, "aaa") == std::vector<int32_t>{256, 'a'});
  for (const std::string text :
       {"aaa", "aaaa", "aaaaa", "abababa", "aaabdaaabac", "aaaaaaaaaaaaaaaaaaaaaaa"}) {
    CHECK(train_stories({text}, without_specials(100)).merges == reference_merges({text}, 100, 1));
  }
  const auto known = train_stories({"aaabdaaabac"}, without_specials(3)).merges;
  CHECK(encode(known, "aaabdaaabac") == std::vector<int32_t>{258, 'd', 258, 'a', 'c'});
  // The count of "aa" in "aaaa" is three, so it comes before "xy".
  CHECK(train_stories({"aaaa", "xyxy"}, without_specials(1)).merges ==
        std::vector<BpeMerge>{{'a', 'a', 256}});
}

TEST_CASE("B066 the number of merges is the vocabulary less bytes and specials") {
  std::string text;
  std::mt19937_64 random(66);
  while (text.size() < 1024) text += static_cast<char>('a' + random() % 26);
  for (const int size : {-1, 0, 255, 256, 257, 263}) {
    BpeTrainOptions options;
    options.vocab_size = size;
    const std::string message = test::message_of([&] { train_text(text, options); });
    CHECK(message.find(std::to_string(size) + ", wanted at least 264") != message.npos);
  }
  for (const int size : {264, 265, 300, 1000}) {
    BpeTrainOptions options;
    options.vocab_size = size;
    const BpeTraining training = train_text(text, options);
    CHECK(training.merges.size() == static_cast<size_t>(size - 264));
    CHECK(training.vocab_size == size);
    CHECK(Tokenizer::from_merges(training.merges).vocab_size() == size);
  }
  BpeTrainOptions options;
  options.vocab_size = 100000;
  const BpeTraining training = train_text(text, options);
  // All pairs are merged in the end: one token stands for the whole text.
  CHECK(training.vocab_size < 264 + 1024);
  const Tokenizer tokenizer = Tokenizer::from_merges(training.merges);
  CHECK(tokenizer.vocab_size() == training.vocab_size);
  CHECK(tokenizer.encode(text, Specials::kPlain).size() == 1);
}

TEST_CASE("B067 counts have 64 bits") {
  const std::vector<BpeStory> stories = {
      {"ab", int64_t{3'000'000'000}}, {"cdcd", int64_t{1'400'000'000}}, {"xy", 7}};
  CHECK(train_bpe_stories(stories, without_specials(3)).merges ==
        std::vector<BpeMerge>{{'a', 'b', 256}, {'c', 'd', 257}, {256 + 1, 256 + 1, 258}});
  const std::vector<BpeStory> too_many = {{"ab", int64_t{1} << 62}, {"cd", int64_t{1} << 62}};
  CHECK_THROWS_AS(train_bpe_stories(too_many, without_specials(3)), Error);
  CHECK_THROWS_AS(train_bpe_stories(std::vector<BpeStory>{{"ab", -1}}, without_specials(3)), Error);
}

TEST_CASE("A weight counts a story as often as equal stories do") {
  std::mt19937_64 random(67);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<std::string> texts(5), repeated;
    std::vector<BpeStory> weighted;
    for (std::string& text : texts) {
      for (size_t i = random() % 20; i > 0; --i) text += static_cast<char>('a' + random() % 3);
    }
    for (const std::string& text : texts) {
      const auto weight = static_cast<int64_t>(random() % 4);
      weighted.push_back({text, weight});
      repeated.insert(repeated.end(), static_cast<size_t>(weight), text);
    }
    CHECK(train_bpe_stories(weighted, without_specials(20)).merges ==
          train_stories(repeated, without_specials(20)).merges);
  }
}

TEST_CASE("B068 one enormous word trains in linear time") {
  const std::string kind = GENERATE(as<std::string>{}, "letters", "spaces", "one letter", "base64", "DNA");
  const auto text = [&](size_t size) {
    static const std::string kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const std::string alphabet = kind == "letters"  ? "abcdefghijklmnopqrstuvwxyz"
                                 : kind == "spaces" ? " "
                                 : kind == "DNA"    ? "ACGT"
                                 : kind == "base64" ? kBase64
                                                    : "z";
    std::mt19937_64 random(68);
    std::string made(size, ' ');
    for (char& c : made) c = alphabet[random() % alphabet.size()];
    return made;
  };
  CAPTURE(kind);
  // Quadratic time would be sixteen times as long; a factor of 2.5 for each doubling is allowed.
  const double small = seconds_to_train(text(1 << 18)), large = seconds_to_train(text(1 << 20));
  CHECK(large < 2.5 * 2.5 * small + 0.05);
}

TEST_CASE("Training cuts at every special and nowhere else") {
  const BpeTrainOptions options = [] {
    BpeTrainOptions o;
    o.vocab_size = 1000;
    return o;
  }();
  // "b" and "c" stand side by side in the broken special only.
  const BpeTraining training = train_text("ab<|endoftext|>ab<|pad|>ab<|endoftext>bc", options);
  CHECK(training.stories == 3);
  CHECK(training.merges.front() == BpeMerge{'a', 'b', 264});
  for (const BpeMerge& merge : training.merges)
    CHECK(!(merge.left == 264 && merge.right == '<' && merge.result == 265));
  // Newlines stay with their stories.
  CHECK(train_text("\na\n<|endoftext|>\na\n", options).merges.size() == 2);
  const std::vector<std::string_view> apart = {"a", "b"};
  CHECK(train_bpe(apart, options).merges.empty());
}

TEST_CASE("Training reports its progress and stops when the report throws") {
  BpeTrainOptions options = without_specials(5);
  std::vector<int> reported;
  options.progress = [&](int done, int wanted) {
    CHECK(wanted == 5);
    reported.push_back(done);
  };
  train_text("abcdefgh", options);
  CHECK(reported == std::vector<int>{1, 2, 3, 4, 5});
  options.progress = [](int done, int) {
    if (done == 3) fail("stop");
  };
  CHECK_THROWS_WITH(train_text("abcdefgh", options), "stop");
}
