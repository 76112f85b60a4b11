// storytape data make, prepare, info
#include <algorithm>

#include "cli/command.h"
#include "cli/input.h"
#include "cli/progress.h"
#include "cli/texts.h"
#include "train/corpus.h"
#include "train/files.h"
#include "train/text.h"

namespace storytape::cli {
namespace {

namespace fs = std::filesystem;

struct MakeOptions {
  std::string out;
  uint64_t bytes = kEmbeddedBytes;
  uint64_t seed = 0;
  bool overwrite = false;
};

int make(const MakeOptions& o, const Global& global) {
  const fs::path folder = o.out;
  if (fs::exists(folder) && !fs::is_directory(folder))
    fail("{} is no folder; --out wants one", folder.string());
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail("cannot make the folder {}: {}", folder.string(), error.message());
  const fs::path train = folder / "train.txt", valid = folder / "valid.txt";
  for (const fs::path& file : {train, valid}) refuse_existing(file, o.overwrite);
  const SplitCorpus corpus = embedded_corpus(o.seed, static_cast<size_t>(o.bytes));
  write_file_atomic(train, corpus.train);
  write_file_atomic(valid, corpus.valid);
  if (global.json) {
    print_json({{"train", train.string()},
                {"valid", valid.string()},
                {"train_bytes", corpus.train.size()},
                {"valid_bytes", corpus.valid.size()},
                {"stories", describe_text(corpus.train).stories + describe_text(corpus.valid).stories},
                {"seed", o.seed}});
  } else {
    print(fmt::format("{}: {}, {} stories\n{}: {}, {} stories\n", train.string(),
                      bytes_text(corpus.train.size()), grouped(describe_text(corpus.train).stories),
                      valid.string(), bytes_text(corpus.valid.size()),
                      grouped(describe_text(corpus.valid).stories)));
  }
  return 0;
}

struct PrepareOptions {
  std::vector<std::string> files, valid;
  std::string tokenizer;
  std::optional<uint64_t> vocab;
  std::string cache;
};

// Does what `train` would do first with the same --data, --valid, --tokenizer, --vocab and --cache.
int prepare(const PrepareOptions& o, const Global& global) {
  if (o.vocab && !o.tokenizer.empty()) fail_usage("--vocab and --tokenizer contradict each other");
  const fs::path cache = o.cache.empty() ? default_cache() : fs::path(o.cache);
  if (cache.empty()) fail("there is no folder for the cache: name one by --cache, or set HOME");
  DataSource source;
  if (o.files != std::vector<std::string>{"embedded"}) source.train_files = o.files;
  source.valid_files = o.valid;
  const Texts texts = load_texts(source, "data");
  const uint64_t vocab = o.vocab.value_or(source.train_files.empty() ? 1024 : 4096);
  const Tokenizer tokenizer = o.tokenizer.empty()
                                  ? trained_tokenizer(texts.train, source.train_sha256, vocab, cache)
                                  : load_tokenizer(o.tokenizer);
  ThreadPool pool(global.thread_count());
  const TrainingData data = tokenize(texts, tokenizer, cache, pool);
  const auto per_token = [](const std::string& text, const TokenStream& stream) {
    return static_cast<double>(text.size()) / static_cast<double>(std::max<size_t>(1, stream.size()));
  };
  if (global.json) {
    print_json({{"cache", cache.string()},
                {"vocab", tokenizer.vocab_size()},
                {"train_bytes", texts.train.size()},
                {"train_tokens", data.train.size()},
                {"valid_bytes", texts.valid.size()},
                {"valid_tokens", data.valid.size()},
                {"bytes_per_token", per_token(texts.train, data.train)}});
  } else {
    print(fmt::format(
        "training  {} bytes, {} tokens, {:.3f} bytes per token\nheld out  {} bytes, {} tokens\nkept in   "
        "{}\n",
        grouped(texts.train.size()), grouped(data.train.size()), per_token(texts.train, data.train),
        grouped(texts.valid.size()), grouped(data.valid.size()), cache.string()));
  }
  return 0;
}

struct InfoOptions {
  std::vector<std::string> files;
  std::string tokenizer;
};

int info(const InfoOptions& o, const Global& global) {
  std::optional<Tokenizer> tokenizer;
  if (!o.tokenizer.empty()) tokenizer = load_tokenizer(o.tokenizer);
  ThreadPool pool(global.thread_count());
  nlohmann::json files = nlohmann::json::array();
  std::vector<std::vector<std::string>> rows = {
      {"file", "bytes", "stories", "longest", "UTF-8", "CRLF lines", "BOM", "tokens", "bytes/token"}};
  uint64_t all_bytes = 0, all_stories = 0, all_tokens = 0;
  for (const std::string& file : o.files) {
    const std::string text = text_of({file});
    const TextInfo t = describe_text(text);
    all_bytes += t.bytes;
    all_stories += t.stories;
    nlohmann::json json = {{"file", file},
                           {"bytes", t.bytes},
                           {"stories", t.stories},
                           {"separators", t.separators},
                           {"longest_story", t.longest_story},
                           {"utf8", t.invalid_parts == 0},
                           {"invalid_parts", t.invalid_parts},
                           {"crlf_lines", t.crlf_lines},
                           {"byte_order_mark", t.byte_order_mark}};
    std::string tokens, per_token;
    if (tokenizer) {
      ProgressBar bar("tokens");
      const TokenStream stream =
          encode_text(text, *tokenizer, pool, [&](uint64_t done, uint64_t all) { bar.update(done, all); });
      bar.finish();
      all_tokens += stream.size();
      json["tokens"] = stream.size();
      tokens = grouped(stream.size());
      per_token = fmt::format(
          "{:.3f}", static_cast<double>(t.bytes) / static_cast<double>(std::max<size_t>(1, stream.size())));
    }
    files.push_back(std::move(json));
    rows.push_back({printable(file), grouped(t.bytes), grouped(t.stories), grouped(t.longest_story),
                    t.invalid_parts ? fmt::format("{} bad parts", grouped(t.invalid_parts)) : "valid",
                    grouped(t.crlf_lines), t.byte_order_mark ? "yes" : "no", tokens, per_token});
  }
  nlohmann::json json = {{"files", files}, {"bytes", all_bytes}, {"stories", all_stories}};
  if (tokenizer) json["tokens"] = all_tokens;
  global.json ? print_json(json) : print(table(rows));
  return 0;
}

void add_make_command(const Program& program) {
  CLI::App* command = program.command("make", "write the embedded corpus as train.txt and valid.txt",
                                      "  storytape data make --out stories\n"
                                      "  storytape data make --out stories --bytes 20000000 --seed 7\n");
  auto o = std::make_shared<MakeOptions>();
  command->add_option("--out", o->out, "folder for the two files")->required()->type_name("DIR");
  whole_option(command, "--bytes", o->bytes, 10'000, 2'000'000'000, "size of both together");
  whole_option(command, "--seed", o->seed, 0, UINT64_MAX, "of the stories; 0 is what `train` uses");
  command->add_flag("--overwrite", o->overwrite, "replace the files if they are there");
  command->callback(
      [o, &run = program.run, &global = program.global] { run = [o, &global] { return make(*o, global); }; });
}

void add_prepare_command(const Program& program) {
  CLI::App* command =
      program.command("prepare", "tokenize text now, so that `train` with the same data begins at once",
                      "  storytape data prepare train.txt --valid valid.txt --vocab 4096\n"
                      "  storytape data prepare train.txt.gz --tokenizer tokenizer.json --cache cache\n");
  auto o = std::make_shared<PrepareOptions>();
  command->add_option("files", o->files, "text files, also .gz; the word embedded for the embedded corpus")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--valid", o->valid, "held-out text files (default: the last 5% of the training stories)")
      ->type_name("FILE...");
  command
      ->add_option("--tokenizer", o->tokenizer,
                   "a tokenizer.json, or the folder of a run (default: train one)")
      ->type_name("FILE|RUN");
  whole_option(command, "--vocab", o->vocab, 264, 1u << 20,
               "vocabulary of the tokenizer to train (default: 4096; 1024 for the embedded corpus)");
  command->add_option("--cache", o->cache, "folder for tokenizers and tokens (default: ~/.cache/storytape)")
      ->type_name("DIR");
  command->callback([o, &run = program.run, &global = program.global] {
    run = [o, &global] { return prepare(*o, global); };
  });
}

void add_info_command(const Program& program) {
  CLI::App* command = program.command("info", "size, stories, encoding and tokens of text files",
                                      "  storytape data info train.txt valid.txt\n"
                                      "  storytape data info train.txt --tokenizer tokenizer.json\n");
  auto o = std::make_shared<InfoOptions>();
  command->add_option("files", o->files, "text files, also .gz; the word embedded for the embedded corpus")
      ->required()
      ->type_name("FILE");
  command->add_option("--tokenizer", o->tokenizer, "count tokens: a tokenizer.json, or the folder of a run")
      ->type_name("FILE|RUN");
  command->callback(
      [o, &run = program.run, &global = program.global] { run = [o, &global] { return info(*o, global); }; });
}

}  // namespace

void add_data(const Program& program) {
  const Program nested = command_group(program, "data", "make, prepare or describe training text",
                                       "  storytape data make --out stories\n"
                                       "  storytape data info stories/train.txt\n");
  add_make_command(nested);
  add_prepare_command(nested);
  add_info_command(nested);
  add_data_batches(nested);
}

}  // namespace storytape::cli
