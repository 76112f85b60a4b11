// The small demonstrations of the seed chapter "Linear & Recurrent Attention", by name. Our own ops compute the
// numbers of each, which are held against what the chapter prints or states.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace storytape {

struct DemoOptions {
  std::optional<double> beta;    // overwrite: strength of the last write, in [0, 2]; else 1
  std::optional<double> gate;    // gla-stability: every token's gate in every channel, in (0, 1]; else 0.7
  std::optional<size_t> length;  // gla-stability: tokens, at least 1; else 400
};

struct DemoNumber {
  enum class Verdict { kOk, kOff, kNotCheckable };
  std::string name;      // the chapter's, where it has one
  nlohmann::json value;  // a number, a truth, or a list of either
  nlohmann::json seed;   // the chapter's value; null where it has none that can be checked
  Verdict verdict;
  std::string remark;
};

// What a demonstration found. NaN never passes.
class DemoResult {
 public:
  // Wants the chapter's value, number by number to within `tolerance`, absolute.
  void near(std::string name, nlohmann::json value, nlohmann::json seed, double tolerance,
            std::string remark = "");
  // Wants exactly the chapter's value.
  void exact(std::string name, nlohmann::json value, nlohmann::json seed, std::string remark = "");
  // An error, or errors, that only rounding may cause: wants at most `bound`.
  void rounding(std::string name, nlohmann::json value, double bound, std::string remark = "");
  // Nothing to hold it against: the remark says why.
  void show(std::string name, nlohmann::json value, std::string remark);

  const std::vector<DemoNumber>& numbers() const { return numbers_; }
  bool ok() const;

 private:
  void add(std::string name, nlohmann::json value, nlohmann::json seed, bool ok, std::string remark);
  std::vector<DemoNumber> numbers_;
};

struct Demo {
  std::string_view name;
  std::string_view shows;  // one line
  DemoResult (*run)(const DemoOptions&);
};

// In the chapter's order.
std::span<const Demo> demos();
// A UsageError names the nearest known one, if there is none of this name.
const Demo& find_demo(std::string_view name);

// Each is described by its line in the list (demo.cc).
DemoResult demo_overwrite(const DemoOptions&);
DemoResult demo_recall(const DemoOptions&);
DemoResult demo_reset(const DemoOptions&);
DemoResult demo_horizon(const DemoOptions&);
DemoResult demo_gla_stability(const DemoOptions&);
DemoResult demo_gated_delta_stability(const DemoOptions&);
DemoResult demo_delta_chunks(const DemoOptions&);
DemoResult demo_rotation(const DemoOptions&);
DemoResult demo_permutation(const DemoOptions&);
DemoResult demo_determinants(const DemoOptions&);
DemoResult demo_duality(const DemoOptions&);
DemoResult demo_reductions(const DemoOptions&);
DemoResult demo_wkv_faces(const DemoOptions&);
DemoResult demo_wkv_horizon(const DemoOptions&);
DemoResult demo_rwkv_decode(const DemoOptions&);
DemoResult demo_token_shift(const DemoOptions&);
DemoResult demo_cost(const DemoOptions&);

}  // namespace storytape
