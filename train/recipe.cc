#include "train/recipe.h"

#include <cmath>
#include <numbers>

#include "tensor/error.h"

namespace storytape {

std::vector<std::string> recipe_names() {
  return {"default", "course"};
}

Recipe recipe(std::string_view name) {
  Recipe r;
  r.name = name;
  if (name == "course") {
    r.batch = 16;
    r.context = 128;
    r.steps = 1000;
    r.warmup = 100;
    r.lr = 3e-4;
    r.min_lr = 3e-5;
    r.weight_decay = 0.05;
    r.decay_all = true;
  } else if (name == "default") {
    r.batch = 8;
    r.context = 256;
    r.steps = 5000;
    r.warmup = 200;
    r.lr = 4e-3;
    r.min_lr = 1e-4;
    r.weight_decay = 0.1;
    r.beta2 = 0.99;
  } else {
    fail_usage("unknown recipe \"{}\"; there are {}", name, fmt::join(recipe_names(), ", "));
  }
  return r;
}

void Recipe::check() const {
  const auto whole = [](const char* what, size_t value, size_t least, size_t most) {
    if (value < least || value > most) fail_usage("{} must be in {}..{}, got {}", what, least, most, value);
  };
  const auto real = [](const char* what, double value, double least, double below) {
    if (!(value >= least && value < below))
      fail_usage("{} must be in [{}, {}), got {}", what, least, below, value);
  };
  whole("batch", batch, 1, 1u << 20);
  whole("context", context, 1, 1u << 24);
  whole("steps", steps, 1, 1u << 30);
  whole("warmup", warmup, 0, 1u << 30);
  real("learning rate", lr, 0, 1e6);
  real("minimum learning rate", min_lr, 0, 1e6);
  if (min_lr > lr) fail_usage("minimum learning rate {} is above the learning rate {}", min_lr, lr);
  real("weight decay", weight_decay, 0, 1e3);
  real("beta1", beta1, 0, 1);
  real("beta2", beta2, 0, 1);
  real("clip", clip, 0, 1e30);
  if (!(eps > 0 && eps < 1)) fail_usage("eps must be in (0, 1), got {}", eps);
}

nlohmann::json to_json(const Recipe& r) {
  return {{"name", r.name},
          {"batch", r.batch},
          {"context", r.context},
          {"steps", r.steps},
          {"warmup", r.warmup},
          {"lr", r.lr},
          {"min_lr", r.min_lr},
          {"weight_decay", r.weight_decay},
          {"decay_all", r.decay_all},
          {"beta1", r.beta1},
          {"beta2", r.beta2},
          {"eps", r.eps},
          {"clip", r.clip}};
}

Recipe recipe_from_json(const nlohmann::json& json, const std::string& what) {
  Recipe r;
  try {
    r.name = json.at("name").get<std::string>();
    for (auto [key, field] : {std::pair{"batch", &r.batch},
                              {"context", &r.context},
                              {"steps", &r.steps},
                              {"warmup", &r.warmup}}) {
      if (!json.at(key).is_number_unsigned()) fail("{}: \"recipe.{}\" wants a whole number", what, key);
      *field = json.at(key).get<size_t>();
    }
    for (auto [key, field] : {std::pair{"lr", &r.lr},
                              {"min_lr", &r.min_lr},
                              {"weight_decay", &r.weight_decay},
                              {"beta1", &r.beta1},
                              {"beta2", &r.beta2},
                              {"eps", &r.eps},
                              {"clip", &r.clip}}) {
      *field = json.at(key).get<double>();
    }
    r.decay_all = json.at("decay_all").get<bool>();
    r.check();
  } catch (const nlohmann::json::exception& error) {
    fail("{}: \"recipe\": {}", what, error.what());
  } catch (const Error& error) {
    fail("{}: {}", what, error.what());
  }
  return r;
}

double learning_rate(const Recipe& r, size_t step) {
  if (step < r.warmup) return r.lr * static_cast<double>(step + 1) / static_cast<double>(r.warmup);
  if (step >= r.steps) return r.min_lr;
  const double progress = static_cast<double>(step - r.warmup) / static_cast<double>(r.steps - r.warmup);
  return r.min_lr + 0.5 * (1 + std::cos(std::numbers::pi * progress)) * (r.lr - r.min_lr);
}

}  // namespace storytape
