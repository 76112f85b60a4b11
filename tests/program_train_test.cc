// Training by the program: runs that stop, go on, are disturbed.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/catch.h"
#include "tests/program.h"

using namespace storytape::test;

namespace {

namespace fs = std::filesystem;

std::vector<nlohmann::json> rows(const fs::path& run) {
  std::vector<nlohmann::json> all;
  std::istringstream text(contents(run / "metrics.jsonl"));
  for (std::string line; std::getline(text, line);) all.push_back(nlohmann::json::parse(line));
  return all;
}

// A row without what depends on the clock.
nlohmann::json timeless(nlohmann::json row) {
  row.erase("tokens_per_second");
  return row;
}

void check_rising(const std::vector<nlohmann::json>& all) {
  for (size_t i = 1; i < all.size(); ++i) CHECK(all[i].at("step") > all[i - 1].at("step"));
}

void check_same_rows(const fs::path& a, const fs::path& b) {
  const auto left = rows(a), right = rows(b);
  check_rising(left);
  REQUIRE(left.size() == right.size());
  for (size_t i = 0; i < left.size(); ++i) CHECK(timeless(left[i]) == timeless(right[i]));
}

std::string weights(const Outcome& trained) {
  INFO(trained.err);
  REQUIRE(trained.code == 0);
  return trained.json().at("weights_sha256").get<std::string>();
}

TEST_CASE("B039 steps, warm-up and intervals count optimizer steps, however many passes one has") {
  const TemporaryFolder folder;
  std::vector<std::vector<double>> rates;
  for (const char* passes : {"1", "8"}) {
    const fs::path place = folder / (std::string("run-") + passes);
    const Outcome trained =
        run(small_training(place, {"--json", "--steps", "8", "--warmup", "4", "--log-every", "1",
                                   "--save-every", "4", "--accumulate", passes}));
    INFO(trained.err);
    REQUIRE(trained.code == 0);
    auto& all = rates.emplace_back();
    for (const nlohmann::json& row : rows(place)) {
      if (row.contains("learning_rate")) all.push_back(row.at("learning_rate").get<double>());
    }
    CHECK(all.size() == 8);
    CHECK(fs::exists(place / "checkpoints" / "step-4.safetensors"));
  }
  CHECK(rates[0] == rates[1]);
  CHECK(rates[0][3] == *std::max_element(rates[0].begin(), rates[0].end()));
}

TEST_CASE("train gives its figures as one object and leaves a run's files") {
  const TemporaryFolder folder;
  const fs::path place = folder / "run";
  const Outcome trained = run(small_training(place, {"--json", "--sample-every", "3"}));
  INFO(trained.err);
  REQUIRE(trained.code == 0);
  const nlohmann::json json = trained.json();
  CHECK(json.at("run") == place.string());
  CHECK(json.at("steps") == 6);
  CHECK(json.at("tokens") == 6 * 3 * 16);
  CHECK(json.at("params").get<int>() == 1354496 - (4096 - 300) * 129 - (256 - 32) * 128);
  // An untrained model's loss is about ln V + 1/6.
  CHECK(json.at("initial_loss").get<double>() == Approx(std::log(300.0) + 1.0 / 6).margin(0.15));
  CHECK(json.at("train_loss").get<double>() < json.at("initial_loss").get<double>());
  CHECK(json.at("valid_loss").get<double>() > 0);
  CHECK(json.at("valid_bits_per_byte").get<double>() > 0);
  CHECK(json.at("tokens_per_second").get<double>() > 0);
  CHECK(json.at("weights_sha256").get<std::string>().size() == 64);

  const nlohmann::json config = nlohmann::json::parse(contents(place / "config.json"));
  CHECK(config.at("model").at("vocab") == 300);
  CHECK(config.at("recipe").at("steps") == 6);
  CHECK(fs::exists(place / "tokenizer.json"));
  CHECK(fs::exists(place / "checkpoints" / "step-6.safetensors"));
  CHECK(contents(place / "samples" / "step-3.txt").starts_with("Once upon a time"));
  CHECK(fs::exists(place / "samples" / "step-6.txt"));

  // The same figures by other commands.
  const nlohmann::json inspected = run({"inspect", place.string(), "--json"}).json();
  CHECK(inspected.at("weights_sha256") == json.at("weights_sha256"));
  CHECK(inspected.at("params") == json.at("params"));
  const nlohmann::json evaluated = run({"eval", place.string(), "--context", "16", "--json"}).json();
  CHECK(evaluated.at("loss").get<double>() == Approx(json.at("valid_loss").get<double>()).epsilon(1e-12));
  CHECK(evaluated.at("bits_per_byte").get<double>() ==
        Approx(json.at("valid_bits_per_byte").get<double>()).epsilon(1e-12));
  CHECK(evaluated.at("bytes").get<uint64_t>() <= fs::file_size(small_valid_text()));
  CHECK(evaluated.at("perplexity").get<double>() == Approx(std::exp(evaluated.at("loss").get<double>())));
}

TEST_CASE("B042 the same weights for any number of threads") {
  const TemporaryFolder folder;
  std::set<std::string> sums;
  for (const char* threads : {"1", "2", "3"}) {
    sums.insert(
        weights(run(small_training(folder / threads, {"--threads", threads, "--json", "--batch", "5"}))));
  }
  CHECK(sums.size() == 1);
  check_same_rows(folder / "1", folder / "2");
  CHECK(sums != std::set<std::string>{weights(
                    run(small_training(folder / "seed", {"--seed", "2", "--json", "--batch", "5"})))});
}

TEST_CASE("B091 B093 a run that was stopped anywhere ends like one that was not") {
  const TemporaryFolder folder;
  for (const char* pattern : {"full", "linear,full"}) {
    const std::vector<std::string> more = {"--json", "--steps",   "8",    "--log-every",
                                           "1",      "--pattern", pattern};
    const auto with = [&](std::vector<std::string> options) {
      options.insert(options.begin(), more.begin(), more.end());
      return options;
    };
    const fs::path whole = folder / (std::string("whole ") + pattern);
    const std::string sum = weights(run(small_training(whole, more)));
    for (const char* stop : {"0", "1", "3", "7"}) {
      INFO(pattern << " stopped after " << stop);
      const fs::path cut = folder / (std::string("cut ") + stop + pattern);
      const Outcome first = run(small_training(cut, with({"--stop-after", stop})));
      CHECK(first.code == 0);
      CHECK(first.json().at("finished") == false);
      CHECK(first.json().at("valid_loss").is_null());
      CHECK(first.err.find("--resume") != std::string::npos);
      // Once more before the end, and with other threads.
      const Outcome second =
          run({"train", "--resume", "--out", cut.string(), "--stop-after", "5", "--threads", "1", "--json"});
      CHECK(second.code == 0);
      const Outcome last = run({"train", "--resume", "--out", cut.string(), "--json", "--threads", "3"});
      CHECK(weights(last) == sum);
      check_same_rows(whole, cut);
    }
  }
}

TEST_CASE("a finished run that is resumed says its result again and changes nothing") {
  const TemporaryFolder folder;
  const std::string sum = weights(run(small_training(folder / "run", {"--json"})));
  const auto before = file_hashes(folder / "run");
  CHECK(weights(run({"train", "--resume", "--out", (folder / "run").string(), "--json"})) == sum);
  CHECK(file_hashes(folder / "run") == before);
}

TEST_CASE("B093 options that would change a run are refused on resume, others are not") {
  const TemporaryFolder folder;
  const std::string place = (folder / "run").string();
  REQUIRE(run(small_training(place, {"--stop-after", "2"})).code == 0);
  const auto before = file_hashes(place);
  const auto resume = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"train", "--resume", "--out", place});
    return run(options);
  };
  CHECK(refusal(resume({"--batch", "4"}), 2, {"batch", "3", "4"}) == "");
  CHECK(refusal(resume({"--steps", "7"}), 2, {"steps", "6", "7"}) == "");
  CHECK(refusal(resume({"--lr", "0.1"}), 2, {"lr", "0.1"}) == "");
  CHECK(refusal(resume({"--seed", "9"}), 2, {"seed"}) == "");
  CHECK(refusal(resume({"--model", "storylm-5m"}), 2, {"model"}) == "");
  CHECK(refusal(resume({"--pattern", "linear"}), 2, {"pattern"}) == "");
  CHECK(refusal(resume({"--data", small_valid_text().string()}), 2, {"data"}) == "");
  CHECK(refusal(resume({"--vocab", "301"}), 2, {"--vocab"}) == "");
  CHECK(file_hashes(place) == before);
  CHECK(resume({"--batch", "3", "--data", small_text().string()}).code == 0);
}

TEST_CASE("B093 a text that has changed is noticed on resume") {
  const TemporaryFolder folder;
  fs::copy_file(small_text(), folder / "train.txt");
  const fs::path place = folder / "run";
  REQUIRE(run({"train", "--out", place.string(), "--data", (folder / "train.txt").string(), "--vocab", "270",
               "--batch", "1", "--context", "8", "--steps", "4", "--stop-after", "1", "--no-cache"})
              .code == 0);
  write(folder / "train.txt", contents(folder / "train.txt") + "\nOne more line.\n");
  CHECK(refusal(run({"train", "--resume", "--out", place.string(), "--no-cache"}), 1,
                {place.string(), "text"}) == "");
  fs::remove(folder / "train.txt");
  CHECK(refusal(run({"train", "--resume", "--out", place.string(), "--no-cache"}), 1, {"train.txt"}) == "");
}

TEST_CASE("B139 a second run leaves the first one's folder alone unless told otherwise") {
  const TemporaryFolder folder;
  const fs::path place = folder / "run";
  const std::string sum = weights(run(small_training(place, {"--json"})));
  write(place / "notes.txt", "mine");
  fs::create_directories(place / "sub");
  write(place / "sub" / "more.txt", "mine too");
  write(place / "checkpoints" / "best.safetensors", "kept by hand");
  const auto before = file_hashes(place);

  CHECK(refusal(run(small_training(place)), 1, {place.string(), "--resume", "--overwrite"}) == "");
  CHECK(file_hashes(place) == before);

  const std::string other =
      weights(run(small_training(place, {"--overwrite", "--seed", "5", "--steps", "4", "--json"})));
  CHECK(other != sum);
  const auto after = file_hashes(place);
  for (const char* mine : {"notes.txt", "sub/more.txt", "checkpoints/best.safetensors"}) {
    CHECK(after.at(mine) == before.at(mine));
  }
  // Nothing of the old run passes for the new one's.
  CHECK_FALSE(fs::exists(place / "checkpoints" / "step-6.safetensors"));
  CHECK(rows(place).back().at("step") == 4);

  write(folder / "file", "a file");
  CHECK(refusal(run(small_training(folder / "file", {"--overwrite"})), 1, {"file"}) == "");
  CHECK(contents(folder / "file") == "a file");
}

TEST_CASE("B095 an interrupt saves, exits with 130 and the run goes on to the same end") {
  const TemporaryFolder folder;
  const std::vector<std::string> more = {"--steps", "100",          "--log-every", "1",     "--eval-every",
                                         "7",       "--save-every", "9",           "--json"};
  const std::string sum = weights(run(small_training(folder / "whole", more)));
  for (const int number : {SIGINT, SIGTERM}) {
    const fs::path place = folder / ("cut " + std::to_string(number));
    Running training(program(small_training(place, more)));
    REQUIRE(training.wait_for_err("run     "));
    // After the first step or later.
    while (!fs::exists(place / "metrics.jsonl") || fs::file_size(place / "metrics.jsonl") == 0) usleep(1000);
    training.signal(number);
    const Outcome stopped = training.wait();
    INFO(stopped.err);
    CHECK(stopped.code == 130);
    CHECK(stopped.json().at("finished") == false);
    CHECK(stopped.json().at("steps") < 100);
    CHECK(stopped.err.find("--resume --out " + place.string()) != std::string::npos);
    CHECK(weights(run({"train", "--resume", "--out", place.string(), "--json"})) == sum);
    check_same_rows(folder / "whole", place);
  }
}

TEST_CASE("B089 B142 a kill leaves a run that goes on to the same end") {
  const TemporaryFolder folder;
  const std::vector<std::string> more = {"--steps", "40", "--log-every", "1", "--save-every", "5", "--json"};
  const std::string sum = weights(run(small_training(folder / "whole", more)));
  for (const int after : {1, 13, 31}) {
    INFO("killed after row " << after);
    const fs::path place = folder / ("killed " + std::to_string(after));
    {
      Running training(program(small_training(place, more)));
      REQUIRE(training.wait_for_err("run     "));
      const auto enough = [&] {
        const std::string text = fs::exists(place / "metrics.jsonl") ? contents(place / "metrics.jsonl") : "";
        return std::count(text.begin(), text.end(), '\n') >= after;
      };
      while (!enough()) usleep(500);
      training.signal(SIGKILL);
      CHECK(training.wait().signal == SIGKILL);
    }
    // As a kill in the middle of a write leaves it.
    std::ofstream(place / "metrics.jsonl", std::ios::app) << "{\"step\": 99, \"lo";
    const Outcome resumed = run({"train", "--resume", "--out", place.string(), "--json"});
    CHECK(resumed.err.find("half a line") != std::string::npos);
    CHECK(weights(resumed) == sum);
    check_same_rows(folder / "whole", place);
    for (const auto& entry : fs::recursive_directory_iterator(place)) {
      CHECK(entry.path().filename().string().find(".tmp-") == std::string::npos);
    }
  }
}

TEST_CASE("resuming passes over a damaged checkpoint with a notice") {
  const TemporaryFolder folder;
  const fs::path place = folder / "run";
  const std::vector<std::string> more = {"--steps", "8", "--log-every", "1", "--save-every", "2", "--json"};
  const std::string sum = weights(run(small_training(folder / "whole", more)));
  std::vector<std::string> cut = more;
  cut.insert(cut.end(), {"--stop-after", "5"});
  REQUIRE(run(small_training(place, cut)).code == 0);
  fs::resize_file(place / "checkpoints" / "step-5.safetensors", 100'000);
  const Outcome resumed = run({"train", "--resume", "--out", place.string(), "--json"});
  CHECK(resumed.err.find("step-5.safetensors") != std::string::npos);
  CHECK(resumed.err.find("going on after step 4") != std::string::npos);
  CHECK(weights(resumed) == sum);
  check_same_rows(folder / "whole", place);
}

TEST_CASE("B140 no carriage return and no escape code without a terminal") {
  const TemporaryFolder folder;
  std::vector<Setup> setups(3);
  setups[1].environment["TERM"] = "xterm-256color";
  setups[2].environment["TERM"] = "dumb";
  for (size_t i = 0; i < setups.size(); ++i) {
    const Outcome trained = run(small_training(folder / std::to_string(i), {"--steps", "50"}), setups[i]);
    CHECK(trained.code == 0);
    for (const std::string* text : {&trained.out, &trained.err}) {
      CHECK(text->find('\x1b') == std::string::npos);
      CHECK(text->find('\r') == std::string::npos);
    }
    CHECK(trained.messages().size() < 40);
  }
}

TEST_CASE("B143 rates and times are numbers from the first report on") {
  const TemporaryFolder folder;
  for (const char* steps : {"1", "2"}) {
    const fs::path place = folder / steps;
    const Outcome trained = run(small_training(place, {"--steps", steps, "--json"}));
    REQUIRE(trained.code == 0);
    CHECK(trained.json().at("tokens_per_second").get<double>() > 0);
    for (const std::string& line : trained.messages()) {
      if (!line.starts_with("step ")) continue;
      INFO(line);
      CHECK(line.find("inf") == std::string::npos);
      CHECK(line.find("nan") == std::string::npos);
    }
    for (const nlohmann::json& row : rows(place)) CHECK(row.at("tokens_per_second").get<double>() > 0);
  }
  const Outcome stopped = run(small_training(folder / "stopped", {"--stop-after", "0", "--json"}));
  CHECK(stopped.code == 0);
  CHECK(stopped.json().at("tokens_per_second") == 0);
}

TEST_CASE("B074 text shorter than a window is refused with both numbers, and no folder is made") {
  const TemporaryFolder folder;
  write(folder / "short.txt", "A cat.\n<|endoftext|>\nA dog sat.\n");
  const fs::path place = folder / "run";
  const Outcome trained =
      run({"train", "--out", place.string(), "--data", (folder / "short.txt").string(), "--valid",
           small_valid_text().string(), "--vocab", "264", "--context", "64", "--no-cache"});
  CHECK(refusal(trained, 1, {"64", "training text"}) == "");
  CHECK_FALSE(fs::exists(place));
  const Outcome unsplit = run({"train", "--out", place.string(), "--data", (folder / "short.txt").string(),
                               "--vocab", "264", "--context", "64", "--no-cache"});
  CHECK(refusal(unsplit, 1, {}) == "");
  CHECK_FALSE(fs::exists(place));
}

TEST_CASE("B090 a disk that is full ends training with an error; the last checkpoint stays") {
  const TemporaryFolder folder;
  const fs::path place = folder / "run";
  REQUIRE(run(small_training(place, {"--stop-after", "3"})).code == 0);
  const auto before = file_hashes(place / "checkpoints");
  const Setup setup{.input = {}, .environment = {{"RUN", place.string()}}, .folder = {}};
  const Outcome full =
      shell("ulimit -f 100; exec \"$STORYTAPE\" train --resume --out \"$RUN\" --no-cache", setup);
  CHECK(full.code == 1);
  CHECK(full.out.empty());
  CHECK(full.messages().back().find("step-") != std::string::npos);
  CHECK(file_hashes(place / "checkpoints") == before);
  CHECK(run({"train", "--resume", "--out", place.string(), "--no-cache"}).code == 0);
}

TEST_CASE("B035 a loss that is not finite stops the run and names the step; the last checkpoint stays") {
  const TemporaryFolder folder;
  const fs::path place = folder / "run";
  const Outcome broken =
      run(small_training(place, {"--lr", "900000", "--clip", "0", "--warmup", "0", "--steps", "200",
                                 "--save-every", "1", "--weight-decay", "999"}));
  INFO(broken.err);
  CHECK(broken.code == 1);
  CHECK(broken.out.empty());
  CHECK(broken.messages().back().find("step ") != std::string::npos);
  CHECK(broken.messages().back().find("not finite") != std::string::npos);
  // What was saved is finite and can be read.
  CHECK(run({"inspect", place.string(), "--json"}).code == 0);
}

TEST_CASE("B117 options of the recipe reach the optimizer and the run's settings") {
  const TemporaryFolder folder;
  std::set<std::string> sums = {weights(run(small_training(folder / "plain", {"--json"})))};
  const std::vector<std::vector<std::string>> options = {
      {"--lr", "0.01"},       {"--min-lr", "0.001"},  {"--warmup", "3"},   {"--weight-decay", "50"},
      {"--clip", "0.01"},     {"--accumulate", "2"},  {"--context", "12"}, {"--seed", "3"},
      {"--recipe", "course"}, {"--pattern", "linear"}};
  for (const auto& words : options) {
    INFO(words[0]);
    std::vector<std::string> more = words;
    more.push_back("--json");
    CHECK(sums.insert(weights(run(small_training(folder / words[0].substr(2), more)))).second);
  }
  const auto config = nlohmann::json::parse(contents(folder / "weight-decay" / "config.json"));
  CHECK(config.at("recipe").at("weight_decay") == 50);
}

TEST_CASE("tokenizer and tokens are kept for the next run, and the result is the same without") {
  const TemporaryFolder folder;
  const std::string cache = (folder / "cache").string();
  const std::string sum = weights(run(small_training(folder / "plain", {"--json"})));
  CHECK(weights(run(small_training(folder / "first", {"--json", "--cache", cache}))) == sum);
  const auto kept = file_hashes(cache);
  CHECK(kept.size() == 3);
  CHECK(weights(run(small_training(folder / "second", {"--json", "--cache", cache}))) == sum);
  CHECK(file_hashes(cache) == kept);
  for (const auto& [name, hash] : kept) write(fs::path(cache) / name, "damaged");
  const Outcome third = run(small_training(folder / "third", {"--json", "--cache", cache}));
  CHECK(weights(third) == sum);
  CHECK(third.err.find(cache) != std::string::npos);
  CHECK(file_hashes(cache) == kept);
}

}  // namespace
