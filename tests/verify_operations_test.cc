// The runner of golden operations: what is right passes, what is wrong does not.
#include "train/verify_operations.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "tests/catch.h"
#include "tests/error_message.h"
#include "tests/shared.h"
#include "tests/temporary_folder.h"
#include "train/files.h"
#include "train/json.h"
#include "train/safetensors.h"
#include "train/verify_operations_run.h"

using namespace storytape;
using namespace storytape::test;

namespace {

namespace fs = std::filesystem;

const std::set<std::string> kBuilt = {"softmax_attention",
                                      "softmax_attention_gqa",
                                      "softmax_attention_swa",
                                      "forgetting_attention",
                                      "linear_attention",
                                      "linear_attention_decay",
                                      "linear_attention_identity",
                                      "retention",
                                      "retnet_gated_retention",
                                      "unified_recurrence",
                                      "gla",
                                      "delta_rule",
                                      "delta_rule_qk_l2norm",
                                      "gated_delta_rule",
                                      "kda",
                                      "delta_product",
                                      "gated_delta_product",
                                      "g2c_linear_attention_layer",
                                      "groupnorm_per_head",
                                      "swish_gate",
                                      "gla_gate",
                                      "l2_normalize",
                                      "token_shift",
                                      "rwkv4_wkv",
                                      "rwkv4_time_mix",
                                      "gelu_erf",
                                      "gelu_tanh",
                                      "silu",
                                      "sigmoid",
                                      "softplus",
                                      "log_sigmoid",
                                      "elu_plus_one",
                                      "layer_norm",
                                      "rms_norm",
                                      "softmax",
                                      "cross_entropy",
                                      "embedding",
                                      "causal_conv1d",
                                      "rope",
                                      "adamw",
                                      "cosine_schedule",
                                      "tiny_lm"};

TEST_CASE("golden operations: what is built passes in every face and type, the rest is unknown") {
  STORYTAPE_NEED_SHARED(shared);
  std::map<std::string, std::set<std::string>> seen;  // variant -> "face dtype"
  std::set<std::string> cases;
  for (const OperationRow& row : verify_operations(shared / "golden")) {
    INFO(row.variant << " " << row.case_name << " " << row.face << " " << row.dtype << ": " << row.detail);
    cases.insert(row.variant + "__" + row.case_name);
    if (!kBuilt.contains(row.variant)) {
      CHECK(row.unknown);
      CHECK_FALSE(row.ok);
      continue;
    }
    seen[row.variant].insert(row.face + " " + row.dtype);
    CHECK(row.ok);
    CHECK_FALSE(row.unknown);
    CHECK(row.worst_ratio <= 1);
    CHECK(row.worst_ratio >= 0);  // 0: equal to the last bit, as with one token
  }
  CHECK(cases.size() == 173);
  for (const std::string& variant : kBuilt) {
    INFO(variant);
    CHECK(seen[variant].size() >= 2);
  }
  for (const char* mixer : {"softmax_attention", "linear_attention", "linear_attention_decay", "tiny_lm"}) {
    for (const char* face : {"recurrent", "parallel", "chunkwise", "decode"}) {
      CHECK(seen[mixer].contains(std::string(face) + " float32"));
      CHECK(seen[mixer].contains(std::string(face) + " float64"));
    }
  }
}

// A case of `softplus` with given values: x, y, dy, dx.
struct MadeCase {
  std::vector<double> x = {0, 1}, y = {std::log(2.0), 1 + std::log1p(std::exp(-1.0))}, dy = {1, 2};
  std::vector<double> dx = {0.5, 2 / (1 + std::exp(-1.0))};
  nlohmann::json entry = {{"variant", "softplus"},
                          {"case", "made"},
                          {"file", "made.safetensors"},
                          {"attrs", nlohmann::json::object()},
                          {"f32", {{"rtol", 1e-5}, {"atol", {{"out.y", 1e-6}, {"grad.x", 1e-6}}}}},
                          {"f64", {{"rtol", 1e-9}, {"atol_rel_to_max", 1e-10}, {"atol_abs", 1e-12}}}};
  std::vector<std::string> without;  // tensors that the file lacks

  std::vector<OperationRow> rows() const {
    const TemporaryFolder folder;
    const std::vector<uint64_t> shape = {x.size()};
    std::vector<TensorView> tensors;
    for (const auto& [name, values] :
         {std::pair{"in.x", &x}, {"out.y", &y}, {"up.y", &dy}, {"grad.x", &dx}}) {
      if (std::find(without.begin(), without.end(), name) == without.end()) {
        tensors.push_back({name, Dtype::F64, {values->size()}, values->data()});
      }
    }
    write_safetensors(folder / "made.safetensors", tensors);
    write_file_atomic(folder / "index.json",
                      nlohmann::json{{"format", "safetensors"}, {"cases", {entry}}}.dump());
    return verify_operations(folder.path());
  }
  // Whether float and double pass; rows must be both.
  std::pair<bool, bool> verdict() const {
    const std::vector<OperationRow> both = rows();
    if (both.size() != 2) throw std::runtime_error("not two rows");
    for (const OperationRow& row : both) {
      // A failure says what failed.
      if (row.ok != row.detail.empty() || row.ok != (row.worst_ratio <= 1))
        throw std::runtime_error(row.detail);
    }
    return {both[0].ok, both[1].ok};
  }
};

constexpr std::pair<bool, bool> kBoth{true, true}, kNeither{false, false}, kFloatAlone{true, false};

TEST_CASE("the tolerances of the catalogue are applied to outputs and gradients") {
  CHECK(MadeCase().verdict() == kBoth);
  for (std::vector<double> MadeCase::*tensor : {&MadeCase::y, &MadeCase::dx}) {
    MadeCase c;
    (c.*tensor)[1] += 1e-4;
    CHECK(c.verdict() == kNeither);
    MadeCase small;
    (small.*tensor)[1] += 3e-6;
    CHECK(small.verdict() == kFloatAlone);
    MadeCase smaller;
    (smaller.*tensor)[0] += 1e-10;
    CHECK(smaller.verdict() == kBoth);
  }
}

TEST_CASE("B133 what is not a number passes nothing") {
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    for (std::vector<double> MadeCase::*tensor : {&MadeCase::x, &MadeCase::y, &MadeCase::dy, &MadeCase::dx}) {
      MadeCase c;
      (c.*tensor)[1] = bad;
      CHECK(c.verdict() == kNeither);
    }
  }
}

TEST_CASE("a tensor that is missing, of another shape or without tolerance fails") {
  MadeCase c;
  const auto fails = [&c] {
    const auto rows = c.rows();
    REQUIRE(rows.size() == 2);
    for (const OperationRow& row : rows) {
      CHECK_FALSE(row.ok);
      CHECK_FALSE(row.detail.empty());
      CHECK(row.worst_ratio > 1);
    }
  };
  SECTION("an output without its elements") {
    c.y = {c.y[0]};
    fails();
  }
  SECTION("a gradient of another shape") {
    c.dx.push_back(0);
    fails();
  }
  SECTION("an output that nothing computes") {
    c.entry["variant"] = "layer_norm";
    c.entry["attrs"] = {{"eps", 1e-5}};
    fails();
  }
  SECTION("no input") {
    c.without = {"in.x"};
    fails();
  }
  SECTION("no upstream gradient, but a gradient") {
    c.without = {"up.y"};
    fails();
  }
  SECTION("an attribute") {
    c.entry["variant"] = "rms_norm";
    fails();
  }
}

TEST_CASE("a tolerance that is missing or not positive fails its type") {
  MadeCase none;
  none.entry["f32"]["atol"].erase("grad.x");
  CHECK(none.verdict() == std::pair{false, true});
  MadeCase negative;
  negative.entry["f64"]["rtol"] = -1;
  CHECK(negative.verdict() == kFloatAlone);
  MadeCase text;
  text.entry["f64"]["atol_abs"] = "1e-12";
  CHECK(text.verdict() == kFloatAlone);
}

TEST_CASE("a case whose file is missing or damaged is one row that fails") {
  MadeCase c;
  c.entry["file"] = "other.safetensors";
  auto rows = c.rows();
  REQUIRE(rows.size() == 1);
  CHECK_FALSE(rows[0].ok);
  CHECK_FALSE(rows[0].unknown);
  CHECK(rows[0].detail.find("other.safetensors") != std::string::npos);
  c.entry["file"] = "index.json";
  rows = c.rows();
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].detail.find("index.json") != std::string::npos);
  c.entry.erase("file");
  rows = c.rows();
  REQUIRE(rows.size() == 1);
  CHECK_FALSE(rows[0].ok);
}

TEST_CASE("patterns choose variants") {
  CHECK(name_matches("softmax", "softmax"));
  CHECK_FALSE(name_matches("softmax", "softmax_attention"));
  CHECK(name_matches("softmax*", "softmax_attention"));
  CHECK(name_matches("?ilu", "silu"));
  STORYTAPE_NEED_SHARED(shared);
  OperationOptions options;
  options.only = {"silu", "gelu_*"};
  std::set<std::string> variants;
  for (const OperationRow& row : verify_operations(shared / "golden", options)) variants.insert(row.variant);
  CHECK(variants == std::set<std::string>{"silu", "gelu_erf", "gelu_tanh"});
  options.only = {"silu", "nothing"};
  CHECK(message_of([&] { verify_operations(shared / "golden", options); }).find("nothing") !=
        std::string::npos);
}

}  // namespace
