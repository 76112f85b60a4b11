#include "train/token_cache.h"

#include <bit>
#include <cstring>
#include <system_error>

#include "tensor/error.h"
#include "train/files.h"
#include "train/sha256.h"

namespace storytape {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "ids are written as they lie in memory");

constexpr std::string_view kMagic = "STTOKENS";
constexpr uint32_t kVersion = 1;
constexpr size_t kHexDigits = 64;
constexpr size_t kCountAt = 24;
constexpr size_t kHeaderBytes = 160;

template <class Number>
void put(std::string& out, Number number) {
  char bytes[sizeof(Number)];
  std::memcpy(bytes, &number, sizeof(Number));
  out.append(bytes, sizeof(Number));
}

}  // namespace

TokenCache::TokenCache(const fs::path& folder, std::string_view text, const Tokenizer& tokenizer)
    : folder_(folder),
      text_sha256_(sha256_hex(text)),
      fingerprint_(tokenizer.fingerprint()),
      vocab_size_(static_cast<size_t>(tokenizer.vocab_size())) {
  constexpr size_t kShown = 16;
  path_ = folder /
          fmt::format("tokens-{}-{}.bin", text_sha256_.substr(0, kShown), fingerprint_.substr(0, kShown));
}

std::string TokenCache::header(size_t id_bytes, size_t ids) const {
  std::string out(kMagic);
  put(out, kVersion);
  put(out, static_cast<uint32_t>(id_bytes));
  put(out, static_cast<uint64_t>(vocab_size_));
  put(out, static_cast<uint64_t>(ids));
  return out + text_sha256_ + fingerprint_;
}

// Everything but the number of ids is known beforehand, and that follows from the length, so a sound file has
// just one possible header.
TokenStream TokenCache::parse(std::string_view file) const {
  TokenStream stream(vocab_size_);
  if (file.size() < kHeaderBytes + kHexDigits) fail("it is cut short");
  const std::string_view body = file.substr(kHeaderBytes, file.size() - kHeaderBytes - kHexDigits);
  const std::string_view given = file.substr(0, kHeaderBytes);
  if (given.substr(0, kMagic.size()) != kMagic) fail("it is no token cache");
  uint64_t count = 0;
  std::memcpy(&count, given.data() + kCountAt, sizeof(count));
  if (count != body.size() / stream.id_bytes() || body.size() % stream.id_bytes() != 0) {
    fail("its length does not fit its {} ids", count);
  }
  if (given != header(stream.id_bytes(), count)) fail("it is of another version, text or tokenizer");
  if (sha256_hex(file.substr(0, kHeaderBytes + body.size())) != file.substr(kHeaderBytes + body.size())) {
    fail("its checksum is wrong");
  }
  stream.assign_raw(std::as_bytes(std::span(body.data(), body.size())));
  return stream;
}

std::optional<TokenStream> TokenCache::read(const std::function<void(const std::string&)>& notice) const {
  std::error_code none;
  if (!fs::exists(path_, none)) return std::nullopt;
  try {
    return parse(read_file(path_));
  } catch (const Error& error) {
    if (notice) {
      notice(fmt::format("the token cache {} is made anew: {}",
                         printable(path_.native(), path_.native().size()), error.what()));
    }
    return std::nullopt;
  }
}

void TokenCache::write(const TokenStream& stream) const {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error)
    fail("cannot make folder {}: {}", printable(folder_.native(), folder_.native().size()), error.message());
  remove_leftover_temporaries(folder_);
  const std::string head = header(stream.id_bytes(), stream.size());
  const std::span<const std::byte> ids = stream.raw();
  Sha256 sha256;
  sha256.update(head.data(), head.size());
  sha256.update(ids.data(), ids.size());
  const std::string digest = sha256.hex();
  write_file_atomic(path_, [&](const WritePiece& write) {
    write(head.data(), head.size());
    write(ids.data(), ids.size());
    write(digest.data(), digest.size());
  });
}

}  // namespace storytape
