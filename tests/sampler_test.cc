#include "models/sampler.h"

#include <cmath>
#include <limits>

#include "tensor/error.h"
#include "tests/catch.h"

using namespace storytape;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

SamplerOptions plain() {
  SamplerOptions o;
  o.temperature = 1;
  return o;
}

}  // namespace

TEST_CASE("B097 temperature 0 is greedy, tiny ones equal it, senseless ones are refused") {
  const std::vector<float> logits = {1, 3, 2, 3};
  Random random(1);
  for (const double t : {0.0, 1e-8, 1e-4}) {
    SamplerOptions o = plain();
    o.temperature = t;
    for (int i = 0; i < 10; ++i) {
      const int32_t id = sample(logits, {}, o, random);
      if (t == 0) CHECK(id == 1);  // of equal logits the lowest id (B058)
      CHECK((id == 1 || id == 3));
    }
  }
  SamplerOptions hot = plain();
  hot.temperature = 1e30;
  for (const Candidate& c : distribution(logits, {}, hot)) CHECK(std::abs(c.probability - 0.25) < 1e-12);
  for (const double t : {-1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    SamplerOptions o = plain();
    o.temperature = t;
    CHECK_THROWS_AS(distribution(logits, {}, o), UsageError);
  }
}

TEST_CASE("B098 low temperatures don't overflow, and a banned token is never drawn") {
  for (const double t : {1e-6, 1e-4, 1e-3}) {
    SamplerOptions o = plain();
    o.temperature = t;
    const std::vector<float> logits = {1e4f, -1e4f, -kInf, 9.999e3f};
    double sum = 0;
    for (const Candidate& c : distribution(logits, {}, o)) {
      CHECK(c.id != 2);
      CHECK(std::isfinite(c.probability));
      sum += c.probability;
    }
    CHECK(std::abs(sum - 1) < 1e-12);
  }
  CHECK_THROWS_AS(distribution(std::vector<float>{-kInf, -kInf}, {}, plain()), Error);
  CHECK_THROWS_AS(distribution(std::vector<float>{0, std::nanf("")}, {}, plain()), Error);
}

TEST_CASE("B099 top-k at its limits, ties by id") {
  const std::vector<float> logits = {0, 1, 1, 1, 0.5f};
  const auto ids = [&](int64_t k) {
    SamplerOptions o = plain();
    o.top_k = k;
    std::vector<int32_t> result;
    for (const Candidate& c : distribution(logits, {}, o)) result.push_back(c.id);
    return result;
  };
  CHECK(ids(0) == std::vector<int32_t>{1, 2, 3, 4, 0});
  CHECK(ids(1) == std::vector<int32_t>{1});
  CHECK(ids(2) == std::vector<int32_t>{1, 2});
  CHECK(ids(4) == std::vector<int32_t>{1, 2, 3, 4});
  for (const int64_t k : {int64_t{5}, int64_t{6}, int64_t{1000000000}}) CHECK(ids(k).size() == 5);
  CHECK_THROWS_AS(ids(-1), UsageError);
}

TEST_CASE("B100 top-p keeps the smallest set that reaches p") {
  const auto kept = [](const std::vector<double>& probabilities, double p) {
    SamplerOptions o = plain();
    o.top_p = p;
    return distribution(logits_of(probabilities), {}, o).size();
  };
  const std::vector<double> halves = {0.5, 0.25, 0.125, 0.125};
  CHECK(kept(halves, 0) == 1);
  // Float logits carry log(1/2) to 2^-25 only; so the exact points are asked for a hair below.
  CHECK(kept(halves, 0.4999999) == 1);
  CHECK(kept(halves, 0.7499999) == 2);
  CHECK(kept(halves, 0.7500001) == 3);
  CHECK(kept(halves, 0.9999999) == 4);
  CHECK(kept(halves, 1) == 4);
  CHECK(kept(std::vector<double>(2000, 1.0 / 2000), 1) == 2000);
  // Equal logits make probabilities that are exact in binary.
  CHECK(kept({0.25, 0.25, 0.25, 0.25}, 0.25) == 1);
  CHECK(kept({0.25, 0.25, 0.25, 0.25}, 0.5) == 2);
  CHECK(kept({0.25, 0.25, 0.25, 0.25}, 0.75) == 3);
  SamplerOptions o = plain();
  o.top_p = 1.5;
  CHECK_THROWS_AS(distribution(logits_of(halves), {}, o), UsageError);
}

TEST_CASE("B101 filters work on what the one before left, and draws follow the distribution") {
  const std::vector<double> p = {0.4, 0.3, 0.2, 0.1};
  SamplerOptions o = plain();
  o.top_k = 1;
  o.top_p = 0.8;
  CHECK(distribution(logits_of(p), {}, o).size() == 1);
  o.top_k = 2;
  o.top_p = 0.01;
  CHECK(distribution(logits_of(p), {}, o).size() == 1);
  o.top_k = 3;
  o.top_p = 0.7;  // of 4/9, 3/9, 2/9: two reach 7/9
  CHECK(distribution(logits_of(p), {}, o).size() == 2);
  o = plain();
  o.min_p = 0.6;
  CHECK(distribution(logits_of(p), {}, o).size() == 2);

  Random random(5);
  std::vector<int> counts(4);
  const int draws = 100000;
  for (int i = 0; i < draws; ++i) ++counts[static_cast<size_t>(sample(logits_of(p), {}, plain(), random))];
  double chi2 = 0;
  for (size_t i = 0; i < 4; ++i) chi2 += std::pow(counts[i] - p[i] * draws, 2) / (p[i] * draws);
  CHECK(chi2 < 16.3);  // 3 degrees of freedom, 1 in 1,000
}

TEST_CASE(
    "the repetition penalty divides positive logits and multiplies negative ones, before the temperature") {
  SamplerOptions o = plain();
  o.repetition_penalty = 2;
  const std::vector<int32_t> history = {0, 1, 1, -5, 99};
  const auto d = distribution(std::vector<float>{2, -1, 1}, history, o);
  // Penalised logits 1, -2, 1.
  CHECK(d[0].id == 0);
  CHECK(std::abs(d[0].probability - d[1].probability) < 1e-12);
  CHECK(std::abs(d[2].probability / d[0].probability - std::exp(-3)) < 1e-9);
}
