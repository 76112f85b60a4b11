// The program as a whole: help, options, exit codes, errors.
#include <unistd.h>

#include "tests/catch.h"
#include "tests/program.h"

using namespace storytape::test;

namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

const std::vector<Words> kCommands = {{"train"},
                                      {"generate"},
                                      {"eval"},
                                      {"tokenizer"},
                                      {"tokenizer", "train"},
                                      {"tokenizer", "encode"},
                                      {"tokenizer", "decode"},
                                      {"tokenizer", "info"},
                                      {"data"},
                                      {"data", "make"},
                                      {"data", "prepare"},
                                      {"data", "info"},
                                      {"gradcheck"},
                                      {"faces"},
                                      {"verify"},
                                      {"inspect"},
                                      {"bench"}};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string joined(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// A copy of the trained run that a test may change.
fs::path copied_run(const TemporaryFolder& folder) {
  const fs::path copy = folder / "run";
  fs::copy(trained_run(), copy, fs::copy_options::recursive);
  return copy;
}

TEST_CASE("every command answers --help with examples") {
  for (const Words& command : kCommands) {
    INFO(joined(command));
    const Outcome help = run(with(command, {"--help"}));
    CHECK(help.code == 0);
    CHECK(help.err.empty());
    CHECK(help.out.find("Examples:\n  storytape " + joined(command)) != std::string::npos);
  }
  const Outcome help = run({"--help"});
  CHECK(help.code == 0);
  for (const Words& command : kCommands) CHECK(help.out.find("\n  " + command[0] + " ") != std::string::npos);
}

TEST_CASE("--version says what runs") {
  const Outcome text = run({"--version"});
  CHECK(text.code == 0);
  CHECK(text.out.starts_with("storytape "));
  const nlohmann::json json = run({"--version", "--json", "--threads", "3"}).json();
  for (const char* name : {"version", "compiler", "simd_target", "gemm_kernels", "blis_kernels"}) {
    CHECK(json.at(name).is_string());
  }
  CHECK(json.at("threads") == 3);
}

TEST_CASE("without a command the program shows its help and counts it as wrong usage") {
  const Outcome nothing = run({});
  CHECK(nothing.code == 2);
  CHECK(nothing.out.find("Usage:") != std::string::npos);
  CHECK(refusal(run({"tokenizer"}), 2, {"train, encode, decode, info"}) == "");
  CHECK(refusal(run({"data"}), 2, {"make, prepare, info"}) == "");
}

TEST_CASE("B117 unknown names are refused with a suggestion") {
  CHECK(refusal(run({"trian"}), 2, {"\"trian\"", "did you mean train?"}) == "");
  CHECK(refusal(run({"--thread", "2"}), 2, {"\"--thread\"", "--threads"}) == "");
  CHECK(refusal(run({"train", "--out", "x", "--step", "3"}), 2, {"\"--step\"", "--steps"}) == "");
  CHECK(refusal(run({"train", "--out", "x", "--learning-rate", "3"}), 2, {"\"--learning-rate\""}) == "");
  CHECK(refusal(run({"generate", "x", "--temprature=1"}), 2, {"--temprature", "--temperature"}) == "");
  CHECK(refusal(run({"tokenizer", "encode", "--tokenizer", "x", "--special", "text"}), 2,
                {"\"--special\"", "--specials", "storytape tokenizer encode --help"}) == "");
  CHECK(refusal(run({"train", "--out", "x", "--model", "storylm-2m"}), 2, {"storylm-2m", "storylm-1m"}) ==
        "");
  CHECK(refusal(run({"train", "--out", "x", "--recipe", "fast"}), 2, {"fast", "default, course"}) == "");
  CHECK(refusal(run({"train", "--out", "x", "--pattern", "full,mamba"}), 2, {"mamba", "full, linear"}) == "");
  CHECK(refusal(run({"gradcheck", "no_such_op"}), 2, {"no_such_op"}) == "");
  CHECK(refusal(run({"faces", "no_such_mixer"}), 2, {"no_such_mixer"}) == "");
  for (const Words& command : kCommands) {
    INFO(joined(command));
    const std::string name = "--no-such-option";
    const Outcome outcome = run(with(command, {name}));
    // Some commands miss a required argument first.
    CHECK(refusal(outcome, 2, {}) == "");
  }
}

TEST_CASE("B115 numbers are taken as they stand or refused by name") {
  for (const char* text :
       {"-1", "+5", "1e3", "0x10", "1_000", "", " 5", "5 ", "1.0", "nan", "99999999999999999999"}) {
    INFO("\"" << text << "\"");
    CHECK(refusal(run({"train", "--out", "x", std::string("--steps=") + text}), 2, {"--steps"}) == "");
    CHECK(refusal(run({"generate", "x", std::string("--seed=") + text}), 2, {"--seed"}) == "");
  }
  for (const char* text :
       {"-.2", "-1e-3", "1e400", "nan", "inf", "-inf", "0x1p3", "", " 1", "1,5", "1e-3x"}) {
    INFO("\"" << text << "\"");
    CHECK(refusal(run({"train", "--out", "x", std::string("--lr=") + text}), 2, {"--lr"}) == "");
  }
  // A minus that stands alone is a value, not an option.
  CHECK(refusal(run({"train", "--out", "x", "--seed", "-1"}), 2, {"seed"}) == "");
  CHECK(refusal(run({"train", "--out", "x", "--min-lr", "-.2"}), 2, {"min-lr"}) == "");
  for (const char* option : {"--steps", "--batch", "--context", "--keep", "--log-every", "--accumulate"}) {
    CHECK(refusal(run({"train", "--out", "x", option, "0"}), 2, {option}) == "");
  }
  CHECK(refusal(run({"--threads", "0", "train", "--out", "x"}), 2, {"--threads"}) == "");
  CHECK(refusal(run({"generate", "x", "--temperature", "-0.5"}), 2, {"temperature"}) == "");
  CHECK(refusal(run({"generate", "x", "--temperature", "nan"}), 2, {"temperature"}) == "");
  CHECK(refusal(run({"generate", "x", "--top-k", "-1"}), 2, {"top-k"}) == "");
  CHECK(refusal(run({"generate", "x", "--top-p", "1.5"}), 2, {"top-p"}) == "");
  CHECK(refusal(run({"generate", "x", "--tokens", "-1"}), 2, {"tokens"}) == "");
  CHECK_FALSE(fs::exists("x"));
}

TEST_CASE("B141 every failure has its exit code, one line on stderr and nothing on stdout") {
  const TemporaryFolder folder;
  const fs::path empty = folder / "empty.txt", binary = folder / "binary.txt",
                 directory = folder / "directory";
  write(empty, "");
  write(binary, std::string("abc\0def", 7));
  fs::create_directories(directory);
  write(folder / "short.txt", "Once upon a time.\n<|endoftext|>\nThe end.\n");
  write(folder / "broken.txt.gz", "no gzip at all");
  const fs::path missing = folder / "missing.txt";
  const std::string out = (folder / "out").string();
  const auto train = [&](const fs::path& data) {
    return run({"train", "--out", out, "--data", data.string(), "--no-cache"});
  };

  CHECK(refusal(train(missing), 1, {missing.string()}) == "");
  CHECK(refusal(train(empty), 1, {empty.string(), "empty"}) == "");
  CHECK(refusal(train(directory), 1, {directory.string()}) == "");
  CHECK(refusal(train(binary), 1, {binary.string(), "NUL"}) == "");
  CHECK(refusal(train(folder / "broken.txt.gz"), 1, {"broken.txt.gz"}) == "");
  // The run's folder is not made for text that can't be trained on.
  CHECK_FALSE(fs::exists(out));

  CHECK(refusal(run({"train", "--out", (folder / "short.txt").string(), "--no-cache"}), 1, {"short.txt"}) ==
        "");
  CHECK(refusal(run({"train"}), 2, {"--out"}) == "");
  CHECK(refusal(run({"train", "--out", out, "--resume"}), 1, {out}) == "");
  CHECK(refusal(run({"train", "--out", directory.string(), "--resume"}), 1, {"config.json"}) == "");
  CHECK(refusal(run({"train", "--out", out, "--resume", "--overwrite"}), 2, {"--overwrite"}) == "");
  CHECK(refusal(run({"train", "--out", out, "--steps", "3", "--minutes", "1"}), 2, {"--minutes"}) == "");
  CHECK(refusal(run({"train", "--out", out, "--context", "300"}), 2, {"300", "256"}) == "");
  CHECK(refusal(run({"train", "--out", out, "--pattern", ""}), 2, {"pattern"}) == "");
  CHECK(refusal(run({"train", "--out", out, "--pattern", "full,full,full,full,linear"}), 2, {"5", "4"}) ==
        "");
  CHECK(refusal(run({"train", "--out", out, "--lr", "1e-4", "--min-lr", "1e-3"}), 2, {"0.001"}) == "");

  for (const char* command : {"generate", "eval", "inspect"}) {
    INFO(command);
    CHECK(refusal(run({command, missing.string()}), 1, {missing.string()}) == "");
    CHECK(refusal(run({command, directory.string()}), 1, {directory.string()}) == "");
    CHECK(refusal(run({command, empty.string()}), 1, {folder.path().string()}) == "");
  }
  CHECK(refusal(run({"generate"}), 2, {"run"}) == "");
  CHECK(refusal(run({"verify", missing.string()}), 1, {missing.string()}) == "");
  CHECK(refusal(run({"verify", directory.string()}), 1, {"index.json"}) == "");
  CHECK(refusal(run({"verify"}), 2, {"folder"}) == "");
  CHECK(refusal(run({"eval", trained_run().string(), missing.string()}), 1, {missing.string()}) == "");
  CHECK(refusal(run({"eval", trained_run().string(), "--context", "33"}), 2, {"33", "32"}) == "");
  CHECK(refusal(run({"inspect", "--pattern", "x"}), 2, {"x"}) == "");
}

TEST_CASE("B141 a file that may not be read is named") {
  if (geteuid() == 0) {
    WARN("skipped: root may read everything");
    return;
  }
  const TemporaryFolder folder;
  const fs::path secret = folder / "secret.txt";
  write(secret, "Once upon a time.");
  fs::permissions(secret, fs::perms::none);
  CHECK(refusal(run({"data", "info", secret.string()}), 1, {secret.string(), "ermission"}) == "");
}

TEST_CASE("B119 any path works, or is named as it is") {
  const TemporaryFolder folder;
  for (const std::string name : {"two words", "Märchen", "物語", "📖", "it's \"quoted\"", "a\nnewline"}) {
    INFO(name);
    const fs::path place = folder / name;
    fs::create_directories(place);
    fs::copy_file(small_text(), place / "train.txt");
    fs::copy_file(small_valid_text(), place / "valid.txt");
    const Outcome trained =
        run({"train", "--out", (place / "run").string(), "--data", (place / "train.txt").string(), "--valid",
             (place / "valid.txt").string(), "--vocab", "270", "--batch", "1", "--context", "8", "--steps",
             "1", "--cache", (place / "cache").string()});
    INFO(trained.err);
    CHECK(trained.code == 0);
    CHECK(fs::exists(place / "run" / "checkpoints" / "step-1.safetensors"));
    CHECK(run({"generate", (place / "run").string(), "--tokens", "2"}).code == 0);
    CHECK(refusal(run({"generate", (place / "nothing").string()}), 1, {}) == "");
  }
  // Beside the text and the run nothing is written.
  CHECK(file_hashes(folder / "two words").size() >= 6);

  SECTION("a leading minus") {
    const Setup here{.input = {}, .environment = {}, .folder = folder.path()};
    fs::copy_file(small_text(), folder / "-data.txt");
    CHECK(run({"data", "info", "--", "-data.txt"}, here).code == 0);
    CHECK(run({"data", "info", "./-data.txt"}, here).code == 0);
  }
  SECTION("a link") {
    fs::create_directories(folder / "real");
    fs::create_directory_symlink(folder / "real", folder / "link");
    CHECK(run(small_training(folder / "link", {"--steps", "1"})).code == 0);
    CHECK(fs::is_symlink(folder / "link"));
    CHECK(fs::exists(folder / "real" / "config.json"));
  }
  SECTION("a name that is too long") {
    const std::string name(300, 'x');
    CHECK(refusal(run({"data", "info", (folder / name).string()}), 1, {name}) == "");
  }
}

TEST_CASE("B118 a reader that goes away ends a command quietly") {
  const std::string run_path = trained_run().string();
  const Setup setup{.input = {}, .environment = {{"RUN", run_path}}, .folder = {}};
  for (const char* command : {"\"$STORYTAPE\" generate \"$RUN\" --tokens 200 --ignore-end | head -c 30",
                              "\"$STORYTAPE\" tokenizer info \"$RUN\" --longest 300 | head -n 1",
                              "\"$STORYTAPE\" inspect \"$RUN\" | head -n 1"}) {
    INFO(command);
    const Outcome outcome = shell(command, setup);
    CHECK(outcome.code == 0);
    CHECK_FALSE(outcome.out.empty());
    CHECK(outcome.err == "");
  }
  const Outcome closed = shell("\"$STORYTAPE\" inspect \"$RUN\" >&-", setup);
  CHECK(closed.code == 1);
  CHECK(closed.messages().size() == 1);
}

TEST_CASE("B141 standard output that is full is a failure") {
  if (!fs::exists("/dev/full")) return;
  const Setup setup{.input = {}, .environment = {{"RUN", trained_run().string()}}, .folder = {}};
  for (const char* command : {"inspect \"$RUN\"", "generate \"$RUN\" --tokens 5", "--version", "--help"}) {
    INFO(command);
    const Outcome outcome = shell("\"$STORYTAPE\" " + std::string(command) + " > /dev/full", setup);
    CHECK(refusal(outcome, 1, {"standard output"}) == "");
  }
}

TEST_CASE("B096 tokenizer, settings and weights that don't belong together are refused") {
  const TemporaryFolder folder;
  const fs::path copy = copied_run(folder);
  const auto generate = [&] { return run({"generate", copy.string(), "--tokens", "3"}); };
  REQUIRE(generate().code == 0);

  SECTION("a tokenizer of another size") {
    REQUIRE(run({"tokenizer", "train", small_text().string(), "--vocab", "290", "--overwrite", "--out",
                 (copy / "tokenizer.json").string()})
                .code == 0);
    CHECK(refusal(generate(), 1, {"290", "300"}) == "");
  }
  SECTION("settings") {
    const auto config = nlohmann::json::parse(contents(copy / "config.json"));
    const auto with_change = [&](const char* pointer, const nlohmann::json& value) {
      nlohmann::json changed = config;
      changed[nlohmann::json::json_pointer(pointer)] = value;
      write(copy / "config.json", changed.dump());
      return generate();
    };
    CHECK(refusal(with_change("/model/heads", 3), 1, {"config.json", "128", "3"}) == "");
    CHECK(refusal(with_change("/model/heads", "four"), 1, {"config.json", "heads", "four"}) == "");
    CHECK(refusal(with_change("/model/heads", nullptr), 1, {"config.json", "heads"}) == "");
    CHECK(refusal(with_change("/model/dim", 64), 1, {"[300, 128]", "[300, 64]"}) == "");
    CHECK(refusal(with_change("/model/ffn", 256), 1, {"512", "256"}) == "");
    CHECK(refusal(with_change("/model/vocab", 301), 1, {"300", "301"}) == "");
    CHECK(refusal(with_change("/model/max_seq", 64), 1, {"pos.weight", "32", "64"}) == "");
    CHECK(refusal(with_change("/model/pattern/0", "linear"), 1, {"gamma_logit"}) == "");
    CHECK(refusal(with_change("/model/pattern/0", "mamba"), 1, {"mamba", "full"}) == "");
    CHECK(refusal(with_change("/model/pattern", {"full", "full", "full"}), 1, {"blocks.3"}) == "");
    CHECK(refusal(with_change("/model/colour", "red"), 1, {"colour"}) == "");
    CHECK(refusal(with_change("/recipe/lr", "fast"), 1, {"config.json"}) == "");
    write(copy / "config.json", "{");
    CHECK(refusal(generate(), 1, {"config.json", "line 1"}) == "");
  }
  SECTION("no tokenizer") {
    fs::remove(copy / "tokenizer.json");
    CHECK(refusal(generate(), 1, {"tokenizer.json"}) == "");
  }
}

TEST_CASE("a damaged checkpoint is passed over with a notice, and refused by its own name") {
  const TemporaryFolder folder;
  const fs::path copy = copied_run(folder);
  const fs::path last = copy / "checkpoints" / "step-6.safetensors",
                 before = copy / "checkpoints" / "step-4.safetensors";
  REQUIRE(fs::exists(last));
  REQUIRE(fs::exists(before));
  const std::string whole = contents(last);
  const auto passed_over = [&] {
    const Outcome generated = run({"generate", copy.string(), "--tokens", "3", "--json"});
    CHECK(generated.code == 0);
    CHECK(generated.err.find(last.string()) != std::string::npos);
    CHECK(generated.err.find("earlier checkpoint") != std::string::npos);
    CHECK(run({"inspect", copy.string(), "--json"}).json().at("step") == 4);
    CHECK(refusal(run({"generate", last.string()}), 1, {last.string()}) == "");
    fs::remove(before);
    CHECK(refusal(run({"generate", copy.string()}), 1, {last.string()}) == "");
  };

  SECTION("cut short") {
    fs::resize_file(last, whole.size() - 1);
    passed_over();
  }
  SECTION("longer") {
    write(last, whole + "x");
    passed_over();
  }
  SECTION("a changed value") {
    std::string changed = whole;
    changed[changed.size() - 1000] = static_cast<char>(changed[changed.size() - 1000] ^ 1);
    write(last, changed);
    passed_over();
  }
  SECTION("foreign") {
    write(last, "not a checkpoint, but long enough to be read as one");
    passed_over();
  }
  SECTION("empty") {
    write(last, "");
    passed_over();
  }
  SECTION("B079 a header length beyond the file") {
    write(last, std::string(8, '\xff') + whole.substr(8));
    passed_over();
  }
}

}  // namespace
