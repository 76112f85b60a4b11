#include "train/recipe.h"

#include <cmath>

#include "nn/parameters.h"
#include "tests/catch.h"
#include "train/optimizer.h"

using namespace storytape;

TEST_CASE("B038 the learning rate at the corners of its schedule") {
  Recipe r = recipe("course");
  r.lr = 1e-3;
  r.min_lr = 1e-4;
  r.warmup = 10;
  r.steps = 110;
  CHECK(learning_rate(r, 0) == Approx(1e-4));
  CHECK(learning_rate(r, 9) == Approx(1e-3));
  CHECK(learning_rate(r, 10) == Approx(1e-3));
  CHECK(learning_rate(r, 60) == Approx((1e-3 + 1e-4) / 2));
  CHECK(learning_rate(r, 110) == 1e-4);
  CHECK(learning_rate(r, 1000000) == 1e-4);
  for (const size_t warmup : {0u, 1u, 109u, 110u, 115u}) {
    r.warmup = warmup;
    CHECK(learning_rate(r, 0) > 0);
    double peak = 0;
    for (size_t step = 0; step < 130; ++step) {
      const double lr = learning_rate(r, step);
      CHECK(std::isfinite(lr));
      CHECK(lr >= 0);
      peak = std::max(peak, lr);
    }
    if (warmup <= 110) CHECK(peak == Approx(1e-3));
  }
  r.warmup = 0;
  r.steps = 1;
  CHECK(learning_rate(r, 0) == Approx(1e-3));
  CHECK(learning_rate(r, 1) == 1e-4);
  r.min_lr = r.lr;
  CHECK(learning_rate(r, 0) == Approx(r.lr));
}

namespace {

// Two parameters, a matrix and a vector, and their gradients in one lane.
struct Fixture {
  Fixture() : parameters(1), pool(2) {
    parameters.add("w", {2, 3}, Init::constant(2));
    parameters.add("b", {4}, Init::constant(2));
    gradient.resize(parameters.elements());
  }
  StepReport step(const Recipe& r, size_t n = 0) {
    if (!optimizer) optimizer = std::make_unique<AdamWOptimizer>(parameters, r);
    float* lanes[] = {gradient.data()};
    return optimizer->step(n, lanes, pool);
  }
  ParameterList<float> parameters;
  ThreadPool pool;
  std::vector<float> gradient;
  std::unique_ptr<AdamWOptimizer> optimizer;
};

Recipe flat(double lr, double decay) {
  Recipe r = recipe("default");
  r.lr = r.min_lr = lr;
  r.warmup = 0;
  r.weight_decay = decay;
  return r;
}

}  // namespace

TEST_CASE("B040 decay touches matrices once and nothing else, or everything in the course's recipe") {
  Fixture f;
  f.step(flat(0.1, 0.5));
  CHECK(std::as_const(f.parameters[0]).value()[0] == Approx(2 * 0.95));
  CHECK(std::as_const(f.parameters[1]).value()[0] == 2);
  Fixture all;
  Recipe r = flat(0.1, 0.01);
  r.decay_all = true;
  all.step(r);
  CHECK(std::as_const(all.parameters[0]).value()[0] == Approx(2 * (1 - 0.001)));
  CHECK(std::as_const(all.parameters[1]).value()[3] == Approx(2 * (1 - 0.001)));
}

TEST_CASE("B034 clipping survives gradients whose squares overflow, and names what is not finite") {
  ParameterList<float> parameters(1);
  parameters.add("big", {100}, Init::constant(1));
  ThreadPool pool(1);
  std::vector<float> gradient(100, 1e20f);
  float* lanes[] = {gradient.data()};
  Recipe r = flat(0.1, 0);
  AdamWOptimizer optimizer(parameters, r);
  CHECK(optimizer.step(0, lanes, pool).gradient_norm == Approx(1e21));
  // Each entry was clipped to 0.1; m = (1 - beta1) · 0.1.
  CHECK(optimizer.m()[7] == Approx(0.1 * (1 - r.beta1)));

  Fixture f;
  for (const float bad : {INFINITY, NAN}) {
    const std::vector<float> before = f.parameters[0].value().to_vector();
    f.gradient.assign(f.gradient.size(), 0.5f);
    f.gradient[7] = bad;  // in "b"
    CHECK_THROWS_WITH(f.step(r, 3), Catch::Matchers::Contains("step 4") && Catch::Matchers::Contains(" b "));
    CHECK(f.parameters[0].value().to_vector() == before);
    CHECK(f.optimizer->m() == std::vector<float>(f.gradient.size(), 0.0f));
  }
  f.gradient.assign(f.gradient.size(), 0.0f);
  CHECK(f.step(r).gradient_norm == 0);
  CHECK(std::as_const(f.parameters[1]).value()[0] == 2);
}

TEST_CASE("[3, 4] clipped to 1 reports its norm of 5") {
  ParameterList<float> parameters(1);
  parameters.add("p", {2}, Init::constant(0));
  ThreadPool pool(1);
  std::vector<float> gradient = {3, 4};
  float* lanes[] = {gradient.data()};
  Recipe r = flat(0.1, 0);
  AdamWOptimizer optimizer(parameters, r);
  CHECK(optimizer.step(0, lanes, pool).gradient_norm == Approx(5));
  CHECK(optimizer.m()[1] == Approx(0.8 * (1 - r.beta1)));
}

TEST_CASE("recipes out of range are refused by name") {
  for (const auto& spoil : std::vector<std::function<void(Recipe&)>>{
           [](Recipe& r) { r.lr = std::nan(""); }, [](Recipe& r) { r.steps = 0; },
           [](Recipe& r) { r.batch = 0; }, [](Recipe& r) { r.min_lr = 1; }, [](Recipe& r) { r.beta1 = 1; },
           [](Recipe& r) { r.clip = -1; }}) {
    Recipe r = recipe("course");
    spoil(r);
    CHECK_THROWS_AS(r.check(), UsageError);
  }
  CHECK_THROWS_WITH(recipe("best"), Catch::Matchers::Contains("default, course"));
  const Recipe r = recipe("course");
  CHECK(recipe_from_json(to_json(r), "test") == r);
}
