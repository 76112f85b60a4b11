// Telling stories by the program.
#include <csignal>
#include <set>

#include "tests/catch.h"
#include "tests/program.h"
#include "train/tokenizer_utf8.h"

using namespace storytape::test;

namespace {

namespace fs = std::filesystem;

Outcome generate(std::vector<std::string> options) {
  options.insert(options.begin(), {"generate", trained_run().string()});
  return run(options);
}

std::string text(std::vector<std::string> options) {
  const Outcome outcome = generate(std::move(options));
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  return outcome.out;
}

TEST_CASE("generate gives its figures as one object") {
  const nlohmann::json json =
      generate({"--json", "--tokens", "20", "--prompt", "One day", "--ignore-end"}).json();
  CHECK(json.at("prompt") == "One day");
  CHECK(json.at("text").is_string());
  CHECK(json.at("tokens") == 20);
  CHECK(json.at("tokens_per_second").get<double>() > 0);
  CHECK(json.at("stopped_by") == "tokens");
}

TEST_CASE("B097 temperature 0 is greedy and needs no seed; the same seed tells the same story") {
  const std::string greedy = text({"--temperature", "0", "--seed", "1"});
  CHECK(text({"--temperature", "0", "--seed", "2", "--top-p", "0.5", "--repetition-penalty", "2"}) == greedy);
  CHECK(text({"--temperature", "1e-8", "--repetition-penalty", "1", "--seed", "3"}) == greedy);
  CHECK(text({"--seed", "4"}) == text({"--seed", "4"}));
  CHECK(text({"--seed", "4"}) != text({"--seed", "5"}));
  // Any temperature is safe.
  CHECK_FALSE(text({"--temperature", "1e30", "--tokens", "5"}).empty());
}

TEST_CASE("B099 B100 filters that keep everything, or one token, do just that") {
  const std::string all = text({"--top-p", "1", "--seed", "6"});
  CHECK(text({"--top-p", "1", "--seed", "6", "--top-k", "0"}) == all);
  CHECK(text({"--top-p", "1", "--seed", "6", "--top-k", "300"}) == all);
  CHECK(text({"--top-p", "1", "--seed", "6", "--top-k", "1000000000"}) == all);
  CHECK(text({"--top-p", "1", "--seed", "6", "--min-p", "0"}) == all);
  const std::string greedy = text({"--temperature", "0"});
  CHECK(text({"--top-k", "1", "--repetition-penalty", "1"}) == greedy);
  CHECK(text({"--top-p", "0", "--repetition-penalty", "1"}) == greedy);
  CHECK(text({"--min-p", "1", "--repetition-penalty", "1"}) == greedy);
}

TEST_CASE("B111 a prompt of any length, and a text beyond the context") {
  // The model's position table has 32 rows.
  CHECK(generate({"--prompt", "", "--tokens", "3"}).code == 0);
  CHECK(text({"--tokens", "0", "--prompt", "Hello"}) == "Hello\n");
  const std::string prompt(400, 'z');
  const Outcome longer = generate({"--prompt", prompt, "--tokens", "3"});
  CHECK(longer.code == 0);
  CHECK(longer.out.starts_with(prompt));
  CHECK(longer.messages().size() == 1);
  CHECK(longer.err.find("only its end") != std::string::npos);
  const Outcome across = generate({"--tokens", "100", "--ignore-end", "--json"});
  CHECK(across.code == 0);
  CHECK(across.json().at("tokens") == 100);
  CHECK(across.err.find("context") != std::string::npos);
}

TEST_CASE("B069 a special token's text in a prompt is text unless it is asked for") {
  const std::string prompt = "The end.<|endoftext|>";
  CHECK(text({"--prompt", prompt, "--tokens", "1"}).starts_with(prompt));
  // As text they are more tokens than the context of 32 takes, which is told; as special tokens they are 20.
  std::string ends;
  for (int i = 0; i < 20; ++i) ends += "<|endoftext|>";
  CHECK(generate({"--prompt", ends, "--tokens", "1"}).err.find("the prompt has") != std::string::npos);
  CHECK(generate({"--prompt", ends, "--tokens", "1", "--parse-specials"}).err.empty());
}

TEST_CASE("B114 B144 standard output holds the text alone, in whole characters") {
  const std::vector<std::string> options = {"--tokens", "150", "--ignore-end", "--temperature", "1.5",
                                            "--top-p",  "1"};
  const Outcome plain = generate(options);
  CHECK(plain.code == 0);
  CHECK(plain.out.find('\x1b') == std::string::npos);
  // Whatever bytes were drawn, the text is UTF-8 and is what --json says.
  CHECK(storytape::replace_invalid_utf8(plain.out) == plain.out);
  std::vector<std::string> as_json = options;
  as_json.push_back("--json");
  const nlohmann::json json = generate(as_json).json();
  CHECK(plain.out == json.at("prompt").get<std::string>() + json.at("text").get<std::string>() + "\n");

  const TemporaryFolder folder;
  const Setup setup{.input = {},
                    .environment = {{"RUN", trained_run().string()}, {"FILE", (folder / "out").string()}}};
  std::string words;
  for (const std::string& option : options) words += " " + option;
  CHECK(shell("\"$STORYTAPE\" generate \"$RUN\"" + words + " > \"$FILE\" 2>/dev/null", setup).code == 0);
  CHECK(contents(folder / "out") == plain.out);
}

TEST_CASE("B144 text comes as it is drawn, and an interrupt keeps what has come") {
  Running telling(program(
      {"generate", trained_run().string(), "--tokens", "1000000", "--ignore-end", "--prompt", "Lily"}));
  REQUIRE(telling.wait_for_out("Lily"));
  telling.signal(SIGINT);
  const Outcome told = telling.wait();
  CHECK(told.code == 130);
  CHECK(told.out.starts_with("Lily"));
  CHECK(told.out.ends_with("\n"));
}

TEST_CASE("B118 the program ends when nobody reads the story any more") {
  Running telling(program({"generate", trained_run().string(), "--tokens", "1000000", "--ignore-end"}));
  REQUIRE(telling.wait_for_out("Once upon a time"));
  telling.close_out();
  const Outcome told = telling.wait();
  CHECK(told.code == 0);
  CHECK(told.signal == 0);
}

TEST_CASE("B109 a second story in another process does not depend on the first") {
  const std::string alone = text({"--prompt", "Tom", "--seed", "8"});
  text({"--prompt", "Lily", "--seed", "9"});
  CHECK(text({"--prompt", "Tom", "--seed", "8"}) == alone);
}

TEST_CASE("a checkpoint of a run can be named itself") {
  const fs::path checkpoints = trained_run() / "checkpoints";
  const nlohmann::json last = run({"inspect", trained_run().string(), "--json"}).json();
  const nlohmann::json same =
      run({"inspect", (checkpoints / "step-6.safetensors").string(), "--json"}).json();
  const nlohmann::json before =
      run({"inspect", (checkpoints / "step-4.safetensors").string(), "--json"}).json();
  CHECK(same.at("weights_sha256") == last.at("weights_sha256"));
  CHECK(before.at("weights_sha256") != last.at("weights_sha256"));
  CHECK(before.at("step") == 4);
}

TEST_CASE("new models have the published numbers of weights") {
  const auto inspect = [](const char* model, const char* pattern) {
    return run({"inspect", "--model", model, "--pattern", pattern, "--json"}).json();
  };
  CHECK(inspect("storylm-1m", "full").at("params") == 1'354'496);
  CHECK(inspect("storylm-1m", "linear").at("params") == 1'354'512);
  CHECK(inspect("storylm-1m", "linear,linear,linear,full").at("params") == 1'354'508);
  CHECK(inspect("storylm-5m", "full").at("params") == 5'857'280);
  CHECK(inspect("storylm-5m", "[L,L,L,F]").at("params") == 5'857'320);
  const nlohmann::json json = inspect("storylm-1m", "[L,L,L,F]");
  CHECK(json.at("pattern") == "linear,linear,linear,full");
  CHECK(json.at("config").at("dim") == 128);
  CHECK(json.at("tensors").at(0) ==
        nlohmann::json{{"name", "tok.weight"}, {"shape", {4096, 128}}, {"dtype", "F32"}});
  CHECK(json.at("decays").size() == 3);
  CHECK(json.at("decays").at("blocks.0").at(0).get<double>() == Approx(0.990048).epsilon(1e-6));
  CHECK(json.at("state_bytes_per_layer").size() == 4);
  // S and z of 4 heads of 32 channels in float.
  CHECK(json.at("state_bytes_per_layer").at(0) == 16'896);
  CHECK(json.at("weights_sha256") == inspect("storylm-1m", "[L,L,L,F]").at("weights_sha256"));
}

}  // namespace
