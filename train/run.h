// A run's folder: everything needed to rebuild the model, repeat the run, or go on with it.
//
//   config.json      settings (below)              checkpoints/step-N.safetensors   the last good ones
//   tokenizer.json   in the Hugging Face form      metrics.jsonl                    one object per logged
//   step samples/         stories told on the way       plots/                           made by `storytape
//   plot`
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/hybrid_lm.h"
#include "train/recipe.h"
#include "train/tokenizer.h"

namespace storytape {

// Where a run's text came from.
struct DataSource {
  std::vector<std::string> train_files;  // absolute; empty: the embedded corpus
  std::vector<std::string> valid_files;  // absolute; empty: a part of the training text is held out
  uint64_t corpus_seed = 0;              // of the embedded corpus
  std::string train_sha256;              // of the texts, so that a resumed run notices other data
  std::string valid_sha256;
  bool operator==(const DataSource&) const = default;
};

struct RunSettings {
  ModelConfig model;
  Recipe recipe;
  DataSource data;
  uint64_t seed = 0;
  size_t accumulate = 1;    // passes of `recipe.batch` sequences per optimizer step
  size_t log_every = 10;    // steps between rows of metrics.jsonl
  size_t eval_every = 0;    // steps between evaluations on held-out text; 0: at the end alone
  size_t eval_windows = 0;  // windows of an evaluation on the way; 0: all
  size_t sample_every = 0;  // steps between sample stories; 0: none
  size_t save_every = 0;    // steps between checkpoints; 0: at the end alone
  size_t keep = 2;          // checkpoints kept

  void check() const;
  bool operator==(const RunSettings&) const = default;
};

nlohmann::json to_json(const RunSettings& settings);
// Refuses members that are missing, unknown, mistyped or out of range, each by name.
RunSettings run_settings_from_json(const nlohmann::json& json, const std::string& what);

// Makes the folder of a new run with config.json and tokenizer.json. An Error if the folder holds a run
// already (naming
// --resume and --overwrite) or is no folder. With `overwrite`, the files of a run in it are replaced, and
// nothing else.
void create_run(const std::filesystem::path& run, const RunSettings& settings, const Tokenizer& tokenizer,
                bool overwrite);
bool holds_run(const std::filesystem::path& run);
RunSettings read_run_settings(const std::filesystem::path& run);

// A trained model with its tokenizer: a run's folder (its last good checkpoint) or one checkpoint file in it.
struct LoadedModel {
  ModelConfig config;
  Tokenizer tokenizer;
  std::unique_ptr<HybridLM<float>> model;
  std::filesystem::path checkpoint;
  size_t step = 0;
};
// An Error if tokenizer and model disagree about the vocabulary (both numbers), or no checkpoint can be read;
// `notice` hears of each damaged checkpoint that was passed over.
LoadedModel load_model(const std::filesystem::path& path,
                       const std::function<void(const std::string&)>& notice);

}  // namespace storytape
