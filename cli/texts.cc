#include "cli/texts.h"

#include <cstdlib>

#include "cli/progress.h"
#include "train/bpe_trainer.h"
#include "train/corpus.h"
#include "train/sha256.h"
#include "train/text.h"

namespace storytape::cli {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> paths(const std::vector<std::string>& names) {
  return {names.begin(), names.end()};
}

void check_sha(std::string& known, const std::string& text, const std::string& what) {
  const std::string sha = sha256_hex(text);
  if (!known.empty() && known != sha) fail("{}: the text is not the one that the run began with", what);
  known = sha;
}

}  // namespace

Texts load_texts(DataSource& source, const std::string& what) {
  Texts texts;
  if (source.train_files.empty()) {
    SplitCorpus corpus = embedded_corpus(source.corpus_seed);
    texts = {std::move(corpus.train), std::move(corpus.valid)};
    if (!source.valid_files.empty()) texts.valid = load_text(paths(source.valid_files));
  } else if (source.valid_files.empty()) {
    const std::string all = load_text(paths(source.train_files));
    const TextSplit split = split_stories(all);
    texts = {std::string(split.train), std::string(split.held_out)};
  } else {
    texts = {load_text(paths(source.train_files)), load_text(paths(source.valid_files))};
  }
  check_sha(source.train_sha256, texts.train, what + " (training text)");
  check_sha(source.valid_sha256, texts.valid, what + " (held-out text)");
  return texts;
}

fs::path default_cache() {
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg) return fs::path(xdg) / "storytape";
  if (const char* home = std::getenv("HOME"); home && *home) return fs::path(home) / ".cache" / "storytape";
  return {};
}

Tokenizer trained_tokenizer(const std::string& text, const std::string& text_sha256, uint64_t vocab,
                            const fs::path& cache) {
  const fs::path path = cache / fmt::format("tokenizer-{}-{}.json", vocab, text_sha256.substr(0, 32));
  if (!cache.empty() && fs::exists(path)) {
    try {
      return Tokenizer::load(path);
    } catch (const Error& error) {
      note(fmt::format("{}; training the tokenizer anew", error.what()));
    }
  }
  BpeTrainOptions options;
  options.vocab_size = static_cast<int>(vocab);
  ProgressBar bar("tokenizer");
  options.progress = [&](int done, int wanted) {
    bar.update(static_cast<uint64_t>(done), static_cast<uint64_t>(wanted));
  };
  const std::string_view texts[] = {text};
  const BpeTraining training = train_bpe(texts, options);
  bar.finish();
  if (static_cast<uint64_t>(training.vocab_size) < vocab) {
    note(fmt::format("the text has pairs for {} tokens only; the vocabulary is {} instead of {}",
                     training.vocab_size, training.vocab_size, vocab));
  }
  Tokenizer tokenizer = Tokenizer::from_merges(training.merges);
  if (!cache.empty()) {
    try {
      fs::create_directories(cache);
      tokenizer.save(path);
    } catch (const std::exception& error) {
      note(fmt::format("the tokenizer is not kept for the next run: {}", error.what()));
    }
  }
  return tokenizer;
}

TrainingData tokenize(const Texts& texts, const Tokenizer& tokenizer, const fs::path& cache,
                      ThreadPool& pool) {
  const auto encode = [&](const std::string& text, const char* label) {
    ProgressBar bar(label);
    const auto progress = [&](uint64_t done, uint64_t all) { bar.update(done, all); };
    const auto notice = [&](const std::string& line) { note(line); };
    TokenStream stream;
    try {
      stream = cached_encode_text(text, tokenizer, pool, cache, notice, progress);
    } catch (const Error& error) {
      if (cache.empty()) throw;
      note(fmt::format("{}; going on without a token cache", error.what()));
      stream = encode_text(text, tokenizer, pool, progress);
    }
    bar.finish();
    return stream;
  };
  return {encode(texts.train, "tokens"), encode(texts.valid, "tokens")};
}

}  // namespace storytape::cli
