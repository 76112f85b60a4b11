// storytape eval
#include "cli/command.h"
#include "cli/texts.h"
#include "train/evaluate.h"
#include "train/safetensors.h"
#include "train/text.h"

namespace storytape::cli {
namespace {

struct Options {
  std::string run;
  std::vector<std::string> files;
  std::optional<uint64_t> context;
  uint64_t windows = 0;
  std::string logits;
};

// The logits of the first window and its tokens, for other programs to be held against.
void write_logits(const HybridLM<float>& model, const TokenStream& stream, size_t context,
                  const std::string& path) {
  const EvalWindows windows(stream, context);
  const size_t length = windows[0].targets;
  std::vector<int32_t> x(length), y(length);
  windows.window(0, x, y);
  Tape<float> tape;
  const NoGrad<float> no_grad(tape);
  const Tensor<float> logits = model.logits(tape, x, 1, length).value();
  write_safetensors(path, {{"tokens", Dtype::I32, {length}, x.data()},
                           {"logits", Dtype::F32, {length, model.config().vocab}, logits.data()}});
}

int eval(const Options& o, const Global& global) {
  const LoadedModel loaded = load_model(o.run, [](const std::string& line) { note(line); });
  const size_t context = o.context ? static_cast<size_t>(*o.context) : loaded.config.max_seq;
  if (context > loaded.config.context_limit()) {
    fail_usage("--context {} is longer than the model's {}", context, loaded.config.max_seq);
  }
  std::string text;
  if (o.files.empty()) {
    DataSource source = read_run_settings(std::filesystem::is_directory(o.run)
                                              ? std::filesystem::path(o.run)
                                              : loaded.checkpoint.parent_path().parent_path())
                            .data;
    text = load_texts(source, o.run).valid;
  } else {
    text = load_text({o.files.begin(), o.files.end()});
  }
  ThreadPool pool(global.thread_count());
  const TokenStream stream = encode_text(text, loaded.tokenizer, pool);
  if (!o.logits.empty()) write_logits(*loaded.model, stream, context, o.logits);
  const Evaluation e = evaluate(*loaded.model, stream, loaded.tokenizer, context, o.windows, pool);
  if (global.json) {
    print_json({{"loss", e.loss()},
                {"perplexity", e.perplexity()},
                {"bits_per_byte", e.bits_per_byte()},
                {"tokens", e.tokens},
                {"bytes", e.bytes},
                {"checkpoint", loaded.checkpoint.string()}});
  } else {
    print(fmt::format(
        "loss           {:.4f} nats per token\nperplexity     {:.2f}\nbits per byte  {:.4f}\ntokens         "
        "{}\nbytes          {}\n",
        e.loss(), e.perplexity(), e.bits_per_byte(), grouped(e.tokens), grouped(e.bytes)));
  }
  return 0;
}

}  // namespace

void add_eval(const Program& program) {
  CLI::App* command = program.command("eval", "loss, perplexity and bits per byte of a model on text",
                                      "  storytape eval runs/first\n"
                                      "  storytape eval runs/first valid.txt --context 128\n");
  auto o = std::make_shared<Options>();
  command->add_option("run", o->run, "folder of a run, or a checkpoint in it")->required()->type_name("RUN");
  command->add_option("files", o->files, "text files, also .gz (default: the run's held-out text)")
      ->type_name("FILE");
  whole_option(command, "--context", o->context, 1, 1u << 24,
               "tokens per window (default: all the model can take)");
  whole_option(command, "--windows", o->windows, 0, 1u << 30, "windows, evenly spread, 0: all");
  command->add_option("--logits", o->logits, "also write the first window's tokens and logits as safetensors")
      ->type_name("FILE");
  command->callback(
      [o, &run = program.run, &global = program.global] { run = [o, &global] { return eval(*o, global); }; });
}

}  // namespace storytape::cli
