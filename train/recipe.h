// How a model is trained: the numbers of one run's optimizer and schedule.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace storytape {

struct Recipe {
  std::string name;
  size_t batch = 0;    // sequences per step
  size_t context = 0;  // tokens per sequence
  size_t steps = 0;
  size_t warmup = 0;  // steps of linear warm-up
  double lr = 0;      // peak learning rate
  double min_lr = 0;
  double weight_decay = 0;
  bool decay_all = false;  // the course decays every parameter, `default` matrices alone
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double clip = 1.0;  // largest global gradient norm; 0: no clipping

  // A UsageError names the first number that is out of range.
  void check() const;
  bool operator==(const Recipe&) const = default;
};

std::vector<std::string> recipe_names();
// "course": the course's three-way run (16×128, 1,000 steps). "default": the best found by measurement for
// StoryLM-1M within ten minutes on two cores (docs/decisions.md). A UsageError for other names.
Recipe recipe(std::string_view name);

nlohmann::json to_json(const Recipe& recipe);
Recipe recipe_from_json(const nlohmann::json& json, const std::string& what);

// Learning rate of a step, counted from 0: (step+1)/warmup of the peak while warming up, then half a cosine
// from the peak to min_lr at the last step's end, min_lr after it. Never 0 at the first step, never NaN.
double learning_rate(const Recipe& recipe, size_t step);

}  // namespace storytape
