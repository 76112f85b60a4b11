// storytape tokenizer train, encode, decode, info
#include <algorithm>
#include <charconv>
#include <numeric>

#include "cli/command.h"
#include "cli/input.h"
#include "cli/progress.h"
#include "train/bpe_trainer.h"
#include "train/dataset.h"
#include "train/files.h"
#include "train/text.h"
#include "train/tokenizer.h"

namespace storytape::cli {
namespace {

namespace fs = std::filesystem;

struct TrainOptions {
  std::vector<std::string> files;
  std::string out;
  uint64_t vocab = 4096;
  uint64_t min_frequency = 1;
  bool overwrite = false;
};

int train(const TrainOptions& o, const Global& global) {
  const fs::path out = o.out;
  refuse_existing(out, o.overwrite);
  const std::string text = text_of(o.files);
  BpeTrainOptions options;
  options.vocab_size = static_cast<int>(o.vocab);
  options.min_frequency = static_cast<int64_t>(o.min_frequency);
  ProgressBar bar("tokenizer");
  options.progress = [&](int done, int wanted) {
    bar.update(static_cast<uint64_t>(done), static_cast<uint64_t>(wanted));
  };
  const std::string_view texts[] = {text};
  const BpeTraining training = train_bpe(texts, options);
  bar.finish();
  if (static_cast<uint64_t>(training.vocab_size) < o.vocab) {
    note(fmt::format("the text has pairs for {} tokens only; the vocabulary is {} instead of {}",
                     training.vocab_size, training.vocab_size, o.vocab));
  }
  const Tokenizer tokenizer = Tokenizer::from_merges(training.merges);
  tokenizer.save(out);
  if (global.json) {
    print_json({{"tokenizer", out.string()},
                {"vocab", tokenizer.vocab_size()},
                {"merges", training.merges.size()},
                {"stories", training.stories},
                {"bytes", training.bytes},
                {"fingerprint", tokenizer.fingerprint()}});
  } else {
    print(fmt::format("{}: {} tokens, {} merges from {} stories ({})\n", out.string(), tokenizer.vocab_size(),
                      training.merges.size(), grouped(static_cast<uint64_t>(training.stories)),
                      bytes_text(static_cast<uint64_t>(training.bytes))));
  }
  return 0;
}

struct CodeOptions {
  std::string tokenizer;
  std::string text;
  std::vector<std::string> ids;
  bool specials = false;
  bool skip_specials = false;
};

int encode(const CodeOptions& o, bool from_stdin, const Global& global) {
  const Tokenizer tokenizer = load_tokenizer(o.tokenizer);
  const std::string text = from_stdin ? read_stdin() : o.text;
  const std::vector<int32_t> ids = tokenizer.encode(text, o.specials ? Specials::kParsed : Specials::kPlain);
  if (global.json) {
    print_json({{"ids", ids}, {"tokens", ids.size()}, {"bytes", text.size()}});
  } else {
    print(fmt::format("{}\n", fmt::join(ids, " ")));
  }
  return 0;
}

// Ids in words and lists: "1 2 3", "[1, 2, 3]".
void add_ids(std::string_view text, std::vector<int32_t>& ids) {
  constexpr std::string_view kBetween = " \t\r\n,[]";
  for (size_t begin = text.find_first_not_of(kBetween); begin < text.size();) {
    const size_t end = std::min(text.find_first_of(kBetween, begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    int32_t id = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || stop != word.data() + word.size() || id < 0) {
      fail_usage("\"{}\" is no token id", printable(word, 40));
    }
    ids.push_back(id);
    begin = text.find_first_not_of(kBetween, end);
  }
}

int decode(const CodeOptions& o, const Global& global) {
  const Tokenizer tokenizer = load_tokenizer(o.tokenizer);
  std::vector<int32_t> ids;
  if (o.ids.empty()) add_ids(read_stdin(), ids);
  for (const std::string& word : o.ids) add_ids(word, ids);
  const std::string text = tokenizer.decode(ids, o.skip_specials);
  if (global.json) {
    print_json({{"text", text}, {"tokens", ids.size()}, {"bytes", text.size()}});
  } else {
    print(text);
  }
  return 0;
}

struct InfoOptions {
  std::string tokenizer;
  std::vector<std::string> files;
  uint64_t longest = 10;
};

int info(const InfoOptions& o, const Global& global) {
  const Tokenizer tokenizer = load_tokenizer(o.tokenizer);
  const TokenizerParts& parts = tokenizer.parts();
  nlohmann::json specials = nlohmann::json::object();
  for (const int32_t id : parts.specials) specials[parts.tokens[static_cast<size_t>(id)]] = id;

  std::vector<int32_t> ids(parts.tokens.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::erase_if(ids, [&](int32_t id) { return tokenizer.is_special(id); });
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    return tokenizer.token_bytes(a).size() > tokenizer.token_bytes(b).size();
  });
  ids.resize(std::min<size_t>(ids.size(), o.longest));
  nlohmann::json longest = nlohmann::json::array();
  std::string longest_text;
  for (const int32_t id : ids) {
    const std::string& bytes = tokenizer.token_bytes(id);
    longest.push_back({{"id", id}, {"bytes", bytes.size()}, {"text", bytes}});
    longest_text += fmt::format("  {:>6}  {:>4} bytes  \"{}\"\n", id, bytes.size(), printable(bytes));
  }
  nlohmann::json json = {{"vocab", tokenizer.vocab_size()},
                         {"merges", parts.merges.size()},
                         {"specials", specials},
                         {"fingerprint", tokenizer.fingerprint()},
                         {"longest", longest}};
  std::string text = fmt::format("vocabulary   {} tokens\nmerges       {}\nspecials    ",
                                 grouped(parts.tokens.size()), grouped(parts.merges.size()));
  for (const int32_t id : parts.specials) {
    text += fmt::format(" {} {}", printable(parts.tokens[static_cast<size_t>(id)]), id);
  }
  text += fmt::format("\nfingerprint  {}\nlongest tokens\n{}", tokenizer.fingerprint(), longest_text);
  if (!o.files.empty()) {
    const std::string data = text_of(o.files);
    ThreadPool pool(global.thread_count());
    ProgressBar bar("tokens");
    const TokenStream stream =
        encode_text(data, tokenizer, pool, [&](uint64_t done, uint64_t all) { bar.update(done, all); });
    bar.finish();
    const double per_token =
        static_cast<double>(data.size()) / static_cast<double>(std::max<size_t>(1, stream.size()));
    json["bytes"] = data.size();
    json["tokens"] = stream.size();
    json["bytes_per_token"] = per_token;
    text += fmt::format("text         {} bytes in {} tokens, {:.3f} bytes per token\n", grouped(data.size()),
                        grouped(stream.size()), per_token);
  }
  global.json ? print_json(json) : print(text);
  return 0;
}

constexpr const char* kTokenizerHelp = "a tokenizer.json, or the folder of a run";

void add_train_command(const Program& program) {
  CLI::App* command = program.command("train", "train a byte-level BPE tokenizer on text",
                                      "  storytape tokenizer train train.txt --out tokenizer.json\n"
                                      "  storytape tokenizer train embedded --vocab 1024 --out small.json\n");
  auto o = std::make_shared<TrainOptions>();
  command->add_option("files", o->files, "text files, also .gz; the word embedded for the embedded corpus")
      ->required()
      ->type_name("FILE");
  command->add_option("--out", o->out, "the file to write, in the Hugging Face form")
      ->required()
      ->type_name("FILE");
  command->add_flag("--overwrite", o->overwrite, "replace the file if it is there");
  whole_option(command, "--vocab", o->vocab, 264, 1u << 20, "tokens: 256 bytes, 8 specials, and merges");
  whole_option(command, "--min-frequency", o->min_frequency, 0, INT64_MAX,
               "merge no pair that is rarer than this");
  command->callback([o, &run = program.run, &global = program.global] {
    run = [o, &global] { return train(*o, global); };
  });
}

void add_encode_command(const Program& program) {
  CLI::App* command = program.command(
      "encode", "token ids of a text",
      "  storytape tokenizer encode --tokenizer tokenizer.json \"Once upon a time\"\n"
      "  storytape tokenizer encode --tokenizer runs/first --specials < story.txt\n"
      "  storytape tokenizer encode --tokenizer runs/first -- \"- a text that begins with a minus\"\n");
  auto o = std::make_shared<CodeOptions>();
  command->add_option("--tokenizer", o->tokenizer, kTokenizerHelp)->required()->type_name("FILE|RUN");
  command->add_flag("--specials", o->specials, "let <|endoftext|> and the like be special tokens, not text");
  CLI::Option* text =
      command->add_option("text", o->text, "the text (default: standard input)")->type_name("TEXT");
  command->callback([o, text, &run = program.run, &global = program.global] {
    run = [o, text, &global] { return encode(*o, text->count() == 0, global); };
  });
}

void add_decode_command(const Program& program) {
  CLI::App* command = program.command("decode", "the bytes of token ids, as they are",
                                      "  storytape tokenizer decode --tokenizer tokenizer.json 79 612 275\n"
                                      "  storytape tokenizer decode --tokenizer runs/first < ids.txt\n");
  auto o = std::make_shared<CodeOptions>();
  command->add_option("--tokenizer", o->tokenizer, kTokenizerHelp)->required()->type_name("FILE|RUN");
  command->add_flag("--skip-specials", o->skip_specials, "special tokens give nothing, not their text");
  command->add_option("ids", o->ids, "token ids, also as a list (default: standard input)")->type_name("ID");
  command->callback([o, &run = program.run, &global = program.global] {
    run = [o, &global] { return decode(*o, global); };
  });
}

void add_info_command(const Program& program) {
  CLI::App* command = program.command("info", "size, specials, longest tokens, and compression of a text",
                                      "  storytape tokenizer info runs/first\n"
                                      "  storytape tokenizer info tokenizer.json valid.txt\n");
  auto o = std::make_shared<InfoOptions>();
  command->add_option("tokenizer", o->tokenizer, kTokenizerHelp)->required()->type_name("FILE|RUN");
  command->add_option("files", o->files, "text files, also .gz; the word embedded for the embedded corpus")
      ->type_name("FILE");
  whole_option(command, "--longest", o->longest, 0, 1u << 20, "how many of the longest tokens to show");
  command->callback(
      [o, &run = program.run, &global = program.global] { run = [o, &global] { return info(*o, global); }; });
}

}  // namespace

void add_tokenizer(const Program& program) {
  const Program nested =
      command_group(program, "tokenizer", "train a tokenizer, or use one",
                    "  storytape tokenizer train train.txt --vocab 4096 --out tokenizer.json\n"
                    "  storytape tokenizer info tokenizer.json\n");
  add_train_command(nested);
  add_encode_command(nested);
  add_decode_command(nested);
  add_info_command(nested);
}

}  // namespace storytape::cli
