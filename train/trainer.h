// The training loop of one run.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "models/hybrid_lm.h"
#include "tensor/threads.h"
#include "train/dataset.h"
#include "train/evaluate.h"
#include "train/lanes.h"
#include "train/optimizer.h"
#include "train/run.h"

namespace storytape {

// The text of a run as tokens.
struct TrainingData {
  TokenStream train;
  TokenStream valid;
};

// The windows that a run's steps read: sequence i of step s is window (s, i), i < batch · accumulate.
WindowSampler training_windows(const TokenStream& train, const RunSettings& settings);

// One optimizer step, as reported while training.
struct StepProgress {
  size_t step = 0;   // steps done, this one included
  size_t steps = 0;  // of the whole run
  double loss = 0;
  StepReport report;
  double tokens_per_second = 0;  // since the last report, evaluation and saving left out; 0: not known yet
};

// What the caller hears while a run goes on; each may be empty.
struct TrainEvents {
  std::function<void(const StepProgress&)> on_step;
  std::function<void(size_t step, const Evaluation&)> on_eval;
  std::function<void(size_t step, const std::string& story)> on_sample;
  std::function<void(const std::string&)> on_notice;
  // Asked after each step; true saves a checkpoint and ends the call.
  std::function<bool()> should_stop;
};

struct TrainResult {
  size_t steps_done = 0;
  bool finished = false;         // false: stopped by should_stop or stop_after
  double initial_loss = 0;       // of the first step of the run
  double train_loss = 0;         // of the last step
  Evaluation valid;              // over all of the held-out text, at the end
  double tokens_per_second = 0;  // of this call's training steps
  std::string weights_sha256;
};

// Trains in a folder that create_run made. A run that was stopped anywhere goes on to the same bits.
class Trainer {
 public:
  // `data` and `pool` must outlive the trainer.
  Trainer(std::filesystem::path run, const RunSettings& settings, const Tokenizer& tokenizer,
          const TrainingData& data, ThreadPool& pool);

  // Goes back to the last good checkpoint of the folder and returns its step; without one, to the start (0).
  // `notice` hears of damaged checkpoints. metrics.jsonl is cut back to that step.
  size_t restore(const std::function<void(const std::string&)>& notice);

  // Trains to the end of the schedule, or until `stop_after` steps are done. A loss or gradient that is not
  // finite is an Error that names step and tensor; the last good checkpoint stays.
  TrainResult run(const TrainEvents& events, std::optional<size_t> stop_after = std::nullopt);

  HybridLM<float>& model() { return model_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  double one_step(size_t step, StepReport& report);
  void save(size_t step);
  std::string sample(size_t step);

  std::filesystem::path folder_;
  RunSettings settings_;
  const Tokenizer& tokenizer_;
  const TrainingData& data_;
  ThreadPool& pool_;
  HybridLM<float> model_;
  AdamWOptimizer optimizer_;
  LaneTrainer lanes_;
  WindowSampler windows_;
  std::vector<int32_t> tokens_, targets_;
  size_t step_ = 0;
  double initial_loss_ = 0;
  double last_loss_ = 0;
};

// A story that begins with `prompt`, drawn by the options of the course's samples: temperature 0.8, top-p
// 0.9, repetition penalty 1.1, to the end of the text or `tokens` tokens.
std::string sample_story(const HybridLM<float>& model, const Tokenizer& tokenizer, const std::string& prompt,
                         size_t tokens, uint64_t seed);

}  // namespace storytape
