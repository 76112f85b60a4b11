// The demonstrations as a user runs them.
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/program.h"
#include "train/demos/demo.h"

using namespace storytape::test;

namespace {

// Each demonstration and the numbers that scripts may rely on.
const std::map<std::string, std::vector<std::string>> kNumbers = {
    {"duality",
     {"linear_max_abs_diff", "retention_max_abs_diff", "gated_max_abs_diff", "linear_state_norm",
      "retention_state_norm", "gated_state_norm"}},
    {"cost",
     {"length", "linear_multiplications", "softmax_multiplications", "crossover", "kv_cache_bytes",
      "state_bytes"}},
    {"gla-stability",
     {"gate", "length", "parallel_nan", "chunkwise_nan", "overflow_length", "first_nan_length"}},
    {"overwrite", {"additive", "delta", "target", "delta_exact"}},
    {"recall", {"n", "additive_error", "delta_error"}},
    {"reset", {"gated_error", "delta_error", "gated_readout"}},
    {"horizon", {"alpha", "age", "recall", "horizon"}},
    {"delta-chunks", {"chunk_size", "chunks", "max_abs_diff"}},
    {"gated-delta-stability",
     {"global_nan", "chunkwise_nan", "below_normal_length", "below_normal_length_exercise_8"}},
    {"rotation", {"det_one", "det_two", "matches", "max_error"}},
    {"permutation", {"transposition_det", "three_cycle_det", "matches", "order"}},
    {"determinants", {"determinants", "n_h_1_error", "flattened_error"}},
    {"wkv-faces", {"agree", "max_abs_diff", "first_token_is_value"}},
    {"wkv-horizon", {"w_0_u_0", "w_2_u_0_last_three", "w_0_u_1"}},
    {"token-shift", {"mu_1", "mu_0"}},
    {"rwkv-decode",
     {"agree", "max_abs_diff", "state_bytes", "kv_cache_bytes_equiv", "kv_cache_bytes_float32"}},
    {"reductions",
     {"retention_gamma_1", "gla_alpha_gamma", "gated_delta_alpha_1", "gated_is_rescaled_delta"}},
};

nlohmann::json demo(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"demo", "--json"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const Outcome outcome = run(all);
  CHECK(outcome.code == 0);
  return outcome.json();
}

TEST_CASE("demo --list lists every demonstration, and each one runs and holds") {
  const nlohmann::json list = demo({"--list"});
  std::set<std::string> listed;
  for (const nlohmann::json& item : list.at("demos")) {
    CHECK_FALSE(item.at("shows").get<std::string>().empty());
    listed.insert(item.at("name"));
  }
  CHECK(listed.size() == list.at("demos").size());
  std::set<std::string> known;
  for (const auto& [name, numbers] : kNumbers) known.insert(name);
  CHECK(listed == known);
  for (const auto& [name, numbers] : kNumbers) {
    INFO(name);
    const nlohmann::json json = demo({name});
    CHECK(json.at("demo") == name);
    CHECK(json.at("ok") == true);
    CHECK(json.at("off").empty());
    for (const std::string& number : numbers) {
      INFO(number);
      REQUIRE(json.contains(number));
      CHECK_FALSE(json.at(number).is_null());
    }
    // What the seed has is among the numbers.
    for (const auto& [number, value] : json.at("seed").items()) CHECK(json.contains(number));
  }
  const nlohmann::json all = demo({"--all"});
  CHECK(all.at("failed") == 0);
  CHECK(all.at("passed") == listed.size());
  CHECK(all.at("demos").size() == listed.size());
}

TEST_CASE("demo shows the seed's numbers") {
  const nlohmann::json overwrite = demo({"overwrite"});
  CHECK(overwrite.at("additive") == std::vector<double>{1, 0, 1});
  CHECK(overwrite.at("delta") == std::vector<double>{0, 0, 1});
  CHECK(overwrite.at("delta_exact") == true);
  CHECK(demo({"gated-delta-stability"}).at("below_normal_length") == 392);
  CHECK(demo({"gated-delta-stability"}).at("below_normal_length_exercise_8") == 538);
  CHECK(demo({"gla-stability"}).at("overflow_length") == 249);
  CHECK(demo({"gla-stability"}).at("parallel_nan") == true);
  CHECK(demo({"delta-chunks"}).at("chunks") == std::vector<int>{12, 4, 3, 1});
  const nlohmann::json determinants = demo({"determinants"}).at("determinants");
  for (size_t i = 0; i < 4; ++i)
    CHECK(determinants.at(i).get<double>() == Approx(i % 2 ? 1 : -1).epsilon(1e-5));
  CHECK(demo({"reset"}).at("delta_error") == 0);
}

TEST_CASE("demo takes the options of its demonstrations") {
  const nlohmann::json half = demo({"overwrite", "--beta", "0.5"});
  CHECK(half.at("delta") == std::vector<double>{0.5, 0, 0.5});
  CHECK(half.at("delta_exact") == false);
  // Below the cliff both forms hold; nearer to 0 the cliff comes sooner.
  const nlohmann::json gentle = demo({"gla-stability", "--gate", "0.99", "--length", "300"});
  CHECK(gentle.at("parallel_nan") == false);
  CHECK(gentle.at("first_nan_length").is_null());
  const nlohmann::json strong = demo({"gla-stability", "--gate", "0.5"});
  CHECK(strong.at("parallel_nan") == true);
  CHECK(strong.at("overflow_length").get<int>() < 249);
}

TEST_CASE("demo as text ends in its verdicts") {
  const Outcome one = run({"demo", "overwrite"});
  CHECK(one.code == 0);
  CHECK(one.out.find("[0 0 1]  (seed: [0 0 1])  ok") != std::string::npos);
  const Outcome all = run({"demo", "--all"});
  CHECK(all.code == 0);
  CHECK(all.out.ends_with(std::to_string(kNumbers.size()) + " passed, 0 failed\n"));
  CHECK(all.out.find("OFF") == std::string::npos);
}

TEST_CASE("demo refuses what it does not know") {
  CHECK(refusal(run({"demo", "overwrte"}), 2, {"\"overwrte\"", "the nearest is overwrite"}) == "");
  CHECK(refusal(run({"demo", "rotations", "--json"}), 2, {"the nearest is rotation"}) == "");
  CHECK(refusal(run({"demo"}), 2, {"--all", "--list"}) == "");
  CHECK(refusal(run({"demo", "recall", "--list"}), 2, {"one of"}) == "");
  CHECK(refusal(run({"demo", "recall", "--beta", "1"}), 2, {"--beta", "overwrite"}) == "");
  CHECK(refusal(run({"demo", "--all", "--length", "9"}), 2, {"--length", "gla-stability"}) == "");
  CHECK(refusal(run({"demo", "overwrite", "--beta", "2.5"}), 2, {"--beta", "from 0 to 2"}) == "");
  CHECK(refusal(run({"demo", "gla-stability", "--gate", "nan"}), 2, {"--gate"}) == "");
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST_CASE("a demonstration's number that is off is told") {
  const auto ok = [](auto&& add) {
    storytape::DemoResult result;
    result.exact("right", 1, 1);
    add(result);
    result.show("not checkable", kNan, "whatever it is");
    return result.ok();
  };
  using Result = storytape::DemoResult;
  CHECK(ok([](Result& r) { r.near("list", {1, 2.0001}, {1, 2}, 1e-3); }));
  CHECK_FALSE(ok([](Result& r) { r.near("list", {1, 2.01}, {1, 2}, 1e-3); }));
  CHECK_FALSE(ok([](Result& r) { r.near("short", {1}, {1, 2}, 1); }));
  CHECK_FALSE(ok([](Result& r) { r.near("nan", kNan, 1, 10); }));
  CHECK_FALSE(ok([](Result& r) { r.near("nan", kNan, kNan, 10); }));
  CHECK_FALSE(ok([](Result& r) { r.exact("truth", true, false); }));
  CHECK(ok([](Result& r) { r.rounding("error", {1e-7, -1e-7}, 1e-6); }));
  CHECK_FALSE(ok([](Result& r) { r.rounding("error", {1e-7, -1e-5}, 1e-6); }));
  CHECK_FALSE(ok([](Result& r) { r.rounding("nan", kNan, 1e-6); }));
  CHECK_FALSE(ok([](Result& r) { r.rounding("nothing", nlohmann::json::array(), 1e-6); }));
}

}  // namespace
