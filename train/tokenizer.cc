#include "train/tokenizer.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "tensor/error.h"
#include "train/bpe_encoder.h"
#include "train/files.h"
#include "train/sha256.h"
#include "train/tokenizer_json.h"
#include "train/tokenizer_specials.h"

namespace storytape {

struct Tokenizer::Data {
  TokenizerParts parts;
  std::vector<bool> is_special;
  SpecialFinder finder;
  BpeEncoder encoder;
};

namespace {

// A few dozen merges can double a token to more than any memory.
constexpr size_t kMostTokenBytes = size_t{64} << 20;

std::array<int32_t, 256> byte_ids_of(const TokenizerParts& parts, const std::vector<bool>& is_special) {
  std::array<int32_t, 256> ids;
  ids.fill(-1);
  for (size_t id = 0; id < parts.tokens.size(); ++id) {
    if (is_special[id] || parts.tokens[id].size() != 1) continue;
    int32_t& of_byte = ids[static_cast<uint8_t>(parts.tokens[id][0])];
    if (of_byte >= 0) fail("tokenizer: tokens {} and {} are the same byte", of_byte, id);
    of_byte = static_cast<int32_t>(id);
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    if (ids[byte] < 0) fail("tokenizer: the byte 0x{:02X} has no token", byte);
  }
  return ids;
}

void check_merges(const TokenizerParts& parts, const std::vector<bool>& is_special) {
  std::set<std::pair<int32_t, int32_t>> pairs;
  for (size_t i = 0; i < parts.merges.size(); ++i) {
    const BpeMerge& merge = parts.merges[i];
    for (const int32_t id : {merge.left, merge.right, merge.result}) {
      if (id < 0 || static_cast<size_t>(id) >= parts.tokens.size() || is_special[id]) {
        fail("tokenizer: merge {} names the id {}, wanted an ordinary token below {}", i, id,
             parts.tokens.size());
      }
    }
    const std::string &left = parts.tokens[merge.left], &right = parts.tokens[merge.right];
    const std::string& result = parts.tokens[merge.result];
    if (left.size() + right.size() != result.size() || !result.starts_with(left) ||
        !result.ends_with(right)) {
      fail("tokenizer: merge {} makes the token {} of {} and {}, which have other bytes", i, merge.result,
           merge.left, merge.right);
    }
    if (!pairs.emplace(merge.left, merge.right).second) {
      fail("tokenizer: merge {} merges {} and {}, as an earlier one does", i, merge.left, merge.right);
    }
  }
}

}  // namespace

TokenizerParts parts_from_merges(std::span<const BpeMerge> merges, std::span<const std::string> specials) {
  TokenizerParts parts;
  for (int byte = 0; byte < 256; ++byte) parts.tokens.emplace_back(1, static_cast<char>(byte));
  for (const std::string& special : specials) {
    parts.specials.push_back(static_cast<int32_t>(parts.tokens.size()));
    parts.tokens.push_back(special);
  }
  size_t total = 0;
  for (const auto& [left, right, result] : merges) {
    const auto next = static_cast<int32_t>(parts.tokens.size());
    if (result != next || left < 0 || left >= next || right < 0 || right >= next) {
      fail("the merge [{}, {}, {}] comes where token {} is made of older ones", left, right, result, next);
    }
    const size_t length = parts.tokens[left].size() + parts.tokens[right].size();
    total += length;
    if (total > kMostTokenBytes) {
      fail("token {} has {} bytes, all up to it {}, wanted at most {}", next, length, total, kMostTokenBytes);
    }
    parts.tokens.push_back(parts.tokens[left] + parts.tokens[right]);
  }
  parts.merges.assign(merges.begin(), merges.end());
  return parts;
}

Tokenizer::Tokenizer(TokenizerParts parts) {
  auto data = std::make_shared<Data>();
  const size_t size = parts.tokens.size();
  data->is_special.assign(size, false);
  std::vector<std::string> special_texts;
  for (const int32_t id : parts.specials) {
    if (id < 0 || static_cast<size_t>(id) >= size) {
      fail("tokenizer: special id {}, wanted below {}", id, size);
    }
    if (data->is_special[id]) fail("tokenizer: the special id {} is given twice", id);
    const std::string& text = parts.tokens[id];
    if (text.empty()) fail("tokenizer: the special token {} has no text", id);
    if (std::find(special_texts.begin(), special_texts.end(), text) != special_texts.end()) {
      fail("tokenizer: the special token \"{}\" is given twice", printable(text));
    }
    data->is_special[id] = true;
    special_texts.push_back(text);
  }
  const std::array<int32_t, 256> byte_ids = byte_ids_of(parts, data->is_special);
  check_merges(parts, data->is_special);
  data->finder = SpecialFinder(std::move(special_texts));
  data->encoder = BpeEncoder(byte_ids, parts.merges, parts.tokens);
  data->parts = std::move(parts);
  data_ = std::move(data);
}

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  return Tokenizer(parse_tokenizer(read_file(path), printable(path.native(), 4096)));
}

Tokenizer Tokenizer::from_merges(std::span<const BpeMerge> merges, std::span<const std::string> specials) {
  return Tokenizer(parts_from_merges(merges, specials));
}

Tokenizer Tokenizer::from_merges(std::span<const BpeMerge> merges) {
  return from_merges(merges, std::vector<std::string>(kStorySpecials.begin(), kStorySpecials.end()));
}

void Tokenizer::save(const std::filesystem::path& path) const {
  write_file_atomic(path, format_tokenizer(data_->parts));
}

int Tokenizer::vocab_size() const {
  return static_cast<int>(data_->parts.tokens.size());
}

const TokenizerParts& Tokenizer::parts() const {
  return data_->parts;
}

bool Tokenizer::is_special(int32_t id) const {
  token_bytes(id);
  return data_->is_special[id];
}

std::optional<int32_t> Tokenizer::special_id(std::string_view text) const {
  for (const int32_t id : data_->parts.specials) {
    if (data_->parts.tokens[id] == text) return id;
  }
  return std::nullopt;
}

int32_t Tokenizer::end_of_text() const {
  const std::optional<int32_t> id = special_id(kEndOfText);
  if (!id) fail("the tokenizer has no special token {}, which separates stories", kEndOfText);
  return *id;
}

const std::string& Tokenizer::token_bytes(int32_t id) const {
  const std::vector<std::string>& tokens = data_->parts.tokens;
  if (id < 0 || static_cast<size_t>(id) >= tokens.size()) {
    fail("token id {} is outside the vocabulary, wanted 0 to {}", id, tokens.size() - 1);
  }
  return tokens[id];
}

void Tokenizer::encode(std::string_view text, Specials specials, std::vector<int32_t>& ids) const {
  if (specials == Specials::kPlain) return data_->encoder.encode(text, ids);
  for (size_t at = 0; at < text.size();) {
    const SpecialFinder::Found found = data_->finder.find(text, at);
    data_->encoder.encode(text.substr(at, found.begin - at), ids);
    if (found.index >= 0) ids.push_back(data_->parts.specials[found.index]);
    at = found.begin + found.length;
  }
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, Specials specials) const {
  std::vector<int32_t> ids;
  encode(text, specials, ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_specials) const {
  std::string bytes;
  for (const int32_t id : ids) {
    const std::string& token = token_bytes(id);
    if (!skip_specials || !data_->is_special[id]) bytes += token;
  }
  return bytes;
}

std::string Tokenizer::fingerprint() const {
  // Texts are preceded by their lengths, so that no two tokenizers give the same content.
  const TokenizerParts& parts = data_->parts;
  std::string content = fmt::format("storytape tokenizer 1\n{} tokens\n", parts.tokens.size());
  for (size_t id = 0; id < parts.tokens.size(); ++id) {
    content += fmt::format("{}{}:", data_->is_special[id] ? 's' : 't', parts.tokens[id].size());
    content += parts.tokens[id];
    content += '\n';
  }
  content += fmt::format("{} merges\n", parts.merges.size());
  for (const BpeMerge& merge : parts.merges) {
    content += fmt::format("{} {} {}\n", merge.left, merge.right, merge.result);
  }
  return sha256_hex(content);
}

std::string StreamDecoder::push(int32_t id) {
  const std::string& bytes = tokenizer_.token_bytes(id);
  return skip_specials_ && tokenizer_.is_special(id) ? std::string() : text_.push(bytes);
}

}  // namespace storytape
