#include "train/trainer.h"

#include <chrono>
#include <cmath>

#include "models/generate.h"
#include "train/checkpoint.h"
#include "train/files.h"
#include "train/lanes.h"
#include "train/metrics.h"

namespace storytape {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Windows are drawn from other streams than the weights.
constexpr uint64_t kWindowSalt = 0x77696e646f777321;

constexpr const char* kSamplePrompt = "Once upon a time";

}  // namespace

std::string sample_story(const HybridLM<float>& model, const Tokenizer& tokenizer, const std::string& prompt,
                         size_t tokens, uint64_t seed) {
  GenerateOptions options;
  options.tokens = tokens;
  options.stop = tokenizer.end_of_text();
  options.seed = seed;
  options.sampler = {.temperature = 0.8, .top_p = 0.9, .repetition_penalty = 1.1};
  // A story begins after an end-of-text and its newline, as in the training text.
  std::vector<int32_t> ids = {tokenizer.end_of_text()};
  tokenizer.encode("\n" + prompt, Specials::kPlain, ids);
  std::vector<int32_t> told;
  generate(model, ids, options, [&](int32_t id) {
    told.push_back(id);
    return true;
  });
  return prompt + tokenizer.decode(told, /*skip_specials=*/true);
}

WindowSampler training_windows(const TokenStream& train, const RunSettings& settings) {
  return WindowSampler(train, settings.recipe.context, settings.seed ^ kWindowSalt);
}

Trainer::Trainer(std::filesystem::path run, const RunSettings& settings, const Tokenizer& tokenizer,
                 const TrainingData& data, ThreadPool& pool)
    : folder_(std::move(run)),
      settings_(settings),
      tokenizer_(tokenizer),
      data_(data),
      pool_(pool),
      model_(settings.model, settings.seed),
      optimizer_(model_.parameters(), settings.recipe),
      lanes_(model_, pool),
      windows_(training_windows(data.train, settings)) {
  const size_t tokens = settings.recipe.batch * settings.accumulate * settings.recipe.context;
  tokens_.resize(tokens);
  targets_.resize(tokens);
}

size_t Trainer::restore(const std::function<void(const std::string&)>& notice) {
  remove_leftover_temporaries(folder_ / "checkpoints");
  auto checkpoints = list_checkpoints(folder_);
  while (!checkpoints.empty()) {
    const auto [number, path] = checkpoints.back();
    checkpoints.pop_back();
    try {
      step_ = *load_checkpoint(path, model_.parameters(), &optimizer_);
      return step_;
    } catch (const Error& error) {
      if (notice) notice(fmt::format("{}; going back to an earlier checkpoint", error.what()));
    }
  }
  return step_ = 0;
}

double Trainer::one_step(size_t step, StepReport& report) {
  const size_t context = settings_.recipe.context;
  const size_t sequences = settings_.recipe.batch * settings_.accumulate;
  for (size_t i = 0; i < sequences; ++i) {
    windows_.window(step, static_cast<uint32_t>(i), std::span(tokens_).subspan(i * context, context),
                    std::span(targets_).subspan(i * context, context));
  }
  double loss = 0;
  try {
    loss = lanes_.run(tokens_, targets_, sequences, context);
  } catch (const Error& error) {
    fail("step {}: {}", step + 1, error.what());
  }
  report = optimizer_.step(step, lanes_.gradients(), pool_);
  return loss;
}

void Trainer::save(size_t step) {
  save_checkpoint(checkpoint_path(folder_, step), model_.parameters(), &optimizer_, step);
  auto checkpoints = list_checkpoints(folder_);
  // One beyond this step is damaged: restore() went back behind it.
  std::erase_if(checkpoints, [&](const auto& checkpoint) {
    return checkpoint.first > step && std::filesystem::remove(checkpoint.second);
  });
  for (size_t i = 0; i + settings_.keep < checkpoints.size(); ++i)
    std::filesystem::remove(checkpoints[i].second);
}

std::string Trainer::sample(size_t step) {
  std::string story = sample_story(model_, tokenizer_, kSamplePrompt, 120, settings_.seed);
  std::filesystem::create_directories(folder_ / "samples");
  write_file_atomic(folder_ / "samples" / fmt::format("step-{}.txt", step), story + "\n");
  return story;
}

TrainResult Trainer::run(const TrainEvents& events, std::optional<size_t> stop_after) {
  MetricsLog log(folder_ / "metrics.jsonl", step_, events.on_notice);
  const size_t steps = settings_.recipe.steps;
  const size_t step_tokens = tokens_.size();
  TrainResult result;
  if (log.first()) initial_loss_ = log.first()->value("loss", 0.0);
  if (log.last()) last_loss_ = log.last()->value("loss", 0.0);

  double training_seconds = 0;  // of steps alone
  double reported_seconds = 0;  // at the last report
  size_t reported_step = step_;
  const size_t first_step = step_;
  std::optional<size_t> saved;
  const auto due = [](size_t done, size_t every) { return every && done % every == 0; };
  const auto stopped = [&] {
    return (stop_after && step_ >= *stop_after) || (events.should_stop && events.should_stop());
  };

  bool stop = step_ < steps && stopped();
  while (step_ < steps && !stop) {
    const auto start = Clock::now();
    StepProgress progress;
    last_loss_ = one_step(step_, progress.report);
    training_seconds += seconds_since(start);
    if (step_ == 0) initial_loss_ = last_loss_;
    ++step_;
    const bool last = step_ == steps;

    std::optional<Evaluation> evaluation;
    if (due(step_, settings_.eval_every) && !last) {
      evaluation =
          evaluate(model_, data_.valid, tokenizer_, settings_.recipe.context, settings_.eval_windows, pool_);
    }
    const bool logged = step_ == 1 || due(step_, settings_.log_every) || last || evaluation;
    const double seconds = training_seconds - reported_seconds;
    progress.step = step_;
    progress.steps = steps;
    progress.loss = last_loss_;
    progress.tokens_per_second =
        seconds > 0 ? static_cast<double>((step_ - reported_step) * step_tokens) / seconds : 0;
    if (logged) {
      nlohmann::json row = {{"step", step_},
                            {"tokens", step_ * step_tokens},
                            {"loss", last_loss_},
                            {"learning_rate", progress.report.learning_rate},
                            {"gradient_norm", progress.report.gradient_norm},
                            {"tokens_per_second", progress.tokens_per_second}};
      if (evaluation) {
        row["valid_loss"] = evaluation->loss();
        row["valid_bits_per_byte"] = evaluation->bits_per_byte();
      }
      log.write(row);
      reported_seconds = training_seconds;
      reported_step = step_;
    }
    if (events.on_step) events.on_step(progress);
    if (evaluation && events.on_eval) events.on_eval(step_, *evaluation);
    if (due(step_, settings_.sample_every) && !last) {
      const std::string story = sample(step_);
      if (events.on_sample) events.on_sample(step_, story);
    }
    stop = !last && stopped();
    if (due(step_, settings_.save_every) || last || stop) {
      save(step_);
      saved = step_;
    }
  }
  if (!saved && stop) save(step_);

  result.steps_done = step_;
  result.finished = step_ >= steps;
  result.initial_loss = initial_loss_;
  result.train_loss = last_loss_;
  result.tokens_per_second =
      training_seconds > 0 ? static_cast<double>((step_ - first_step) * step_tokens) / training_seconds : 0;
  if (result.finished) {
    result.valid = evaluate(model_, data_.valid, tokenizer_, settings_.recipe.context, 0, pool_);
    if (events.on_eval) events.on_eval(step_, result.valid);
    const std::string story = sample(step_);
    if (events.on_sample) events.on_sample(step_, story);
  }
  result.weights_sha256 = weights_sha256(model_.parameters());
  return result;
}

}  // namespace storytape
