#include "train/tokenizer_json.h"

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tensor/error.h"
#include "tests/catch.h"
#include "tests/error_message.h"
#include "tests/temporary_folder.h"
#include "train/files.h"
#include "train/tokenizer.h"

using namespace storytape;
using nlohmann::json;

namespace {

using Ids = std::vector<int32_t>;

Tokenizer small_tokenizer() {
  return Tokenizer::from_merges(std::vector<BpeMerge>{{'t', 'h', 264}, {264, 'e', 265}, {' ', 265, 266}});
}

json small_file() {
  return json::parse(format_tokenizer(small_tokenizer().parts()));
}

std::string refusal(const json& file) {
  return test::message_of([&] { parse_tokenizer(file.dump(), "t.json"); });
}

}  // namespace

TEST_CASE("A tokenizer survives being saved and loaded") {
  const test::TemporaryFolder folder;
  const Tokenizer tokenizer = small_tokenizer();
  tokenizer.save(folder / "tokenizer.json");
  const Tokenizer again = Tokenizer::load(folder / "tokenizer.json");
  CHECK(again.parts() == tokenizer.parts());
  CHECK(again.fingerprint() == tokenizer.fingerprint());
  CHECK(again.encode("in the<|end|>", Specials::kParsed) == Ids{'i', 'n', 266, 262});
  const std::string message = test::message_of([&] { Tokenizer::load(folder / "absent.json"); });
  CHECK(message.find("absent.json") != message.npos);
  CHECK_THROWS_AS(Tokenizer::load(folder.path()), Error);
}

TEST_CASE("The fingerprint tells tokenizers apart") {
  const std::string of_small = small_tokenizer().fingerprint();
  CHECK(of_small.size() == 64);
  CHECK(small_tokenizer().fingerprint() == of_small);
  TokenizerParts parts = small_tokenizer().parts();
  std::swap(parts.merges[0], parts.merges[1]);
  CHECK(Tokenizer(parts).fingerprint() != of_small);
  parts = small_tokenizer().parts();
  parts.specials.pop_back();
  CHECK(Tokenizer(parts).fingerprint() != of_small);
  parts = small_tokenizer().parts();
  parts.tokens[263] = "<|pat|>";
  CHECK(Tokenizer(parts).fingerprint() != of_small);
  CHECK(Tokenizer::from_merges({}).fingerprint() != of_small);
}

TEST_CASE("The course's form is the same tokenizer") {
  const std::string text =
      R"({"format":"g2c.bpe","version":2,"special_tokens":["<|endoftext|>","<|system|>","<|user|>",
      "<|assistant|>","<|tool_call|>","<|tool_result|>","<|end|>","<|pad|>"],
      "merges":[[116,104,264],[264,101,265],[32,265,266]]})";
  CHECK(parse_tokenizer(text, "t.json") == small_tokenizer().parts());
  const std::string version_1 = R"({"format":"g2c.bpe","version":1,"merges":[[116,104,256]]})";
  const Tokenizer without(parse_tokenizer(version_1, "t.json"));
  CHECK(without.vocab_size() == 257);
  CHECK(without.encode("the<|end|>", Specials::kParsed).front() == 256);
  for (const char* bad : {R"({"format":"g2c.bpe","version":1,"special_tokens":["x"],"merges":[]})",
                          R"({"format":"g2c.bpe","version":2,"merges":[]})",
                          R"({"format":"g2c.bpe","version":2,"special_tokens":["x","x"],"merges":[]})",
                          R"({"format":"g2c.bpe","version":2,"special_tokens":[""],"merges":[]})",
                          R"({"format":"g2c.bpe","version":2,"special_tokens":[]})",
                          R"({"format":"g2c.bpe","version":1,"merges":[[97,1e30,256]]})",
                          R"({"format":"g2c.bpe","version":1,"merges":[[97,18446744073709551615,256]]})",
                          R"({"format":"g2c.bpe","version":1.0,"merges":[]})"}) {
    CHECK_FALSE(test::message_of([&] { parse_tokenizer(bad, "t.json"); }).empty());
  }
}

TEST_CASE("A file whose merges double a token beyond memory is refused") {
  json merges = {{97, 97, 256}};
  for (int id = 257; id < 400; ++id) merges.push_back({id - 1, id - 1, id});
  const json file = {{"format", "g2c.bpe"}, {"version", 1}, {"merges", merges}};
  CHECK(refusal(file).find("merges: token") != std::string::npos);
}

TEST_CASE("What a tokenizer.json needs and Storytape lacks is refused by name") {
  struct Case {
    const char* pointer;
    json value;
    const char* named;
  };
  const json special = small_file()["added_tokens"][0];
  const auto with = [&](const char* name, const json& value) {
    json token = special;
    token[name] = value;
    return token;
  };
  const std::vector<Case> cases = {
      {"/pre_tokenizer/use_regex", true, "splitting regex (pre_tokenizer.use_regex"},
      {"/pre_tokenizer/use_regex", nullptr, "splitting regex (pre_tokenizer.use_regex"},
      {"/pre_tokenizer/use_regex", 1, "pre_tokenizer.use_regex"},
      {"/pre_tokenizer/add_prefix_space", true, "pre_tokenizer.add_prefix_space"},
      {"/pre_tokenizer", {{"type", "Whitespace"}}, "\"Whitespace\""},
      {"/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", json::array()}}, "pre_tokenizer"},
      {"/normalizer", {{"type", "Lowercase"}}, "\"Lowercase\""},
      {"/post_processor", {{"type", "RobertaProcessing"}}, "\"RobertaProcessing\""},
      {"/decoder", {{"type", "Metaspace"}}, "\"Metaspace\""},
      {"/truncation", {{"max_length", 3}}, "truncation"},
      {"/padding", json::object(), "padding"},
      {"/version", nullptr, "version"},
      {"/model/type", "WordLevel", "model.type"},
      {"/model/dropout", 0.5, "model.dropout"},
      {"/model/dropout", "0", "model.dropout"},
      {"/model/byte_fallback", true, "model.byte_fallback"},
      {"/model/ignore_merges", true, "model.ignore_merges"},
      {"/model/continuing_subword_prefix", "##", "model.continuing_subword_prefix"},
      {"/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix"},
      {"/model/unk_token", 3, "model.unk_token"},
      {"/model/vocab/th", 265, "model.vocab"},
      {"/model/vocab/th", 1 << 30, "model.vocab"},
      {"/model/vocab/th", "264", "model.vocab"},
      {"/model/merges/1", {"th", "z"}, "model.merges[1]"},
      {"/model/merges/1", {"t", "h"}, "model.merges[1]"},
      {"/model/merges/0", {"<|end|>", "h"}, "model.merges[0]"},
      {"/added_tokens", {{"a", 1}}, "added_tokens"},
      {"/added_tokens/0", with("special", false), "added_tokens[0].special"},
      {"/added_tokens/0", with("lstrip", true), "added_tokens[0].lstrip"},
      {"/added_tokens/0", with("rstrip", true), "added_tokens[0].rstrip"},
      {"/added_tokens/0", with("single_word", true), "added_tokens[0].single_word"},
      {"/added_tokens/0", with("id", 257), "added_tokens[0].id"},
      {"/added_tokens/0", with("content", ""), "added_tokens[0].content"},
      {"/added_tokens/1", special, "added_tokens[1].content"},
  };
  CHECK(refusal(small_file()).empty());
  for (const Case& c : cases) {
    json file = small_file();
    file[json::json_pointer(c.pointer)] = c.value;
    const std::string message = refusal(file);
    CAPTURE(c.pointer, message);
    CHECK(message.starts_with("t.json: "));
    CHECK(message.find(c.named) != message.npos);
    CHECK(message.find('\n') == message.npos);
  }
}

TEST_CASE("What changes no id is read") {
  const TokenizerParts parts = small_tokenizer().parts();
  const json byte_level = small_file()["pre_tokenizer"];
  const json template_of_nothing = {{"type", "TemplateProcessing"},
                                    {"single", {{{"Sequence", {{"id", "A"}}}}}}};
  const std::vector<std::pair<const char*, json>> changes = {
      {"/post_processor", byte_level},
      {"/post_processor", {{"type", "Sequence"}, {"processors", {byte_level, template_of_nothing}}}},
      {"/model/unk_token", "th"},
      {"/model/fuse_unk", true},
      {"/model/end_of_word_suffix", ""},
      {"/added_tokens/2/normalized", true},
      {"/decoder", nullptr},
      {"/pre_tokenizer/trim_offsets", false},
      {"/model/merges", {"t h", "th e", "\xC4\xA0 the"}},
  };
  for (const auto& [pointer, value] : changes) {
    json file = small_file();
    file[json::json_pointer(pointer)] = value;
    CAPTURE(pointer);
    CHECK(parse_tokenizer(file.dump(), "t.json") == parts);
  }
}

TEST_CASE("Specials that overlap are found leftmost and longest, or refused where the library looks twice") {
  const std::vector<std::string> specials = {"<a", "<a>", "a><"};
  const Tokenizer tokenizer = Tokenizer::from_merges({}, specials);
  CHECK(tokenizer.encode("<a><a", Specials::kParsed) == Ids{257, 256});
  CHECK(tokenizer.encode("xa><a>", Specials::kParsed) == Ids{'x', 258, 'a', '>'});
  json file = json::parse(format_tokenizer(tokenizer.parts()));
  CHECK(Tokenizer(parse_tokenizer(file.dump(), "t.json")).parts() == tokenizer.parts());
  file["added_tokens"][0]["normalized"] = true;
  CHECK(refusal(file).find("normalized") != std::string::npos);
}

TEST_CASE("A tokenizer that tokenizer.json can't hold is not written") {
  // Two ways to the same bytes: the file would have one text for two ids.
  const Tokenizer twice = Tokenizer::from_merges(
      std::vector<BpeMerge>{{'a', 'b', 264}, {'b', 'c', 265}, {264, 'c', 266}, {'a', 265, 267}});
  CHECK_THROWS_AS(format_tokenizer(twice.parts()), Error);
  const std::vector<std::string> letters = {"a"};
  CHECK_THROWS_AS(format_tokenizer(Tokenizer::from_merges({}, letters).parts()), Error);
  const std::vector<std::string> no_text = {"\xFF"};
  CHECK_THROWS_AS(format_tokenizer(Tokenizer::from_merges({}, no_text).parts()), Error);
}

TEST_CASE("Damaged tokenizer files are refused with one line, or read") {
  const std::string good = small_file().dump();
  std::mt19937_64 random(7);
  int refused = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    std::string text = good;
    for (int change = 0; change < 2; ++change) {
      const size_t place = random() % text.size(), length = random() % 9;
      switch (random() % 4) {
        case 0:
          text[place] = static_cast<char>(random());
          break;
        case 1:
          text.erase(place, length);
          break;
        case 2:
          text.insert(place, text.substr(random() % text.size(), length));
          break;
        default:
          text[place] = "0123456789\"{}[],:-.e"[random() % 20];
          break;
      }
    }
    const std::string message = test::message_of(
        [&] { Tokenizer(parse_tokenizer(text, "t.json")).encode("in the end", Specials::kParsed); });
    refused += !message.empty();
    if (message.find('\n') != message.npos || message.size() > 1000) FAIL_CHECK(message);
  }
  CHECK(refused > 1000);
}
