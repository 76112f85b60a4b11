#include "train/dataset.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "tensor/error.h"
#include "tensor/random.h"
#include "train/text.h"
#include "train/token_cache.h"

namespace storytape {
namespace {

[[noreturn]] void fail_outside(int64_t id, size_t vocab_size) {
  fail("token id {} does not fit a vocabulary of {} tokens", id, vocab_size);
}

template <class Id>
void append_ids(std::span<const int32_t> ids, size_t vocab_size, std::vector<Id>& out) {
  for (const int32_t id : ids) {
    if (id < 0 || static_cast<size_t>(id) >= vocab_size) fail_outside(id, vocab_size);
  }
  out.insert(out.end(), ids.begin(), ids.end());
}

template <class Id>
void assign_ids(std::span<const std::byte> raw, size_t vocab_size, std::vector<Id>& out) {
  if (raw.size() % sizeof(Id) != 0)
    fail("{} bytes of token ids, wanted a multiple of {}", raw.size(), sizeof(Id));
  std::vector<Id> ids(raw.size() / sizeof(Id));
  if (!raw.empty()) std::memcpy(ids.data(), raw.data(), raw.size());
  for (const Id id : ids) {
    if (id >= vocab_size) fail_outside(id, vocab_size);
  }
  out = std::move(ids);
}

// Pieces of at least this many bytes, if the text has separators enough.
constexpr size_t kPieceBytes = size_t{1} << 18;

// The end of the piece that begins at `begin`: after a separator, so that no merge is cut.
size_t piece_end(std::string_view text, size_t begin) {
  return text.size() - begin <= kPieceBytes ? text.size() : story_end(text, begin + kPieceBytes);
}

// Whether the text encodes as its pieces between separators do: the separator is a special token, and no
// place of another special token can cross it.
bool separators_cut(const Tokenizer& tokenizer) {
  if (!tokenizer.special_id(kStorySeparator)) return false;
  std::vector<std::string> specials;
  for (const int32_t id : tokenizer.parts().specials) specials.push_back(tokenizer.token_bytes(id));
  return !specials_can_overlap(specials);
}

}  // namespace

TokenStream::TokenStream(size_t vocab_size) : vocab_size_(vocab_size) {
  constexpr size_t kLargest = std::numeric_limits<int32_t>::max();
  if (vocab_size > kLargest)
    fail("a vocabulary of {} tokens is too large, wanted at most {}", vocab_size, kLargest);
}

void TokenStream::copy(size_t begin, std::span<int32_t> out) const {
  const auto from = static_cast<std::ptrdiff_t>(begin);
  if (wide_ids()) {
    std::copy_n(wide_.begin() + from, out.size(), out.begin());
  } else {
    std::copy_n(narrow_.begin() + from, out.size(), out.begin());
  }
}

void TokenStream::append(std::span<const int32_t> ids) {
  wide_ids() ? append_ids(ids, vocab_size_, wide_) : append_ids(ids, vocab_size_, narrow_);
}

std::span<const std::byte> TokenStream::raw() const {
  return wide_ids() ? std::as_bytes(std::span(wide_)) : std::as_bytes(std::span(narrow_));
}

void TokenStream::assign_raw(std::span<const std::byte> raw) {
  wide_ids() ? assign_ids(raw, vocab_size_, wide_) : assign_ids(raw, vocab_size_, narrow_);
}

TokenStream encode_text(std::string_view text, const Tokenizer& tokenizer, ThreadPool& pool,
                        const EncodeProgress& progress) {
  TokenStream stream(static_cast<size_t>(tokenizer.vocab_size()));
  const bool cut = separators_cut(tokenizer);
  std::vector<std::string_view> pieces;
  std::vector<std::vector<int32_t>> ids;
  for (size_t begin = 0; begin < text.size();) {
    // One round: a few pieces for each thread, appended in order.
    pieces.clear();
    while (begin < text.size() && pieces.size() < 4 * pool.threads()) {
      const size_t end = cut ? piece_end(text, begin) : text.size();
      pieces.push_back(text.substr(begin, end - begin));
      begin = end;
    }
    ids.assign(pieces.size(), {});
    pool.parallel_for(pieces.size(),
                      [&](size_t i) { tokenizer.encode(pieces[i], Specials::kParsed, ids[i]); });
    for (const std::vector<int32_t>& piece : ids) stream.append(piece);
    if (progress) progress(begin, text.size());
  }
  return stream;
}

TokenStream cached_encode_text(std::string_view text, const Tokenizer& tokenizer, ThreadPool& pool,
                               const std::filesystem::path& folder,
                               const std::function<void(const std::string&)>& notice,
                               const EncodeProgress& progress) {
  if (folder.empty()) return encode_text(text, tokenizer, pool, progress);
  const TokenCache cache(folder, text, tokenizer);
  if (auto stream = cache.read(notice)) return *std::move(stream);
  TokenStream stream = encode_text(text, tokenizer, pool, progress);
  cache.write(stream);
  return stream;
}

uint64_t text_bytes(const TokenStream& stream, const Tokenizer& tokenizer, size_t begin, size_t end) {
  std::vector<uint64_t> times(stream.vocab_size());
  for (size_t i = begin; i < end; ++i) ++times[static_cast<size_t>(stream[i])];
  uint64_t bytes = 0;
  for (size_t id = 0; id < times.size(); ++id) {
    if (times[id] > 0) bytes += times[id] * tokenizer.token_bytes(static_cast<int32_t>(id)).size();
  }
  return bytes;
}

WindowSampler::WindowSampler(const TokenStream& stream, size_t context, uint64_t seed, std::string_view what)
    : stream_(&stream), context_(context), seed_(seed) {
  if (context == 0) fail("context is 0, wanted at least 1");
  if (stream.size() <= context) {
    fail("the {} has {} tokens, wanted at least {} for a window of context {}", what, stream.size(),
         context + 1, context);
  }
}

size_t WindowSampler::start(uint64_t seed, uint64_t step, uint32_t index, uint64_t windows) {
  // A draw may take more than one number; each index has 2^32 to itself.
  Random random(seed, step);
  random.seek(uint64_t{index} << 32);
  return random.below(windows);
}

void WindowSampler::window(uint64_t step, uint32_t index, std::span<int32_t> x, std::span<int32_t> y) const {
  if (x.size() != context_ || y.size() != context_) {
    fail("a window of context {} was asked for {} and {} tokens", context_, x.size(), y.size());
  }
  const size_t begin = start(step, index);
  stream_->copy(begin, x);
  stream_->copy(begin + 1, y);
}

EvalWindows::EvalWindows(const TokenStream& stream, size_t context, std::string_view what)
    : stream_(&stream), context_(context) {
  if (context == 0) fail("context is 0, wanted at least 1");
  if (stream.size() < 2) {
    fail("the {} has {} {}, wanted at least 2: one to read and one to predict", what, stream.size(),
         stream.size() == 1 ? "token" : "tokens");
  }
}

size_t EvalWindows::size() const {
  return (targets() + context_ - 1) / context_;
}

EvalWindows::Window EvalWindows::operator[](size_t i) const {
  if (i >= size()) fail("evaluation window {} was asked for, of {}", i, size());
  const size_t begin = i * context_;
  return {begin, std::min<size_t>(context_, targets() - begin)};
}

void EvalWindows::window(size_t i, std::span<int32_t> x, std::span<int32_t> y) const {
  const Window w = (*this)[i];
  if (x.size() != w.targets || y.size() != w.targets) {
    fail("an evaluation window of {} targets was asked for {} and {} tokens", w.targets, x.size(), y.size());
  }
  stream_->copy(w.begin, x);
  stream_->copy(w.begin + 1, y);
}

}  // namespace storytape
