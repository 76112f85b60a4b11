// What the commands for tokenizers and data share: where texts, tokenizers and words come from, and groups of
// commands.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/command.h"
#include "train/tokenizer.h"

namespace storytape::cli {

// A command that stands for others ("tokenizer" for "tokenizer train"); they are added to what is returned.
Program command_group(const Program& program, const std::string& name, const std::string& description,
                      const std::string& examples);

// A tokenizer file, or the one in the folder of a run.
Tokenizer load_tokenizer(const std::filesystem::path& path);

// The bytes of the files; of the word "embedded" alone, the training part of the embedded corpus.
std::string text_of(const std::vector<std::string>& files);

// Everything on standard input, as it is.
std::string read_stdin();

// An Error if a regular file is there already and may not be overwritten, or if its folder is missing.
void refuse_existing(const std::filesystem::path& file, bool overwrite);

}  // namespace storytape::cli
