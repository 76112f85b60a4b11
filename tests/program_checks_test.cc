// The commands that prove: gradcheck, faces, verify.
#include "tests/catch.h"
#include "tests/program.h"
#include "tests/shared.h"

using namespace storytape::test;

namespace {

namespace fs = std::filesystem;

TEST_CASE("gradcheck lists every input with its errors") {
  const nlohmann::json json = run({"gradcheck", "head_loss", "--json"}).json();
  CHECK(json.at("failed") == 0);
  CHECK(json.at("passed") == json.at("ops").size());
  std::string inputs;
  for (const nlohmann::json& row : json.at("ops")) {
    CHECK(row.at("op") == "head_loss");
    CHECK(row.at("ok") == true);
    CHECK(row.at("worst").get<double>() <= 1e-10);
    CHECK(row.at("worst_difference").get<double>() <= 1e-7);
    inputs += row.at("input").get<std::string>() + " ";
  }
  CHECK(inputs == "h table -> loss bias ");
  const Outcome text = run({"gradcheck", "embed", "--examples"});
  CHECK(text.code == 0);
  CHECK(text.out.find("repeated tokens") != std::string::npos);
  CHECK(text.out.ends_with(" passed, 0 failed\n"));
}

TEST_CASE("faces lists every face with its errors") {
  const nlohmann::json json = run({"faces", "linear", "--short", "--json"}).json();
  CHECK(json.at("failed") == 0);
  REQUIRE(json.at("passed").get<size_t>() == json.at("results").size());
  REQUIRE(json.at("results").size() >= 6);
  for (const nlohmann::json& row : json.at("results")) {
    CHECK(row.at("ok") == true);
    const double bound = row.at("dtype") == "float64" ? 1e-11 : 1e-3;
    for (const char* error : {"worst_output", "worst_state", "worst_gradient"})
      CHECK(row.at(error).get<double>() <= bound);
  }
}

TEST_CASE("verify tells what kind of golden data it has by the format, and refuses others") {
  const TemporaryFolder folder;
  write(folder / "index.json", R"({"format": "golden-images 3"})");
  CHECK(refusal(run({"verify", folder.path().string()}), 1, {"golden-images 3", "golden-tokenizer 1"}) == "");
  write(folder / "index.json", R"({"cases": []})");
  CHECK(refusal(run({"verify", folder.path().string()}), 1, {"format"}) == "");
  write(folder / "index.json", R"({"format": "safetensors", "cases": []})");
  CHECK(refusal(run({"verify", folder.path().string()}), 1, {"cases"}) == "");
  write(folder / "index.json", "{");
  CHECK(refusal(run({"verify", folder.path().string()}), 1, {"index.json", "line 1"}) == "");
}

TEST_CASE("verify fails for what it does not know, and for what is missing") {
  const TemporaryFolder folder;
  write(folder / "index.json", R"({"format": "safetensors", "cases": [
    {"variant": "no_such_mixer", "case": "tiny", "file": "a.safetensors"},
    {"variant": "softmax", "case": "tiny", "file": "b.safetensors"}]})");
  const Outcome outcome = run({"verify", folder.path().string(), "--json"});
  CHECK(outcome.code == 1);
  const nlohmann::json json = outcome.json();
  CHECK(json.at("passed") == 0);
  CHECK(json.at("failed") == 1);
  CHECK(json.at("unknown") == 1);
  CHECK(json.at("results").at(0).at("variant") == "no_such_mixer");
  CHECK(json.at("results").at(1).at("detail").get<std::string>().find("b.safetensors") != std::string::npos);
}

TEST_CASE("verify passes the golden data of what is built") {
  STORYTAPE_NEED_SHARED(shared);
  for (const char* folder : {"golden-tokenizer", "golden-safetensors"}) {
    INFO(folder);
    const Outcome outcome = run({"verify", (shared / folder).string(), "--json"});
    CHECK(outcome.code == 0);
    const nlohmann::json json = outcome.json();
    CHECK(json.at("failed") == 0);
    CHECK(json.at("unknown") == 0);
    CHECK(json.at("passed") == json.at("results").size());
    CHECK(json.at("results").at(0).contains("section"));
  }
  const Outcome some =
      run({"verify", (shared / "golden").string(), "--only", "softmax_attention", "--only", "g*_erf"});
  CHECK(some.code == 0);
  CHECK(some.out.ends_with(" passed, 0 failed, 0 unknown\n"));
  CHECK(refusal(run({"verify", (shared / "golden").string(), "--only", "nothing"}), 2, {"nothing"}) == "");
  const Outcome layers = run({"verify", (shared / "golden-layers").string(), "--json"});
  CHECK(layers.code == 0);
  CHECK(layers.json().at("failed") == 0);
  CHECK(layers.json().at("unknown") == 0);
}

}  // namespace
