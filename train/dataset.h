// Tokens of a text, and the windows that training and evaluation read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/threads.h"
#include "train/tokenizer.h"

namespace storytape {

// Token ids of a text, 16 bits each where the vocabulary allows it (at most 65,536 tokens), else 32.
class TokenStream {
 public:
  explicit TokenStream(size_t vocab_size = 0);

  size_t size() const { return wide_ids() ? wide_.size() : narrow_.size(); }
  size_t vocab_size() const { return vocab_size_; }
  bool wide_ids() const { return vocab_size_ > kNarrowVocab; }
  int32_t operator[](size_t i) const {
    return wide_ids() ? static_cast<int32_t>(wide_[i]) : static_cast<int32_t>(narrow_[i]);
  }
  // Copies ids [begin, begin + out.size()). REQUIRES: they are there.
  void copy(size_t begin, std::span<int32_t> out) const;

  // Appends ids. Throws if one is outside the vocabulary.
  void append(std::span<const int32_t> ids);

  // The ids as they lie in memory and in a cache file: 2 or 4 bytes each.
  size_t id_bytes() const { return wide_ids() ? sizeof(uint32_t) : sizeof(uint16_t); }
  std::span<const std::byte> raw() const;
  // Takes ids in that form, replacing what is there. Throws if one is outside the vocabulary or part of one
  // is missing.
  void assign_raw(std::span<const std::byte> raw);

  bool operator==(const TokenStream&) const = default;

 private:
  static constexpr size_t kNarrowVocab = 65'536;

  size_t vocab_size_;
  std::vector<uint16_t> narrow_;
  std::vector<uint32_t> wide_;
};

// Called now and then with the bytes encoded so far and the bytes of the whole text.
using EncodeProgress = std::function<void(uint64_t done, uint64_t all)>;

// The ids of a data text, separators parsed: tokenizer.encode(text, Specials::kParsed), cut at separators and
// spread over the threads so that memory beyond the result stays small. The same ids for any number of
// threads.
TokenStream encode_text(std::string_view text, const Tokenizer& tokenizer, ThreadPool& pool,
                        const EncodeProgress& progress = {});

// encode_text with a file in `folder` (made if missing) that spares the work the next time the same text
// meets the same tokenizer. A cache file that is damaged or can't be read is made anew, and `notice` is told
// so in one line. Throws if the file can't be written; a file is whole or not there. With an empty folder
// nothing is kept.
TokenStream cached_encode_text(std::string_view text, const Tokenizer& tokenizer, ThreadPool& pool,
                               const std::filesystem::path& folder,
                               const std::function<void(const std::string&)>& notice = {},
                               const EncodeProgress& progress = {});

// Bytes of the true text behind tokens [begin, end); a separator counts as the bytes of its text.
uint64_t text_bytes(const TokenStream& stream, const Tokenizer& tokenizer, size_t begin, size_t end);

// Training windows: T + 1 adjacent tokens, x the first T, y the last T. Each is drawn uniformly from all
// places of the stream (separators and all), with replacement, as a pure function of (seed, step, index). So
// a run goes on after any step without further state, and window `index` of a step is the same whatever batch
// or lanes it is part of.
class WindowSampler {
 public:
  // The stream must outlive the sampler. Throws if it is shorter than context + 1, naming `what`.
  WindowSampler(const TokenStream& stream, size_t context, uint64_t seed,
                std::string_view what = "training text");

  size_t context() const { return context_; }
  // How many different windows there are: size - T.
  size_t windows() const { return stream_->size() - context_; }
  // Where a window begins.
  size_t start(uint64_t step, uint32_t index) const { return start(seed_, step, index, windows()); }
  // x [T], y [T].
  void window(uint64_t step, uint32_t index, std::span<int32_t> x, std::span<int32_t> y) const;

  static size_t start(uint64_t seed, uint64_t step, uint32_t index, uint64_t windows);

 private:
  const TokenStream* stream_;
  size_t context_;
  uint64_t seed_;
};

// Evaluation windows: adjacent, T targets each, the last one with what is left, in order. Every token but the
// first, which nothing predicts, is a target exactly once; the context begins anew in each window.
class EvalWindows {
 public:
  struct Window {
    size_t begin = 0;    // x is tokens [begin, begin + targets), y the same shifted by one
    size_t targets = 0;  // T, or 1..T in the last window
  };

  // The stream must outlive the windows. Throws if it has fewer than 2 tokens, naming `what`.
  EvalWindows(const TokenStream& stream, size_t context, std::string_view what = "held-out text");

  size_t size() const;
  Window operator[](size_t i) const;
  // x [targets], y [targets].
  void window(size_t i, std::span<int32_t> x, std::span<int32_t> y) const;

  // Over all windows: targets, and the bytes of the true text that they stand for.
  uint64_t targets() const { return stream_->size() - 1; }
  uint64_t target_bytes(const Tokenizer& tokenizer) const {
    return text_bytes(*stream_, tokenizer, 1, stream_->size());
  }

 private:
  const TokenStream* stream_;
  size_t context_;
};

}  // namespace storytape
