// The file that keeps the tokens of one text under one tokenizer. All numbers little-endian:
//
//   0    8   magic "STTOKENS"
//   8    4   version, 1
//   12   4   bytes per id, 2 or 4
//   16   8   vocabulary size
//   24   8   number of ids, n
//   32   64  sha256 of the text, in hexadecimal
//   96   64  fingerprint of the tokenizer, in hexadecimal
//   160      the ids
//   then 64  sha256 of everything before, in hexadecimal
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "train/dataset.h"

namespace storytape {

class TokenCache {
 public:
  TokenCache(const std::filesystem::path& folder, std::string_view text, const Tokenizer& tokenizer);

  // In the folder, named after both keys.
  const std::filesystem::path& path() const { return path_; }

  // The tokens; nothing if there is no file, and nothing but a notice if it is damaged, cut, foreign or
  // unreadable.
  std::optional<TokenStream> read(const std::function<void(const std::string&)>& notice = {}) const;
  // Makes the folder if it is missing. The file is whole or not there. Throws if it can't be written.
  void write(const TokenStream& stream) const;

 private:
  std::string header(size_t id_bytes, size_t ids) const;
  TokenStream parse(std::string_view file) const;

  std::filesystem::path folder_, path_;
  std::string text_sha256_, fingerprint_;
  size_t vocab_size_;
};

}  // namespace storytape
