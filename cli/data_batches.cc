// storytape data batches
#include "cli/command.h"
#include "cli/texts.h"
#include "train/safetensors.h"

namespace storytape::cli {
namespace {

struct Options {
  std::string run;
  std::string out;
  uint64_t steps = 10;
};

int batches(const Options& o, const Global& global) {
  RunSettings settings = read_run_settings(o.run);
  const Tokenizer tokenizer = Tokenizer::load(std::filesystem::path(o.run) / "tokenizer.json");
  ThreadPool pool(global.thread_count());
  const Texts texts = load_texts(settings.data, o.run);
  const TokenStream stream = encode_text(texts.train, tokenizer, pool);
  const WindowSampler windows = training_windows(stream, settings);
  const size_t sequences = settings.recipe.batch * settings.accumulate;
  const size_t context = settings.recipe.context;
  if (o.steps * sequences * context > (size_t{1} << 30)) {
    fail_usage("{} steps of {} × {} tokens are too many for one file", o.steps, sequences, context);
  }
  std::vector<int32_t> x(o.steps * sequences * context);
  std::vector<int32_t> y(x.size());
  for (size_t step = 0, at = 0; step < o.steps; ++step) {
    for (size_t i = 0; i < sequences; ++i, at += context) {
      windows.window(step, static_cast<uint32_t>(i), std::span(x).subspan(at, context),
                     std::span(y).subspan(at, context));
    }
  }
  const std::vector<uint64_t> shape = {o.steps, sequences, context};
  write_safetensors(o.out,
                    {{"tokens", Dtype::I32, shape, x.data()}, {"targets", Dtype::I32, shape, y.data()}});
  if (global.json) {
    print_json({{"file", o.out}, {"steps", o.steps}, {"sequences", sequences}, {"context", context}});
  } else {
    print(fmt::format("{}: the batches of {} steps, {} sequences of {} tokens each\n", o.out, o.steps,
                      sequences, context));
  }
  return 0;
}

}  // namespace

void add_data_batches(const Program& program) {
  CLI::App* command =
      program.command("batches", "the tokens that a run's first steps train on, for other programs",
                      "  storytape data batches runs/first --steps 50 --out batches.safetensors\n");
  auto o = std::make_shared<Options>();
  command->add_option("run", o->run, "folder of a run")->required()->type_name("RUN");
  whole_option(command, "--steps", o->steps, 1, 1u << 20, "steps from the first");
  command->add_option("--out", o->out, "a safetensors file: tokens and targets [steps, sequences, context]")
      ->required()
      ->type_name("FILE");
  command->callback([o, &run = program.run, &global = program.global] {
    run = [o, &global] { return batches(*o, global); };
  });
}

}  // namespace storytape::cli
