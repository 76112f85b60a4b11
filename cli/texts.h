// From the command line's files to text, tokenizer and tokens.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "train/run.h"
#include "train/trainer.h"

namespace storytape::cli {

struct Texts {
  std::string train;
  std::string valid;
};

// The texts of a source: the files as they are, or the embedded corpus; where held-out files are not given,
// the last part of the training text is held out, whole stories. Fills in the checksums, or holds them
// against those that are there (an Error names what differs).
Texts load_texts(DataSource& source, const std::string& what);

// Where tokenizers and token ids are kept between runs: --cache, else $XDG_CACHE_HOME/storytape, else
// ~/.cache/storytape; empty (nothing kept) where there is no home.
std::filesystem::path default_cache();

// The tokenizer that training finds in the text at this vocabulary, from the cache if it has it.
Tokenizer trained_tokenizer(const std::string& text, const std::string& text_sha256, uint64_t vocab,
                            const std::filesystem::path& cache);

TrainingData tokenize(const Texts& texts, const Tokenizer& tokenizer, const std::filesystem::path& cache,
                      ThreadPool& pool);

}  // namespace storytape::cli
