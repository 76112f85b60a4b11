// storytape generate
#include <chrono>

#include "cli/command.h"
#include "models/generate.h"
#include "train/run.h"

namespace storytape::cli {
namespace {

struct Options {
  std::string run;
  std::string prompt = "Once upon a time";
  bool specials = false;
  uint64_t tokens = 120;
  double temperature = 0.8;
  uint64_t top_k = 0;
  double top_p = 0.9;
  double min_p = 0;
  double repetition_penalty = 1.1;
  uint64_t seed = 1;
  bool ignore_end = false;
};

const char* text(StoppedBy reason) {
  switch (reason) {
    case StoppedBy::kEndOfText:
      return "end_of_text";
    case StoppedBy::kTokens:
      return "tokens";
    case StoppedBy::kCaller:
      return "interrupted";
  }
  return "";
}

int generate(const Options& o, const Global& global) {
  const LoadedModel loaded = load_model(o.run, [](const std::string& line) { note(line); });
  GenerateOptions options;
  options.tokens = o.tokens;
  options.seed = o.seed;
  options.sampler = {.temperature = o.temperature,
                     .top_k = static_cast<int64_t>(o.top_k),
                     .top_p = o.top_p,
                     .min_p = o.min_p,
                     .repetition_penalty = o.repetition_penalty};
  options.sampler.check();
  if (!o.ignore_end) options.stop = loaded.tokenizer.end_of_text();

  // A story follows an end-of-text and a newline, as in the training text.
  std::vector<int32_t> prompt = {loaded.tokenizer.end_of_text()};
  loaded.tokenizer.encode("\n" + o.prompt, o.specials ? Specials::kParsed : Specials::kPlain, prompt);
  if (prompt.size() > loaded.config.context_limit()) {
    note(fmt::format("the prompt has {} tokens, the model's context {}; only its end is used", prompt.size(),
                     loaded.config.max_seq));
  }

  catch_interrupts();
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  std::string told;
  Utf8Stream characters;
  const auto give = [&](const std::string& piece) {
    told += piece;
    if (!global.json && !piece.empty()) print(piece);
  };
  if (!global.json) print(o.prompt);
  const GenerateResult result = storytape::generate(*loaded.model, prompt, options, [&](int32_t id) {
    give(characters.push(loaded.tokenizer.token_bytes(id)));
    return !interrupted();
  });
  give(characters.finish());
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (global.json) {
    print_json({{"prompt", o.prompt},
                {"text", told},
                {"tokens", result.tokens},
                {"tokens_per_second", seconds > 0 ? static_cast<double>(result.tokens) / seconds : 0.0},
                {"stopped_by", text(result.stopped_by)}});
  } else {
    print("\n");
  }
  if (result.context_moved && prompt.size() <= loaded.config.context_limit()) {
    note(fmt::format(
        "the text grew past the context of {} tokens; its first half was forgotten each time it was full",
        loaded.config.max_seq));
  }
  return interrupted() ? 130 : 0;
}

}  // namespace

void add_generate(const Program& program) {
  CLI::App* command =
      program.command("generate", "tell a story with a trained model",
                      "  storytape generate runs/first\n"
                      "  storytape generate runs/first --prompt \"Lily had a red ball\" --tokens 200\n"
                      "  storytape generate runs/first --temperature 0\n");
  auto o = std::make_shared<Options>();
  command->add_option("run", o->run, "folder of a run, or a checkpoint in it")->required()->type_name("RUN");
  command->add_option("--prompt", o->prompt, "what the story begins with; may be empty")
      ->capture_default_str();
  command->add_flag("--parse-specials", o->specials,
                    "let <|endoftext|> and the like in the prompt be special tokens");
  whole_option(command, "--tokens", o->tokens, 0, 1u << 30, "most tokens to draw");
  real_option(command, "--temperature", o->temperature, 0, 1e30, "0: always the most probable token");
  whole_option(command, "--top-k", o->top_k, 0, INT64_MAX, "draw from the k most probable tokens, 0: off");
  real_option(command, "--top-p", o->top_p, 0, 1,
              "draw from the most probable tokens that reach p together, 1: off");
  real_option(command, "--min-p", o->min_p, 0, 1,
              "draw from tokens with p times the largest probability, 0: off");
  real_option(command, "--repetition-penalty", o->repetition_penalty, 1e-6, 1e6,
              "divides the logits of tokens that were there before, 1: off");
  whole_option(command, "--seed", o->seed, 0, UINT64_MAX, "of the drawing");
  command->add_flag("--ignore-end", o->ignore_end, "go on after the end of a story");
  command->callback([o, &run = program.run, &global = program.global] {
    run = [o, &global] { return generate(*o, global); };
  });
}

}  // namespace storytape::cli
