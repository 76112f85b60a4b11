#include "train/tokenizer.h"

#include <pthread.h>

#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tensor/error.h"
#include "tests/catch.h"
#include "tests/error_message.h"
#include "tests/shared.h"
#include "tests/tokenizer_clock.h"
#include "train/bpe_encoder.h"
#include "train/bpe_rules.h"
#include "train/bpe_trainer.h"
#include "train/verify_tokenizer.h"

using namespace storytape;

namespace {

using Ids = std::vector<int32_t>;

// The definition: of all rules that apply anywhere the oldest, of its places the leftmost, one at a time.
Ids reference_ids(const std::vector<BpeMerge>& merges, const std::string& text) {
  std::map<std::pair<int32_t, int32_t>, size_t> ranks;
  for (size_t rank = 0; rank < merges.size(); ++rank) ranks[{merges[rank].left, merges[rank].right}] = rank;
  Ids ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  while (true) {
    size_t best = merges.size(), place = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto rule = ranks.find({ids[i], ids[i + 1]});
      if (rule != ranks.end() && rule->second < best) {
        best = rule->second;
        place = i;
      }
    }
    if (best == merges.size()) return ids;
    ids[place] = merges[best].result;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(place) + 1);
  }
}

std::array<int32_t, 256> byte_values() {
  std::array<int32_t, 256> ids;
  for (int b = 0; b < 256; ++b) ids[b] = b;
  return ids;
}

// Bytes, then whatever the merges make, in any order of ranks.
std::vector<std::string> tokens_of(const std::vector<BpeMerge>& merges, size_t size) {
  std::vector<std::string> tokens(size);
  for (int b = 0; b < 256; ++b) tokens[b] = std::string(1, static_cast<char>(b));
  for (size_t round = 0; round < merges.size(); ++round) {
    for (const BpeMerge& m : merges) tokens[m.result] = tokens[m.left] + tokens[m.right];
  }
  return tokens;
}

std::string random_text(std::mt19937_64& random, size_t size, const std::string& alphabet) {
  std::string text(size, '\0');
  for (char& c : text)
    c = alphabet.empty() ? static_cast<char>(random()) : alphabet[random() % alphabet.size()];
  return text;
}

std::string story_text() {
  std::string text;
  std::mt19937_64 random(1);
  const std::vector<std::string> words = {
      "Lily", "the",  "dog", "was", "happy", "a",           "park",
      "and",  "went", "to",  "She", "said",  "caf\xC3\xA9", "Once upon a time"};
  for (int i = 0; i < 4000; ++i) {
    text += words[random() % words.size()] + (random() % 9 == 0    ? ".\n"
                                              : random() % 30 == 0 ? "<|endoftext|>"
                                                                   : " ");
  }
  return text;
}

const Tokenizer& story_tokenizer() {
  static const Tokenizer tokenizer = [] {
    BpeTrainOptions options;
    options.vocab_size = 600;
    const std::string text = story_text();
    const std::string_view view = text;
    return Tokenizer::from_merges(train_bpe({&view, 1}, options).merges);
  }();
  return tokenizer;
}

std::string repeat(const std::string& piece, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += piece;
  return text;
}

// Runs on a thread with a small stack: whatever recurses with the text dies.
void run_with_small_stack(std::function<void()> work) {
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, 512 * 1024) == 0);
  pthread_t thread;
  const auto run = [](void* f) -> void* {
    (*static_cast<std::function<void()>*>(f))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, run, &work) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

// Of this thread on its processor, whatever else the machine does.
double seconds_to_encode(const Tokenizer& tokenizer, const std::string& text) {
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const double start = test::thread_seconds();
    tokenizer.encode(text, Specials::kPlain);
    best = std::min(best, test::thread_seconds() - start);
  }
  return best;
}

}  // namespace

TEST_CASE("B065 encoding applies the oldest rule at its leftmost place") {
  std::mt19937_64 random(65);
  for (int trial = 0; trial < 400; ++trial) {
    const std::string alphabet = trial % 4 == 0   ? "ab"
                                 : trial % 4 == 1 ? "abc "
                                 : trial % 4 == 2 ? "aab\xC3\xA9"
                                                  : "";
    const std::string corpus = random_text(random, 400, alphabet);
    BpeTrainOptions options;
    options.specials.clear();
    options.vocab_size = 256 + static_cast<int>(random() % 120);
    const std::string_view view = corpus;
    const std::vector<BpeMerge> merges = train_bpe({&view, 1}, options).merges;
    const Tokenizer tokenizer = Tokenizer::from_merges(merges, {});
    REQUIRE(BpeEncoder(byte_values(), merges, tokenizer.parts().tokens).can_search());
    for (int i = 0; i < 50; ++i) {
      const size_t size = i == 0 ? 200 : random() % 40;
      const std::string text =
          i % 5 == 4 ? corpus.substr(random() % 300, size) : random_text(random, size, alphabet);
      const Ids ids = tokenizer.encode(text, Specials::kPlain);
      if (ids != reference_ids(merges, text)) REQUIRE(ids == reference_ids(merges, text));
      REQUIRE(tokenizer.decode(ids) == text);
    }
  }
  const Tokenizer bytes = Tokenizer::from_merges({});
  CHECK(bytes.encode("\xC3\xA9", Specials::kPlain) == Ids{0xC3, 0xA9});
  CHECK(
      Tokenizer::from_merges(std::vector<BpeMerge>{{0xC3, 0xA9, 264}}).encode("\xC3\xA9", Specials::kPlain) ==
      Ids{264});
}

TEST_CASE("Rules of any kind encode as the definition says") {
  std::mt19937_64 random(66);
  int searched = 0, merged = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    // Random rules over tokens that exist, given in a random order: parts may be younger than what they make.
    std::vector<BpeMerge> merges;
    std::map<std::string, int32_t> ids = {{"a", 'a'}, {"b", 'b'}, {"c", 'c'}};
    std::map<std::pair<int32_t, int32_t>, bool> seen;
    int32_t next = 256;
    for (int rule = 0; rule < 12; ++rule) {
      const auto left = *std::next(ids.begin(), static_cast<ptrdiff_t>(random() % ids.size()));
      const auto right = *std::next(ids.begin(), static_cast<ptrdiff_t>(random() % ids.size()));
      const std::string made = left.first + right.first;
      if (made.size() > 12 || seen[{left.second, right.second}]) continue;
      seen[{left.second, right.second}] = true;
      if (!ids.contains(made)) ids[made] = next++;
      merges.push_back({left.second, right.second, ids[made]});
    }
    if (trial % 2 == 0) std::shuffle(merges.begin(), merges.end(), random);
    const auto size = static_cast<size_t>(next);
    const BpeEncoder encoder(byte_values(), merges, tokens_of(merges, size));
    ++(encoder.can_search() ? searched : merged);
    for (int i = 0; i < 10; ++i) {
      const std::string text = random_text(random, random() % 40, "abc");
      Ids found;
      encoder.encode(text, found);
      if (found != reference_ids(merges, text)) {
        CAPTURE(trial, text, encoder.can_search());
        REQUIRE(found == reference_ids(merges, text));
      }
    }
  }
  CHECK(searched > 300);
  CHECK(merged > 300);
}

TEST_CASE("Encoding stays fast on texts made to defeat the search") {
  // Tokens b..ba: a run of b begins each of them and is none of them.
  std::vector<BpeMerge> merges = {{'b', 'a', 256}};
  while (merges.size() < 2000) {
    const auto last = static_cast<int32_t>(255 + merges.size());
    merges.push_back({'b', last, last + 1});
  }
  const Tokenizer tokenizer = Tokenizer::from_merges(merges, {});
  const std::string text(1 << 19, 'b');
  CHECK(tokenizer.encode(text, Specials::kPlain) == Ids(text.size(), 'b'));
  CHECK(tokenizer.encode(std::string(2000, 'b') + "a", Specials::kPlain) == Ids{255 + 2000});
  // The search alone would look at 2,000 bytes for each byte.
  CHECK(seconds_to_encode(tokenizer, text) < 1e-6 * static_cast<double>(text.size()));
}

TEST_CASE("B068 one enormous word encodes in linear time") {
  std::mt19937_64 random(68);
  const std::string alphabet =
      GENERATE(as<std::string>{}, "abcdefghijklmnopqrstuvwxyz", " ", "z", "ACGT", "");
  const std::string corpus = random_text(random, 1 << 16, alphabet);
  BpeTrainOptions options;
  options.vocab_size = 512;
  const std::string_view view = corpus;
  const Tokenizer tokenizer = Tokenizer::from_merges(train_bpe({&view, 1}, options).merges);
  const std::string small = random_text(random, 1 << 18, alphabet),
                    large = random_text(random, 1 << 20, alphabet);
  CAPTURE(alphabet);
  CHECK(seconds_to_encode(tokenizer, large) < 2.5 * 2.5 * seconds_to_encode(tokenizer, small) + 0.02);
  CHECK(tokenizer.decode(tokenizer.encode(large, Specials::kPlain)) == large);
}

TEST_CASE("B069 the text of a special token is ordinary text unless parsed") {
  const Tokenizer& tokenizer = story_tokenizer();
  const int32_t end = tokenizer.end_of_text();
  CHECK(end == 256);
  CHECK(tokenizer.special_id("<|pad|>") == 263);
  CHECK_FALSE(tokenizer.special_id("<|unknown|>").has_value());
  for (const std::string text :
       {"<|endoftext|>", "a<|endoftext|>b", "<|endof\ntext|>", "<|endoftext", "word<|endoftext|>",
        "<|<|endoftext|>", "<|end|><|endoftext|><|endoftext|>", ""}) {
    const Ids plain = tokenizer.encode(text, Specials::kPlain),
              parsed = tokenizer.encode(text, Specials::kParsed);
    for (const int32_t id : plain) CHECK_FALSE(tokenizer.is_special(id));
    CHECK(tokenizer.decode(plain) == text);
    CHECK(tokenizer.decode(parsed) == text);
  }
  CHECK(tokenizer.encode("a<|endoftext|>b", Specials::kParsed) == Ids{'a', 256, 'b'});
  CHECK(tokenizer.encode("<|end|><|endoftext|>", Specials::kParsed) == Ids{262, 256});
  CHECK(tokenizer.decode(Ids{'a', 256, 'b', 263}, true) == "ab");
  CHECK(test::message_of([] { Tokenizer::from_merges({}, {}).end_of_text(); }).find("<|endoftext|>") !=
        std::string::npos);
}

TEST_CASE("B070 long runs of one kind need no stack") {
  const Tokenizer& tokenizer = story_tokenizer();
  const std::string piece =
      GENERATE(as<std::string>{}, "A", " ", "\n", "7", "\xE6\x97\xA5", "\xF0\x9F\x98\x80");
  const std::string text = repeat(piece, 1 << 20);
  Ids ids, by_rank;
  std::vector<BpeMerge> trained;
  run_with_small_stack([&] {
    ids = tokenizer.encode(text, Specials::kPlain);
    merge_by_rank(BpeRules(tokenizer.parts().merges), byte_values(), text, by_rank);
    BpeTrainOptions options;
    options.vocab_size = 300;
    const std::string_view view = text;
    trained = train_bpe({&view, 1}, options).merges;
  });
  CHECK(ids == by_rank);
  CHECK(tokenizer.decode(ids) == text);
  CHECK(trained.size() >= 18);
  // A short run gives the same ids over and over.
  const Ids unit = tokenizer.encode(repeat(piece, 1 << 10), Specials::kPlain);
  CHECK(std::equal(unit.begin(), unit.begin() + 100, ids.begin()));
}

TEST_CASE("B071 any bytes come back as they were") {
  const Tokenizer& tokenizer = story_tokenizer();
  std::mt19937_64 random(71);
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  std::vector<std::string> texts = {"\xE2\x80",
                                    "\xC0\x80",
                                    "\xFF\xFE",
                                    "\x80",
                                    "\xBF\xBF",
                                    "\xED\xA0\x80",
                                    "end \xF0\x9F\x98",
                                    all,
                                    random_text(random, 1 << 20, "")};
  for (const std::string& text : texts) {
    CHECK(tokenizer.decode(tokenizer.encode(text, Specials::kPlain)) == text);
    CHECK(tokenizer.decode(tokenizer.encode(text, Specials::kParsed)) == text);
  }
}

TEST_CASE("B072 white space, marks and NUL are kept") {
  const Tokenizer& tokenizer = story_tokenizer();
  for (const std::string& text :
       {std::string(" a "),
        std::string("\xEF\xBB\xBF"
                    "a"),
        std::string("a\r\nb\rc\n\n"), std::string("\0a\0\0", 4), std::string("\t \n"), std::string("  \n  "),
        std::string("\xC2\xA0\xE2\x80\xA8")}) {
    for (const Specials mode : {Specials::kPlain, Specials::kParsed}) {
      CHECK(tokenizer.decode(tokenizer.encode(text, mode)) == text);
    }
  }
  CHECK(Tokenizer::from_merges({}).encode(" \r\n", Specials::kPlain) == Ids{' ', '\r', '\n'});
}

TEST_CASE("B096 ids outside the vocabulary are refused by value") {
  const Tokenizer small = Tokenizer::from_merges(std::vector<BpeMerge>{{'a', 'b', 264}});
  CHECK(small.vocab_size() == 265);
  CHECK(small.decode(Ids{264}) == "ab");
  for (const int32_t id : {-1, 265, 5000, 2147483647, -2147483647 - 1}) {
    CHECK(test::message_of([&] {
            small.decode(Ids{97, id});
          }) == fmt::format("token id {} is outside the vocabulary, wanted 0 to 264", id));
    CHECK_THROWS_AS(StreamDecoder(small).push(id), Error);
    CHECK_THROWS_AS(small.token_bytes(id), Error);
  }
}

TEST_CASE("B114 streaming gives whole characters as soon as they are whole") {
  const Tokenizer bytes = Tokenizer::from_merges({});
  const auto stream = [&](const std::string& text, InvalidUtf8 invalid) {
    StreamDecoder decoder(bytes, false, invalid);
    std::vector<std::string> chunks;
    for (const char c : text) chunks.push_back(decoder.push(static_cast<unsigned char>(c)));
    chunks.push_back(decoder.finish());
    return chunks;
  };
  using Chunks = std::vector<std::string>;
  const std::string emoji = "\xF0\x9F\x98\x80", mark = "\xEF\xBF\xBD";
  CHECK(stream("a" + emoji + "b", InvalidUtf8::kReplace) == Chunks{"a", "", "", "", emoji, "b", ""});
  CHECK(stream("a\xF0\x9F", InvalidUtf8::kReplace) == Chunks{"a", "", "", mark});
  CHECK(stream("a\xF0\x9F", InvalidUtf8::kKeep) == Chunks{"a", "", "", "\xF0\x9F"});
  CHECK(stream("\xC3z", InvalidUtf8::kReplace) == Chunks{"", mark + "z", ""});
  CHECK(stream("\xE0\x80", InvalidUtf8::kReplace) == Chunks{"", mark + mark, ""});
  // At the edges of what UTF-8 allows: the shortest forms, the surrogates, U+10FFFF.
  const std::vector<std::pair<std::string, int>> edges = {
      {"\xC2\x80", 0},         {"\xC1\xBF", 2},         {"\xE0\xA0\x80", 0},     {"\xE0\x9F\xBF", 3},
      {"\xED\x9F\xBF", 0},     {"\xED\xA0\x80", 3},     {"\xEE\x80\x80", 0},     {"\xF0\x90\x80\x80", 0},
      {"\xF0\x8F\xBF\xBF", 4}, {"\xF4\x8F\xBF\xBF", 0}, {"\xF4\x90\x80\x80", 4}, {"\xF5\x80\x80\x80", 4},
      {"\xF0\x90\x80", 1},     {"\xED\xA0", 2}};
  for (const auto& [text, marks] : edges) {
    CAPTURE(bytes.encode(text, Specials::kPlain));
    CHECK(replace_invalid_utf8(text) == (marks == 0 ? text : repeat(mark, mark.size() * marks)));
  }
  const Chunks invalid = stream(std::string(100, '\xFF'), InvalidUtf8::kReplace);
  CHECK(std::count(invalid.begin(), invalid.end(), mark) == 100);

  std::mt19937_64 random(114);
  for (int trial = 0; trial < 3000; ++trial) {
    const std::string text =
        random_text(random, random() % 30, trial % 2 ? "a\xC3\xA9\xE2\x80\xED\xA0\xF0\x9F\xF4\x90" : "");
    Utf8Stream keep(InvalidUtf8::kKeep);
    std::string kept, replaced;
    for (const char c : text) {
      kept += keep.push(std::string(1, c));
      REQUIRE(keep.held() <= 3);
    }
    REQUIRE(kept + keep.finish() == text);
    for (const std::string& chunk : stream(text, InvalidUtf8::kReplace)) replaced += chunk;
    REQUIRE(replaced == replace_invalid_utf8(text));
    REQUIRE(replace_invalid_utf8(replaced) == replaced);
  }
}

TEST_CASE("Tokenizers of ill-fitting parts are refused") {
  const TokenizerParts good = Tokenizer::from_merges(std::vector<BpeMerge>{{'a', 'b', 264}}).parts();
  const auto refused = [&](const std::function<void(TokenizerParts&)>& change) {
    TokenizerParts parts = good;
    change(parts);
    CHECK_THROWS_AS(Tokenizer(parts), Error);
  };
  CHECK_NOTHROW(Tokenizer(good));
  refused([](TokenizerParts& p) { p.tokens[7] = "xy"; });
  refused([](TokenizerParts& p) { p.tokens[264] = "a"; });
  refused([](TokenizerParts& p) { p.tokens[264] = "ba"; });
  refused([](TokenizerParts& p) { p.specials.push_back(256); });
  refused([](TokenizerParts& p) { p.specials.push_back(265); });
  refused([](TokenizerParts& p) { p.specials.push_back('a'); });
  refused([](TokenizerParts& p) { p.tokens[256] = ""; });
  refused([](TokenizerParts& p) { p.tokens[256] = "<|pad|>"; });
  refused([](TokenizerParts& p) { p.merges.push_back(p.merges[0]); });
  refused([](TokenizerParts& p) { p.merges[0].left = -1; });
  refused([](TokenizerParts& p) { p.merges[0].result = 265; });
  CHECK_THROWS_AS(Tokenizer::from_merges(std::vector<BpeMerge>{{'a', 'b', 265}}), Error);
  CHECK_THROWS_AS(Tokenizer::from_merges(std::vector<BpeMerge>{{'a', 264, 264}}), Error);
}

TEST_CASE("The golden data of the tokenizer") {
  STORYTAPE_NEED_SHARED(shared);
  const std::vector<VerifyRow> rows = verify_tokenizer(shared / "golden-tokenizer");
  CHECK(rows.size() > 300);
  for (const VerifyRow& row : rows) {
    if (!row.ok) FAIL_CHECK(row.section << " " << row.case_name << ": " << row.detail);
  }
}
