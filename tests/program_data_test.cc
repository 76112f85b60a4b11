// The commands for tokenizers and text.
#include "tests/catch.h"
#include "tests/program.h"

using namespace storytape::test;

namespace {

namespace fs = std::filesystem;

// A tokenizer of 300 tokens.
std::string tokenizer() {
  return (trained_run() / "tokenizer.json").string();
}

TEST_CASE("tokenizer train writes what info describes") {
  const TemporaryFolder folder;
  const std::string out = (folder / "tokenizer.json").string();
  const std::vector<std::string> command = {"tokenizer", "train", small_text().string(), "--vocab", "280",
                                            "--out",     out};
  const Outcome trained =
      run({"tokenizer", "train", small_text().string(), "--vocab", "280", "--out", out, "--json"});
  REQUIRE(trained.code == 0);
  CHECK(trained.json().at("vocab") == 280);
  CHECK(trained.json().at("merges") == 16);
  const nlohmann::json info = run({"tokenizer", "info", out, small_text().string(), "--json"}).json();
  CHECK(info.at("vocab") == 280);
  CHECK(info.at("merges") == 16);
  CHECK(info.at("fingerprint") == trained.json().at("fingerprint"));
  CHECK(info.at("specials").at("<|endoftext|>") == 256);
  CHECK(info.at("bytes") == fs::file_size(small_text()));
  CHECK(info.at("tokens").get<double>() < info.at("bytes").get<double>());
  CHECK(info.at("longest").at(0).at("bytes").get<int>() >= 2);
  CHECK(run({"tokenizer", "info", out}).out.find("280 tokens") != std::string::npos);

  const std::string before = contents(out);
  CHECK(refusal(run(command), 1, {out, "--overwrite"}) == "");
  CHECK(contents(out) == before);
  CHECK(refusal(run({"tokenizer", "train", small_text().string(), "--vocab", "263", "--out", out}), 2,
                {"--vocab"}) == "");
  CHECK(refusal(run({"tokenizer", "train", small_text().string(), "--out", (folder / "no" / "x").string()}),
                1, {"no"}) == "");
  CHECK(refusal(run({"tokenizer", "train", small_text().string(), "--out", folder.path().string()}), 1,
                {"folder"}) == "");
  CHECK(refusal(run({"tokenizer", "train", "missing.txt", "--out", (folder / "x").string()}), 1,
                {"missing.txt"}) == "");
  if (fs::exists("/dev/full")) {
    CHECK(refusal(run({"tokenizer", "train", small_text().string(), "--vocab", "264", "--out", "/dev/full"}),
                  1, {"/dev/full"}) == "");
  }
}

TEST_CASE(
    "a pair that is rarer than --min-frequency is not merged, and a small text gives a small vocabulary") {
  const TemporaryFolder folder;
  write(folder / "text", "abababab cd");
  const auto train = [&](const char* frequency) {
    return run({"tokenizer", "train", (folder / "text").string(), "--vocab", "300", "--min-frequency",
                frequency, "--overwrite", "--out", (folder / "out").string(), "--json"});
  };
  CHECK(train("2").json().at("merges") == 2);
  CHECK(train("1000").json().at("merges") == 0);
  CHECK(train("2").err.find("266 instead of 300") != std::string::npos);
}

TEST_CASE("encode and decode are each other's inverse on any bytes") {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  for (const std::string& text :
       {std::string("Once upon a time"), std::string(), bytes, std::string("[a, b]"),
        std::string("é😀\r\n\n "), std::string("\xff\xfe<|endoftext|>\0x", 17)}) {
    const Outcome encoded = run({"tokenizer", "encode", "--tokenizer", tokenizer()}, {.input = text});
    REQUIRE(encoded.code == 0);
    CHECK(encoded.err.empty());
    CHECK(encoded.out.find('\n') == encoded.out.size() - 1);
    const Outcome decoded = run({"tokenizer", "decode", "--tokenizer", tokenizer()}, {.input = encoded.out});
    REQUIRE(decoded.code == 0);
    CHECK(decoded.out == text);
    const nlohmann::json json =
        run({"tokenizer", "encode", "--tokenizer", tokenizer(), "--json"}, {.input = text}).json();
    CHECK(json.at("bytes") == text.size());
    const Outcome listed =
        run({"tokenizer", "decode", "--tokenizer", tokenizer()}, {.input = json.at("ids").dump()});
    CHECK(listed.out == text);
  }
}

TEST_CASE("text and ids on the command line are those of standard input") {
  const std::string run_folder = trained_run().string();
  for (const char* text : {"Tom and Lily", "[one, two]", "train", "", " "}) {
    INFO("\"" << text << "\"");
    const Outcome given = run({"tokenizer", "encode", "--tokenizer", run_folder, text});
    CHECK(given.code == 0);
    CHECK(given.out == run({"tokenizer", "encode", "--tokenizer", tokenizer()}, {.input = text}).out);
  }
  CHECK(run({"tokenizer", "encode", "--tokenizer", run_folder, "--", "-5 apples"}).code == 0);
  CHECK(run({"tokenizer", "decode", "--tokenizer", run_folder, "72", "105"}).out == "Hi");
  CHECK(run({"tokenizer", "decode", "--tokenizer", run_folder, "[72, 105]"}).out == "Hi");
  CHECK(run({"tokenizer", "decode", "--tokenizer", run_folder, "72", "256", "105", "--skip-specials"}).out ==
        "Hi");
}

TEST_CASE("B069 a special token's text is text unless --specials is given") {
  const auto ids = [](std::vector<std::string> options) {
    options.insert(options.begin(), {"tokenizer", "encode", "--tokenizer", tokenizer(), "--json"});
    return run(options).json().at("ids");
  };
  CHECK(ids({"<|endoftext|>", "--specials"}) == nlohmann::json{256});
  CHECK(ids({"<|endoftext|>"}).size() > 1);
}

TEST_CASE("ids that are none are refused by their text") {
  for (const char* id : {"300", "x", "1.5", "99999999999", "0x10"}) {
    INFO(id);
    const Outcome outcome = run({"tokenizer", "decode", "--tokenizer", tokenizer(), id});
    CHECK(refusal(outcome, std::string(id) == "300" ? 1 : 2, {id}) == "");
  }
  CHECK(refusal(run({"tokenizer", "decode", "--tokenizer", tokenizer()}, {.input = "1 -1"}), 2, {"-1"}) ==
        "");
  CHECK(refusal(run({"tokenizer", "encode", "--tokenizer", "missing.json", "x"}), 1, {"missing.json"}) == "");
  CHECK(refusal(run({"tokenizer", "info", small_text().string()}), 1, {small_text().string()}) == "");
}

TEST_CASE("data make writes the corpus once, the same for a seed") {
  const TemporaryFolder folder;
  const auto make = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.begin(), {"data", "make", "--out", (folder / name).string(), "--bytes", "30000"});
    return run(more);
  };
  const nlohmann::json made = make("a", {"--json"}).json();
  CHECK(made.at("train_bytes") == fs::file_size(folder / "a" / "train.txt"));
  CHECK(made.at("valid_bytes") == fs::file_size(folder / "a" / "valid.txt"));
  CHECK(made.at("stories").get<int>() > 20);
  REQUIRE(make("b", {}).code == 0);
  CHECK(file_hashes(folder / "a") == file_hashes(folder / "b"));
  REQUIRE(make("c", {"--seed", "1"}).code == 0);
  CHECK(file_hashes(folder / "a") != file_hashes(folder / "c"));

  write(folder / "a" / "valid.txt", "mine");
  CHECK(refusal(make("a", {}), 1, {"--overwrite"}) == "");
  CHECK(contents(folder / "a" / "valid.txt") == "mine");
  CHECK(make("a", {"--overwrite"}).code == 0);
  CHECK(file_hashes(folder / "a") == file_hashes(folder / "b"));
}

TEST_CASE("data prepare spares train the work") {
  const TemporaryFolder folder;
  const std::string cache = (folder / "cache").string();
  const Outcome prepared = run({"data", "prepare", small_text().string(), "--valid",
                                small_valid_text().string(), "--vocab", "300", "--cache", cache, "--json"});
  REQUIRE(prepared.code == 0);
  CHECK(prepared.json().at("vocab") == 300);
  CHECK(prepared.json().at("train_bytes") == fs::file_size(small_text()));
  const auto kept = file_hashes(cache);
  CHECK(kept.size() == 3);
  REQUIRE(run(small_training(folder / "run", {"--cache", cache, "--steps", "1"})).code == 0);
  CHECK(file_hashes(cache) == kept);
  CHECK(contents(folder / "run" / "tokenizer.json") == contents(trained_run() / "tokenizer.json"));
  CHECK(refusal(run({"data", "prepare", small_text().string(), "--vocab", "300", "--tokenizer", "x"}), 2,
                {"--vocab"}) == "");
}

TEST_CASE("data info counts bytes, stories and tokens") {
  const TemporaryFolder folder;
  write(folder / "text", "\xef\xbb\xbfOne cat.\r\n<|endoftext|>\r\n \r\nTwo dogs \xff!\n<|endoftext|>\n\n");
  const nlohmann::json json =
      run({"data", "info", (folder / "text").string(), "--tokenizer", tokenizer(), "--json"}).json();
  const nlohmann::json file = json.at("files").at(0);
  CHECK(file.at("bytes") == fs::file_size(folder / "text"));
  CHECK(file.at("stories") == 2);
  CHECK(file.at("separators") == 2);
  CHECK(file.at("utf8") == false);
  CHECK(file.at("invalid_parts") == 1);
  CHECK(file.at("crlf_lines") == 3);
  CHECK(file.at("byte_order_mark") == true);
  CHECK(file.at("tokens").get<int>() > 10);
  const Outcome both = run({"data", "info", small_text().string(), small_valid_text().string()});
  CHECK(both.code == 0);
  CHECK(both.out.find("valid.txt") != std::string::npos);
  CHECK(refusal(run({"data", "info", folder.path().string()}), 1, {folder.path().string()}) == "");
  CHECK(refusal(run({"data", "info"}), 2, {"files"}) == "");
}

}  // namespace
