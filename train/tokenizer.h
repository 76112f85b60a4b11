// Byte-level BPE: text to token ids and back, lossless on any bytes.
//
// There is no splitting pattern: merges cross spaces and words. Nothing is normalised, stripped or prefixed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "train/bpe_alphabet.h"
#include "train/tokenizer_utf8.h"

namespace storytape {

// What becomes of a special token's text ("<|endoftext|>") inside a text that is encoded.
enum class Specials {
  kPlain,   // it is ordinary bytes; data and prompts can't gain control
  kParsed,  // it becomes the special token's id, and the text is cut there
};

// Everything a tokenizer is, as files state it.
struct TokenizerParts {
  std::vector<std::string> tokens;  // by id: the bytes; of a special token its text
  std::vector<int32_t> specials;    // ids
  std::vector<BpeMerge> merges;     // by rank
  bool operator==(const TokenizerParts&) const = default;
};

// Parts as training gives them: bytes 0..255, then the specials, then the merges by age. Throws if a merge's
// parts or result are not in that order, or if all tokens together have more than 64 MiB.
TokenizerParts parts_from_merges(std::span<const BpeMerge> merges, std::span<const std::string> specials);

class Tokenizer {
 public:
  // Reads a Hugging Face tokenizer.json or the course's g2c.bpe (see tokenizer_json.h for what is refused).
  static Tokenizer load(const std::filesystem::path& path);

  // Of parts_from_merges, with these specials or with the eight of StoryTokenizer.
  static Tokenizer from_merges(std::span<const BpeMerge> merges, std::span<const std::string> specials);
  static Tokenizer from_merges(std::span<const BpeMerge> merges);

  // Throws if the parts don't fit together: a byte without a token, a special that is empty or given twice, a
  // pair merged twice, a merge of tokens that are special or don't exist.
  explicit Tokenizer(TokenizerParts parts);

  // Writes a tokenizer.json that Hugging Face's tokenizers reads and that gives the same ids there.
  void save(const std::filesystem::path& path) const;

  int vocab_size() const;
  const TokenizerParts& parts() const;
  bool is_special(int32_t id) const;
  // The id of a special token by its text.
  std::optional<int32_t> special_id(std::string_view text) const;
  // The id of <|endoftext|>. Throws if there is none.
  int32_t end_of_text() const;
  // The bytes of a token; of a special its text. Throws if the id is outside the vocabulary.
  const std::string& token_bytes(int32_t id) const;

  // Time is linear in the text. Safe from several threads at once.
  std::vector<int32_t> encode(std::string_view text, Specials specials) const;
  // Appends to ids.
  void encode(std::string_view text, Specials specials, std::vector<int32_t>& ids) const;

  // The bytes of the tokens; a special gives its text, or nothing where specials are skipped. The bytes need
  // not be UTF-8: see replace_invalid_utf8. Throws if an id is outside the vocabulary.
  std::string decode(std::span<const int32_t> ids, bool skip_specials = false) const;

  // SHA-256 of everything that ids depend on; the same for both file forms.
  std::string fingerprint() const;

 private:
  struct Data;
  std::shared_ptr<const Data> data_;  // shared by copies, never changed
};

// Text from tokens that arrive one by one, cut between characters.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, bool skip_specials = false,
                         InvalidUtf8 invalid = InvalidUtf8::kReplace)
      : tokenizer_(std::move(tokenizer)), skip_specials_(skip_specials), text_(invalid) {}

  // The characters that this token makes whole, maybe none. Throws if the id is outside the vocabulary.
  std::string push(int32_t id);
  // What is left of a character that has begun.
  std::string finish() { return text_.finish(); }

 private:
  Tokenizer tokenizer_;
  bool skip_specials_;
  Utf8Stream text_;
};

}  // namespace storytape
