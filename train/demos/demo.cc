#include "train/demos/demo.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tensor/error.h"
#include "tensor/names.h"
#include "train/files.h"

namespace storytape {
namespace {

using nlohmann::json;

constexpr Demo kDemos[] = {
    {"duality", "one recurrence under three gates, each in parallel and token by token", demo_duality},
    {"cost", "multiplications and state of softmax and linear attention, and where they cross", demo_cost},
    {"gla-stability", "GLA's textbook parallel form ends at length, the chunkwise form goes on",
     demo_gla_stability},
    {"overwrite", "a second value under the same key: added, or in place of the first", demo_overwrite},
    {"recall", "n facts stored, all updated, all asked for", demo_recall},
    {"reset", "one gate of 0 forgets everything", demo_reset},
    {"horizon", "a fact that nobody refreshes fades as a power of the gate", demo_horizon},
    {"delta-chunks", "the chunk's size does not change the delta rule", demo_delta_chunks},
    {"gated-delta-stability", "the gated delta rule divided by its gates' product ends at length",
     demo_gated_delta_stability},
    {"rotation", "two reflections are a rotation, one is not", demo_rotation},
    {"permutation", "a transposition is one reflection, a 3-cycle is two", demo_permutation},
    {"determinants", "the transition's determinant by writes per token", demo_determinants},
    {"wkv-faces", "WKV in parallel, token by token and in chunks; its first output is its first value",
     demo_wkv_faces},
    {"wkv-horizon", "the weights that the last of twelve tokens gives the others", demo_wkv_horizon},
    {"token-shift", "each channel mixed with the token before", demo_token_shift},
    {"rwkv-decode", "RWKV's time mixing decoded in constant memory, beside a growing cache",
     demo_rwkv_decode},
    {"reductions", "each mixer at the special gates where it is another one", demo_reductions},
};

// Numbers in lists of any depth, within the tolerance; anything else equal.
bool agree(const json& a, const json& b, double tolerance) {
  if (a.is_array() && b.is_array()) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i) {
      if (!agree(a[i], b[i], tolerance)) return false;
    }
    return true;
  }
  if (!a.is_number() || !b.is_number()) return a == b;
  return std::abs(a.get<double>() - b.get<double>()) <= tolerance;
}

bool at_most(const json& value, double bound) {
  if (value.is_number()) return std::abs(value.get<double>()) <= bound;
  return value.is_array() && !value.empty() &&
         std::all_of(value.begin(), value.end(), [&](const json& v) { return at_most(v, bound); });
}

}  // namespace

std::span<const Demo> demos() {
  return kDemos;
}

const Demo& find_demo(std::string_view name) {
  std::vector<std::string> known;
  for (const Demo& demo : kDemos) {
    if (demo.name == name) return demo;
    known.emplace_back(demo.name);
  }
  const std::string nearest = nearest_name(name, known);
  fail_usage("there is no demonstration \"{}\"{} (see storytape demo --list)", printable(name),
             nearest.empty() ? "" : fmt::format("; the nearest is {}", nearest));
}

void DemoResult::add(std::string name, json value, json seed, bool ok, std::string remark) {
  numbers_.push_back({std::move(name), std::move(value), std::move(seed),
                      ok ? DemoNumber::Verdict::kOk : DemoNumber::Verdict::kOff, std::move(remark)});
}

void DemoResult::near(std::string name, json value, json seed, double tolerance, std::string remark) {
  const bool ok = agree(value, seed, tolerance);
  add(std::move(name), std::move(value), std::move(seed), ok, std::move(remark));
}

void DemoResult::exact(std::string name, json value, json seed, std::string remark) {
  near(std::move(name), std::move(value), std::move(seed), 0, std::move(remark));
}

void DemoResult::rounding(std::string name, json value, double bound, std::string remark) {
  const bool ok = at_most(value, bound);
  const std::string allowed = fmt::format("rounding, at most {:.0e}", bound);
  add(std::move(name), std::move(value), nullptr, ok, remark.empty() ? allowed : allowed + "; " + remark);
}

void DemoResult::show(std::string name, json value, std::string remark) {
  numbers_.push_back(
      {std::move(name), std::move(value), nullptr, DemoNumber::Verdict::kNotCheckable, std::move(remark)});
}

bool DemoResult::ok() const {
  return std::none_of(numbers_.begin(), numbers_.end(),
                      [](const DemoNumber& n) { return n.verdict == DemoNumber::Verdict::kOff; });
}

}  // namespace storytape
