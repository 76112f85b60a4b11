// storytape train
#include <chrono>

#include "cli/command.h"
#include "cli/progress.h"
#include "cli/texts.h"
#include "models/pattern.h"
#include "tensor/random.h"
#include "train/checkpoint.h"
#include "train/files.h"

namespace storytape::cli {
namespace {

namespace fs = std::filesystem;

// What the command line says; what it leaves open comes from the recipe and the preset.
struct Options {
  std::string model = "storylm-1m";
  std::string recipe = "default";
  std::optional<std::string> pattern, block, positions;
  std::vector<std::string> data, valid;
  std::string out;
  std::string tokenizer;
  std::string cache;
  bool no_cache = false;
  bool resume = false;
  bool overwrite = false;
  std::optional<uint64_t> vocab, max_seq, batch, context, steps, warmup, accumulate, seed;
  std::optional<uint64_t> log_every, eval_every, eval_windows, sample_every, save_every, keep, stop_after;
  std::optional<double> minutes, lr, min_lr, weight_decay, clip;
};

// Options that may be given for a new run and, where they say the same, for a resumed one.
void apply(const Options& o, RunSettings& s) {
  const auto set = [](auto& to, const auto& from) {
    if (from) to = static_cast<std::remove_reference_t<decltype(to)>>(*from);
  };
  set(s.model.max_seq, o.max_seq);
  set(s.model.block, o.block);
  set(s.model.positions, o.positions);
  if (o.pattern) s.model.pattern = parse_pattern(*o.pattern, s.model.layers());
  set(s.recipe.batch, o.batch);
  set(s.recipe.context, o.context);
  set(s.recipe.steps, o.steps);
  set(s.recipe.warmup, o.warmup);
  set(s.recipe.lr, o.lr);
  set(s.recipe.min_lr, o.min_lr);
  set(s.recipe.weight_decay, o.weight_decay);
  set(s.recipe.clip, o.clip);
  set(s.accumulate, o.accumulate);
  set(s.seed, o.seed);
  set(s.log_every, o.log_every);
  set(s.eval_every, o.eval_every);
  set(s.eval_windows, o.eval_windows);
  set(s.sample_every, o.sample_every);
  set(s.save_every, o.save_every);
  set(s.keep, o.keep);
  const auto files = [](std::vector<std::string>& to, const std::vector<std::string>& from) {
    if (from.empty()) return;
    to.clear();
    for (const std::string& name : from) to.push_back(fs::absolute(name).lexically_normal().string());
  };
  files(s.data.train_files, o.data);
  files(s.data.valid_files, o.valid);
}

RunSettings new_settings(const Options& o) {
  RunSettings s;
  s.model = preset(o.model);
  s.recipe = recipe(o.recipe);
  s.seed = 1;
  if (o.max_seq && !o.context) s.recipe.context = std::min<size_t>(s.recipe.context, *o.max_seq);
  apply(o, s);
  // A schedule shorter than the recipe's warm-up keeps a tenth of itself for it.
  if (!o.warmup) s.recipe.warmup = std::min(s.recipe.warmup, s.recipe.steps / 10);
  if (!o.min_lr) s.recipe.min_lr = std::min(s.recipe.min_lr, s.recipe.lr);
  const size_t tenth = std::max<size_t>(1, s.recipe.steps / 10);
  if (!o.eval_every) s.eval_every = tenth;
  if (!o.eval_windows) s.eval_windows = 64;
  if (!o.save_every) s.save_every = tenth;
  if (!o.sample_every) s.sample_every = 0;
  return s;
}

// Where two settings differ first, as "recipe.lr from 0.001 to 0.002".
std::string first_difference(const nlohmann::json& before, const nlohmann::json& after,
                             const std::string& prefix = "") {
  for (const auto& [key, value] : before.items()) {
    const nlohmann::json& other = after.at(key);
    if (value == other) continue;
    const std::string name = prefix.empty() ? key : prefix + "." + key;
    if (value.is_object()) return first_difference(value, other, name);
    return fmt::format("{} from {} to {}", name, value.dump(), other.dump());
  }
  return "";
}

RunSettings resumed_settings(const CLI::App& command, const Options& o) {
  const RunSettings stored = read_run_settings(o.out);
  for (const char* name : {"--tokenizer", "--minutes", "--overwrite", "--vocab"}) {
    if (command.count(name)) fail_usage("{} would change the run; leave it out with --resume", name);
  }
  RunSettings asked = stored;
  if (command.count("--model")) {
    const ModelConfig model = preset(o.model);
    asked.model.dim = model.dim;
    asked.model.heads = model.heads;
    asked.model.ffn = model.ffn;
    if (model.layers() != asked.model.layers()) asked.model.pattern = model.pattern;
  }
  if (command.count("--recipe")) asked.recipe.name = o.recipe;
  apply(o, asked);
  if (!(asked == stored)) {
    fail_usage("--resume can't change {}; leave the option out, or start another run",
               first_difference(to_json(stored), to_json(asked)));
  }
  return stored;
}

// Seconds per step, from a few steps of a model like the run's.
double measure_step(const RunSettings& settings, ThreadPool& pool) {
  using Clock = std::chrono::steady_clock;
  HybridLM<float> model(settings.model, settings.seed);
  AdamWOptimizer optimizer(model.parameters(), settings.recipe);
  LaneTrainer lanes(model, pool);
  const size_t sequences = settings.recipe.batch * settings.accumulate;
  const size_t tokens = sequences * settings.recipe.context;
  Random random(settings.seed, 1);
  std::vector<int32_t> x(tokens), y(tokens);
  for (auto& id : x) id = static_cast<int32_t>(random.below(settings.model.vocab));
  for (auto& id : y) id = static_cast<int32_t>(random.below(settings.model.vocab));
  size_t steps = 0;
  Clock::time_point start;
  double elapsed = 0;
  do {
    lanes.run(x, y, sequences, settings.recipe.context);
    optimizer.step(steps, lanes.gradients(), pool);
    if (steps++ == 0) start = Clock::now();
    elapsed = std::chrono::duration<double>(Clock::now() - start).count();
  } while (steps < 3 || elapsed < 2);
  return elapsed / static_cast<double>(steps - 1);
}

std::string describe(const RunSettings& s, size_t params, const TrainingData& data, const fs::path& run) {
  const std::string text = s.data.train_files.empty()
                               ? "the embedded corpus"
                               : fmt::format("{}", fmt::join(s.data.train_files, ", "));
  return fmt::format(
      "model   {} weights: {} layers ({}), D {}, {} heads, vocabulary {}, context {}\n"
      "text    {}: {} training tokens, {} held out\n"
      "recipe  {}: {} steps of {}x{} tokens, learning rate {} to {}, warm-up {}, weight decay {}{}, clip {}, "
      "seed {}\n"
      "run     {}",
      grouped(params), s.model.layers(), pattern_text(s.model.pattern), s.model.dim, s.model.heads,
      s.model.vocab, s.recipe.context, text, grouped(data.train.size()), grouped(data.valid.size()),
      s.recipe.name, grouped(s.recipe.steps), s.recipe.batch * s.accumulate, s.recipe.context, s.recipe.lr,
      s.recipe.min_lr, s.recipe.warmup, s.recipe.weight_decay,
      s.recipe.decay_all ? " on everything" : " on matrices", s.recipe.clip, s.seed, run.string());
}

int train(const CLI::App& command, Options& o, const Global& global) {
  if (o.resume && o.overwrite) fail_usage("--resume and --overwrite contradict each other");
  if (o.steps && o.minutes) fail_usage("--steps and --minutes contradict each other");
  const fs::path run = o.out;
  const fs::path cache = o.no_cache ? fs::path() : o.cache.empty() ? default_cache() : fs::path(o.cache);
  const auto notice = [](const std::string& line) { note(line); };
  ThreadPool pool(global.thread_count());

  RunSettings settings = o.resume ? resumed_settings(command, o) : new_settings(o);
  if (!o.resume) {
    settings.check();
    if (holds_run(run) && !o.overwrite) {
      fail("{} holds a run already: go on with it by --resume, or replace it by --overwrite", run.string());
    }
    if (fs::exists(run) && !fs::is_directory(run)) fail("{} is no folder; --out wants one", run.string());
  }
  const Texts texts = load_texts(settings.data, o.resume ? run.string() : "--data");
  const uint64_t vocab = o.vocab.value_or(settings.data.train_files.empty() ? 1024 : 4096);
  const Tokenizer tokenizer = o.resume ? Tokenizer::load(run / "tokenizer.json")
                              : !o.tokenizer.empty()
                                  ? Tokenizer::load(o.tokenizer)
                                  : trained_tokenizer(texts.train, settings.data.train_sha256, vocab, cache);
  if (o.resume && static_cast<size_t>(tokenizer.vocab_size()) != settings.model.vocab) {
    fail("{}: the tokenizer has {} tokens, the model {}", run.string(), tokenizer.vocab_size(),
         settings.model.vocab);
  }
  settings.model.vocab = static_cast<size_t>(tokenizer.vocab_size());
  const TrainingData data = tokenize(texts, tokenizer, cache, pool);
  if (o.minutes) {
    const double per_step = measure_step(settings, pool);
    settings.recipe.steps = std::max<size_t>(10, static_cast<size_t>(*o.minutes * 60 / per_step));
    if (!o.warmup) settings.recipe.warmup = std::min(settings.recipe.warmup, settings.recipe.steps / 10);
    const size_t tenth = std::max<size_t>(1, settings.recipe.steps / 10);
    if (!o.eval_every) settings.eval_every = tenth;
    if (!o.save_every) settings.save_every = tenth;
  }
  // What is too short for a window is refused before the folder is made.
  WindowSampler(data.train, settings.recipe.context, settings.seed);
  EvalWindows(data.valid, settings.recipe.context);
  if (!o.resume) create_run(run, settings, tokenizer, o.overwrite);

  Trainer trainer(run, settings, tokenizer, data, pool);
  size_t start = 0;
  if (o.resume) {
    start = trainer.restore(notice);
    note(start ? fmt::format("going on after step {}", start)
               : "no checkpoint yet; starting from the beginning");
  }
  const size_t params = trainer.model().parameters().elements();
  note(describe(settings, params, data, run));

  catch_interrupts();
  ProgressBar bar("train");
  TrainEvents events;
  events.on_notice = notice;
  events.should_stop = [] { return interrupted(); };
  std::string valid_text;
  events.on_step = [&](const StepProgress& p) {
    const size_t per_step = settings.recipe.batch * settings.accumulate * settings.recipe.context;
    const double left = static_cast<double>((p.steps - p.step) * per_step) / p.tokens_per_second;
    bar.update(
        p.step, p.steps,
        fmt::format("step {}/{}  loss {:.3f}{}  lr {:.1e}  |g| {:.2f}  {} tokens/s  {} left", p.step, p.steps,
                    p.loss, valid_text, p.report.learning_rate, p.report.gradient_norm,
                    p.tokens_per_second > 0 ? grouped(static_cast<uint64_t>(p.tokens_per_second)) : "-",
                    seconds_text(left)),
        p.step == 1 || p.step == p.steps);
  };
  events.on_eval = [&](size_t step, const Evaluation& e) {
    valid_text = fmt::format("  valid {:.3f}", e.loss());
    bar.line(
        fmt::format("step {}: held-out loss {:.4f}, {:.4f} bits/byte", step, e.loss(), e.bits_per_byte()));
  };
  std::string story;
  events.on_sample = [&](size_t step, const std::string& text) {
    story = text;
    if (step < settings.recipe.steps) bar.line(fmt::format("step {}: {}", step, printable(text, 2000)));
  };
  const TrainResult result =
      trainer.run(events, o.stop_after ? std::optional<size_t>(*o.stop_after) : std::nullopt);
  bar.finish();

  const uint64_t tokens =
      uint64_t{result.steps_done} * settings.recipe.batch * settings.accumulate * settings.recipe.context;
  nlohmann::json json = {{"run", run.string()},
                         {"steps", result.steps_done},
                         {"tokens", tokens},
                         {"params", params},
                         {"initial_loss", result.initial_loss},
                         {"train_loss", result.train_loss},
                         {"tokens_per_second", result.tokens_per_second},
                         {"weights_sha256", result.weights_sha256},
                         {"finished", result.finished}};
  json["valid_loss"] = result.finished ? nlohmann::json(result.valid.loss()) : nlohmann::json();
  json["valid_bits_per_byte"] =
      result.finished ? nlohmann::json(result.valid.bits_per_byte()) : nlohmann::json();
  if (global.json) {
    print_json(json);
  } else if (result.finished) {
    print(fmt::format(
        "steps            {}\ntokens           {}\ntraining loss    {:.4f} (first step {:.4f})\nheld-out "
        "loss    {:.4f} "
        "nats, perplexity {:.2f}\nbits per byte    {:.4f}\ntokens/s         {}\nweights_sha256   {}\n\n{}\n",
        grouped(result.steps_done), grouped(tokens), result.train_loss, result.initial_loss,
        result.valid.loss(), result.valid.perplexity(), result.valid.bits_per_byte(),
        grouped(static_cast<uint64_t>(result.tokens_per_second)), result.weights_sha256,
        replace_invalid_utf8(story)));
  }
  if (!result.finished) {
    note(fmt::format("stopped and saved after step {} of {}; go on with: storytape train --resume --out {}",
                     result.steps_done, settings.recipe.steps, run.string()));
    return interrupted() ? 130 : 0;
  }
  return 0;
}

}  // namespace

void add_train(const Program& program) {
  CLI::App* command = program.command(
      "train", "train a model and tell a story",
      "  storytape train --minutes 2 --out runs/first\n"
      "  storytape train --data train.txt --valid valid.txt --pattern linear,linear,linear,full --out "
      "runs/hybrid\n"
      "  storytape train --recipe course --data train.txt --valid valid.txt --out runs/course\n"
      "  storytape train --resume --out runs/hybrid\n");
  auto o = std::make_shared<Options>();
  command->add_option("--out", o->out, "folder of the run")->required()->type_name("RUN");
  command->add_flag("--resume", o->resume, "go on with the run in --out from its last good checkpoint");
  command->add_flag("--overwrite", o->overwrite, "replace the run in --out (its own files, nothing else)");
  command->add_option("--model", o->model, "storylm-1m, storylm-5m or storylm-30m")->capture_default_str();
  command->add_option("--pattern", o->pattern,
                      fmt::format("layers of the blocks: a list such as linear,linear,linear,full, [L,L,L,F] "
                                  "or 3*gla:rank=8,full, repeated "
                                  "over the blocks (default: full), of {}",
                                  layer_names()));
  command->add_option("--data", o->data, "text files, also .gz (default: the embedded corpus)")
      ->type_name("FILE...");
  command
      ->add_option("--valid", o->valid, "held-out text files (default: the last 5% of the training stories)")
      ->type_name("FILE...");
  command->add_option("--tokenizer", o->tokenizer, "a tokenizer.json (default: train one on the text)")
      ->type_name("FILE");
  whole_option(command, "--vocab", o->vocab, 264, 1u << 20,
               "vocabulary of the tokenizer to train (default: 4096; 1024 for the embedded corpus)");
  command->add_option("--recipe", o->recipe, "default or course")->capture_default_str();
  whole_option(command, "--steps", o->steps, 1, 1u << 30, "optimizer steps (default: the recipe's)");
  real_option(command, "--minutes", o->minutes, 0.01, 1e6,
              "instead of --steps: as many as fit, by a short measurement; recorded in the run");
  whole_option(command, "--batch", o->batch, 1, 1u << 20, "sequences per pass (default: the recipe's)");
  whole_option(command, "--accumulate", o->accumulate, 1, 4096, "passes per optimizer step (default: 1)");
  whole_option(command, "--context", o->context, 1, 1u << 24, "tokens per sequence (default: the recipe's)");
  whole_option(command, "--max-seq", o->max_seq, 1, 1u << 24, "rows of the position table (default: 256)");
  command->add_option("--block", o->block,
                      "course (layer norm, GELU) or modern (RMS norm, SwiGLU); default: course");
  command->add_option("--positions", o->positions, "learned, rope or none (default: learned)");
  real_option(command, "--lr", o->lr, 0, 1e6, "peak learning rate (default: the recipe's)");
  real_option(command, "--min-lr", o->min_lr, 0, 1e6, "learning rate at the end (default: the recipe's)");
  whole_option(command, "--warmup", o->warmup, 0, 1u << 30,
               "optimizer steps of warm-up (default: the recipe's)");
  real_option(command, "--weight-decay", o->weight_decay, 0, 1e3,
              "decoupled weight decay (default: the recipe's)");
  real_option(command, "--clip", o->clip, 0, 1e30, "largest gradient norm, 0: none (default: the recipe's)");
  whole_option(command, "--seed", o->seed, 0, UINT64_MAX, "of weights, windows and samples (default: 1)");
  whole_option(command, "--log-every", o->log_every, 1, 1u << 30,
               "steps between rows of metrics.jsonl (default: 10)");
  whole_option(command, "--eval-every", o->eval_every, 0, 1u << 30,
               "steps between held-out losses, 0: at the end (default: a tenth of the run)");
  whole_option(command, "--eval-windows", o->eval_windows, 0, 1u << 30,
               "windows of those on the way, 0: all (default: 64)");
  whole_option(command, "--sample-every", o->sample_every, 0, 1u << 30,
               "steps between sample stories, 0: at the end (default: 0)");
  whole_option(command, "--save-every", o->save_every, 0, 1u << 30,
               "steps between checkpoints, 0: at the end (default: a tenth of the run)");
  whole_option(command, "--keep", o->keep, 1, 1u << 20, "checkpoints kept (default: 2)");
  whole_option(command, "--stop-after", o->stop_after, 0, 1u << 30,
               "save and stop after this step; go on by --resume");
  command->add_option("--cache", o->cache, "folder for tokenizers and tokens (default: ~/.cache/storytape)")
      ->type_name("DIR");
  command->add_flag("--no-cache", o->no_cache, "keep no tokenizer and tokens for later runs");
  command->callback([command, o, &program = program.run, &global = program.global] {
    program = [command, o, &global] { return train(*command, *o, global); };
  });
}

}  // namespace storytape::cli
