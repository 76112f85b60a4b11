#include "train/verify_tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "tensor/error.h"
#include "train/bpe_trainer.h"
#include "train/files.h"
#include "train/json.h"
#include "train/sha256.h"
#include "train/tokenizer.h"
#include "train/tokenizer_json.h"
#include "train/tokenizer_specials.h"

namespace storytape {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

void expect(bool holds, const std::string& what) {
  if (!holds) fail("{}", what);
}

// Lists of ids or strings; names the first place where they differ.
template <class List>
void expect_same(const std::string& what, const List& found, const List& wanted) {
  if (found == wanted) return;
  const size_t common = std::min(found.size(), wanted.size());
  size_t i = 0;
  while (i < common && found[i] == wanted[i]) ++i;
  const auto at = [&](const List& list) {
    return i < list.size() ? printable(json(list[i]).dump(-1, ' ', true), 60) : std::string("the end");
  };
  fail("{}: {} at place {} of {}, wanted {} of {}", what, at(found), i, found.size(), at(wanted),
       wanted.size());
}

void expect_bytes(const std::string& what, const std::string& found, const std::string& wanted) {
  if (found == wanted) return;
  fail("{}: {} ({} bytes), wanted {} ({} bytes)", what, printable(found, 80), found.size(),
       printable(wanted, 80), wanted.size());
}

std::string from_base64(const std::string& text) {
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t digit = kDigits.find(c);
    expect(digit != kDigits.npos, "the golden data hold no base64");
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFF);
  }
  return bytes;
}

std::string u16_digest(const Ids& ids) {
  std::string bytes;
  for (const int32_t id : ids) {
    bytes += static_cast<char>(id & 0xFF);
    bytes += static_cast<char>(id >> 8 & 0xFF);
  }
  return sha256_hex(bytes);
}

std::vector<BpeMerge> merges_of(const json& list) {
  std::vector<BpeMerge> merges;
  for (const json& m : list) {
    merges.push_back({m.at(0).get<int32_t>(), m.at(1).get<int32_t>(), m.at(2).get<int32_t>()});
  }
  return merges;
}

std::vector<Specials> modes_of(const std::string& mode) {
  if (mode == "parsed") return {Specials::kParsed};
  if (mode == "plain") return {Specials::kPlain};
  if (mode == "both") return {Specials::kParsed, Specials::kPlain};
  fail("specials are \"{}\", which this program does not know", printable(mode));
}

// The ids of a text, which must decode to the text again.
Ids round_trip(const Tokenizer& tokenizer, const std::string& text, Specials specials) {
  Ids ids = tokenizer.encode(text, specials);
  expect_bytes("decoded again", tokenizer.decode(ids), text);
  return ids;
}

class Verifier {
 public:
  explicit Verifier(std::filesystem::path folder)
      : folder_(std::move(folder)), index_(read_json("index.json")) {
    constexpr std::string_view kFormat = "golden-tokenizer 1";
    if (!index_.is_object() || index_.value("format", json()) != kFormat) {
      fail("{}: not of the format {}", printable((folder_ / "index.json").native(), 4096), kFormat);
    }
  }

  std::vector<VerifyRow> run() {
    static const std::set<std::string> kKnown = {
        "format",  "set",       "judges",    "specials", "tie_order_of_bytes", "training", "tokenizer",
        "corpora", "encodings", "decodings", "files"};
    for (const auto& [section, value] : index_.items()) {
      if (kKnown.contains(section)) continue;
      rows_.push_back({section, "all", "a section that this program does not know", false, true});
    }
    if (index_.contains("specials")) row("constants", "specials", [&] { return check_specials(); });
    if (index_.contains("tie_order_of_bytes"))
      row("constants", "order of bytes", [&] { return check_order(); });
    rows("training", index_.value("training", json::array()), "name",
         [&](const json& c) { return check_training(c); });
    if (index_.contains("tokenizer")) row("tokenizer", "both files", [&] { return check_tokenizer(); });
    rows("corpora", index_.value("corpora", json::array()), "name",
         [&](const json& c) { return check_corpus(c); });
    section_file("encodings", [&](const json& c) { return check_encoding(c); });
    section_file("decodings", [&](const json& c) { return check_decoding(c); });
    if (index_.contains("decodings")) {
      for (const json& id : index_["decodings"].value("ids_to_refuse", json::array())) {
        row("decodings", "refuse " + id.dump(), [&] { return check_refused_id(id.get<int32_t>()); });
      }
    }
    rows("files", index_.value("files", json::array()), "file", [&](const json& c) { return check_file(c); });
    return std::move(rows_);
  }

 private:
  // A check throws what is wrong and returns what was compared.
  void row(const std::string& section, const std::string& name, const std::function<std::string()>& check) {
    VerifyRow row{section, name, "", false, false};
    try {
      row.detail = check();
      row.ok = true;
    } catch (const std::exception& error) {  // Error, or a member of the catalogue that isn't as described
      row.detail = printable(error.what(), 1000);
    }
    rows_.push_back(std::move(row));
  }

  void rows(const std::string& section, const json& cases, const char* name,
            const std::function<std::string(const json&)>& check) {
    for (const json& one : cases) {
      row(section, one.value(name, std::string("without a name")), [&] { return check(one); });
    }
  }

  void section_file(const std::string& section, const std::function<std::string(const json&)>& check) {
    if (!index_.contains(section)) return;
    json cases;
    row(section, "number of cases", [&] {
      cases = read_json(index_[section].at("file").get<std::string>());
      const auto wanted = index_[section].at("cases").get<size_t>();
      expect(cases.size() == wanted, fmt::format("{} cases, wanted {}", cases.size(), wanted));
      return fmt::format("{}", wanted);
    });
    rows(section, cases, "name", check);
  }

  std::string read(const json& file) const { return read_file(folder_ / file.get<std::string>()); }
  json read_json(const std::string& file) const {
    return parse_json(read_file(folder_ / file), printable((folder_ / file).native(), 4096));
  }

  const Tokenizer& tokenizer() {
    if (!tokenizer_) {
      tokenizer_ = Tokenizer::load(folder_ / index_.at("tokenizer").at("tokenizer_json").get<std::string>());
    }
    return *tokenizer_;
  }

  std::string check_specials() const {
    const std::vector<std::string> ours(kStorySpecials.begin(), kStorySpecials.end());
    expect_same("special tokens", ours, index_["specials"].get<std::vector<std::string>>());
    return fmt::format("{} names", ours.size());
  }

  std::string check_order() const {
    const std::vector<int> ours(bytes_by_letter().begin(), bytes_by_letter().end());
    expect_same("order of bytes", ours, index_["tie_order_of_bytes"].get<std::vector<int>>());
    return "256 bytes";
  }

  std::string check_training(const json& run) {
    const std::string text = read(run.at("text"));
    expect(sha256_hex(text) == run.at("text_sha256"), "the text has another sha256 than the catalogue says");
    BpeTrainOptions options;
    options.vocab_size = run.at("vocab_size").get<int>();
    options.min_frequency = run.at("min_frequency").get<int64_t>();
    const std::string_view view = text;
    const BpeTraining training = train_bpe({&view, 1}, options);
    const std::vector<BpeMerge> wanted = merges_of(read_json(run.at("merges").get<std::string>()));
    for (size_t i = 0; i < std::min(wanted.size(), training.merges.size()); ++i) {
      const BpeMerge &a = training.merges[i], &b = wanted[i];
      if (a != b) {
        fail("merge {} is [{}, {}, {}], wanted [{}, {}, {}]", i, a.left, a.right, a.result, b.left, b.right,
             b.result);
      }
    }
    expect(training.merges.size() == wanted.size(),
           fmt::format("{} merges, wanted {}", training.merges.size(), wanted.size()));
    expect(training.vocab_size == run.at("vocab_size_reached"), "another size is reached");
    expect(training.stories == run.at("stories"), fmt::format("{} stories are counted", training.stories));
    return fmt::format("{} merges of {} stories", wanted.size(), training.stories);
  }

  std::string check_tokenizer() {
    const json& section = index_["tokenizer"];
    const std::string text = read(section.at("tokenizer_json"));
    const TokenizerParts parts = parse_tokenizer(text, "tokenizer_json");
    const TokenizerParts course = parse_tokenizer(read(section.at("g2c_json")), "g2c_json");
    expect(parts == course, "the two files are not the same tokenizer");
    expect(Tokenizer(parts).fingerprint() == Tokenizer(course).fingerprint(), "the two fingerprints differ");
    expect(tokenizer().vocab_size() == section.at("vocab_size"), "another vocabulary size");
    expect(parts.merges.size() == section.at("merges"), "another number of merges");
    for (const json& run : index_.at("training")) {
      if (run.at("name") != section.at("trained_as")) continue;
      const Tokenizer trained =
          Tokenizer::from_merges(merges_of(read_json(run.at("merges").get<std::string>())));
      expect(trained.parts() == parts, "the file is not what training gave");
    }
    expect(format_tokenizer(parts) == text, "written again, it has other bytes than the library's");
    return fmt::format("{} tokens, the library's bytes when written", parts.tokens.size());
  }

  std::string check_corpus(const json& corpus) {
    const std::string text = read(corpus.at("file"));
    expect(sha256_hex(text) == corpus.at("sha256"), "the text has another sha256 than the catalogue says");
    for (const Specials mode : modes_of(corpus.at("specials"))) {
      const Ids ids = round_trip(tokenizer(), text, mode);
      const auto first = corpus.at("first").get<Ids>(), last = corpus.at("last").get<Ids>();
      expect(ids.size() == corpus.at("count"),
             fmt::format("{} ids, wanted {}", ids.size(), corpus.at("count").dump()));
      expect_same("first ids", Ids(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(first.size())), first);
      expect_same("last ids", Ids(ids.end() - static_cast<ptrdiff_t>(last.size()), ids.end()), last);
      expect(u16_digest(ids) == corpus.at("ids_u16le_sha256"), "the digest of all ids differs");
    }
    return fmt::format("{} ids", corpus.at("count").dump());
  }

  std::string check_encoding(const json& one) {
    std::string text = one.contains("base64") ? from_base64(one["base64"].get<std::string>())
                                              : one.at("text").get<std::string>();
    const std::string once = text;
    for (int i = 1; i < one.value("times", 1); ++i) text += once;
    Ids wanted;
    if (one.contains("ids_runs")) {
      for (const json& run : one["ids_runs"])
        wanted.insert(wanted.end(), run.at(1).get<size_t>(), run.at(0).get<int>());
    } else {
      wanted = one.at("ids").get<Ids>();
    }
    expect(wanted.size() == one.at("count"), "the golden data give another count than ids");
    for (const Specials mode : modes_of(one.at("specials"))) {
      expect_same("ids", round_trip(tokenizer(), text, mode), wanted);
    }
    return fmt::format("{} bytes, {} ids", text.size(), wanted.size());
  }

  void check_decoded(const Ids& ids, const json& wanted, bool skip) {
    const std::string bytes = tokenizer().decode(ids, skip);
    expect_bytes("bytes", bytes, from_base64(wanted.at("base64").get<std::string>()));
    expect_bytes("text", replace_invalid_utf8(bytes), wanted.at("text").get<std::string>());
    StreamDecoder stream(tokenizer(), skip), raw(tokenizer(), skip, InvalidUtf8::kKeep);
    std::vector<std::string> chunks;
    std::string raw_bytes;
    for (const int32_t id : ids) {
      chunks.push_back(stream.push(id));
      raw_bytes += raw.push(id);
    }
    expect_same("chunks", chunks, wanted.at("chunks").get<std::vector<std::string>>());
    expect_bytes("end", stream.finish(), wanted.at("end").get<std::string>());
    expect_bytes("streamed bytes", raw_bytes + raw.finish(), bytes);
  }

  std::string check_decoding(const json& one) {
    const Ids ids = one.at("ids").get<Ids>();
    check_decoded(ids, one, false);
    check_decoded(ids, one.value("skipped", one), true);
    return fmt::format("{} ids, bytes, text and chunks", ids.size());
  }

  std::string check_refused_id(int32_t id) {
    std::string message;
    try {
      tokenizer().decode(Ids{65, id});
    } catch (const Error& error) {
      message = error.what();
    }
    expect(!message.empty(), "the id is decoded");
    expect(message.find(std::to_string(id)) != message.npos, "the message does not name the id: " + message);
    return message;
  }

  std::string check_file(const json& one) {
    const std::filesystem::path path = folder_ / one.at("file").get<std::string>();
    const auto verdict = one.at("verdict").get<std::string>();
    expect(verdict == "read" || verdict == "refuse" || verdict == "either",
           "the verdict is \"" + printable(verdict) + "\", which this program does not know");
    std::optional<Tokenizer> read;
    std::string message;
    try {
      read = Tokenizer::load(path);
    } catch (const Error& error) {
      message = error.what();
    }
    if (!read) {
      expect(verdict != "read", "refused: " + message);
      expect(message.find_first_of("\r\n") == message.npos, "refused with more than one line");
      expect(message.starts_with(printable(path.native(), 4096) + ": "),
             "the message names no file: " + message);
      return message.substr(printable(path.native(), 4096).size() + 2);
    }
    expect(verdict != "refuse", "read, though " + one.at("why").get<std::string>());
    for (const json& example : one.at("examples")) {
      const auto text = example.at("text").get<std::string>();
      for (const Specials mode : modes_of(example.at("specials"))) {
        expect_same("ids", round_trip(*read, text, mode), example.at("ids").get<Ids>());
      }
    }
    const Tokenizer again(parse_tokenizer(format_tokenizer(read->parts()), "what was written"));
    expect(again.fingerprint() == read->fingerprint(), "written and read again, it is another tokenizer");
    return fmt::format("{} tokens, {} texts", read->vocab_size(), one.at("examples").size());
  }

  std::filesystem::path folder_;
  json index_;
  std::optional<Tokenizer> tokenizer_;
  std::vector<VerifyRow> rows_;
};

}  // namespace

std::vector<VerifyRow> verify_tokenizer(const std::filesystem::path& folder) {
  return Verifier(folder).run();
}

}  // namespace storytape
