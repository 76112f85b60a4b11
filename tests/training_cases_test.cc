// Reported faults of training and evaluation, each with its right value.
#include <cmath>

#include "models/hybrid_lm.h"
#include "tensor/random.h"
#include "tests/catch.h"
#include "tests/error_message.h"
#include "train/evaluate.h"
#include "train/lanes.h"
#include "train/optimizer.h"

using namespace storytape;
using test::message_of;

namespace {

ModelConfig tiny(const std::string& pattern) {
  ModelConfig c;
  c.vocab = 264;
  c.dim = 12;
  c.heads = 3;
  c.ffn = 20;
  c.max_seq = 100;
  c.pattern.assign(2, "full");
  c.pattern = parse_pattern(pattern, 2);
  return c;
}

std::vector<int32_t> random_tokens(size_t n, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> ids(n);
  for (auto& id : ids) id = static_cast<int32_t>(random.below(256));
  return ids;
}

}  // namespace

// Sequences of one batch have one length: the program batches windows of text, and generates from one prompt at a time.
TEST_CASE("B017 a batch of unequal lengths is refused") {
  const HybridLM<float> model(tiny("linear,full"), 1);
  auto state = model.init_state(2);
  const auto tokens = random_tokens(5 + 9, 1);
  CHECK_NOTHROW(model.extend(state, std::span(tokens).first(10)));
  CHECK(message_of([&] { model.extend(state, std::span(tokens).first(13)); }) ==
        "13 tokens can't be shared out over a batch of 2");
}

// Windows run across stories (README, "Data"): every mixer sees what lies before a separator.
TEST_CASE("B018 no mixer stops at the end of a story, and none looks ahead") {
  for (const char* pattern : {"full", "linear", "linear,full"}) {
    INFO(pattern);
    const HybridLM<float> model(tiny(pattern), 1);
    auto packed = random_tokens(37 + 50, 2);
    packed[36] = 5;
    const auto logits = [&] {
      auto state = model.init_state(1);
      return model.extend(state, packed);
    };
    const auto all = [&] {
      Tape<float> tape;
      const NoGrad no_grad(tape);
      return model.logits(tape, packed, 1, packed.size(), Face::kChunkwise).value();
    };
    const Tensor<float> before = all(), last_before = logits();
    packed[36] = 6;  // the last token of the first story
    const Tensor<float> after = all(), last_after = logits();
    const size_t vocab = 264;
    for (size_t i = 0; i < 36 * vocab; ++i) REQUIRE(before[i] == after[i]);
    double first_of_next = 0, last_of_next = 0;
    for (size_t v = 0; v < vocab; ++v) {
      first_of_next += std::abs(before[37 * vocab + v] - after[37 * vocab + v]);
      last_of_next += std::abs(before[86 * vocab + v] - after[86 * vocab + v]);
    }
    CHECK(first_of_next > 1e-3);
    CHECK(last_of_next > 1e-6);
    CHECK(last_before.size() > 0);
    CHECK(last_before.size() == last_after.size());
  }
}

TEST_CASE("B036 the held-out loss is a mean over tokens, however they are cut") {
  const HybridLM<float> model(tiny("linear,full"), 1);
  const Tokenizer tokenizer = Tokenizer::from_merges({});  // bytes alone
  // Whole windows, a partial last one, and one window with a token more.
  for (const size_t length : {97u, 130u, 33u}) {
    TokenStream stream(264);
    const auto ids = random_tokens(length, 7);
    stream.append(ids);
    std::vector<double> losses;
    for (const size_t threads : {1u, 3u}) {
      ThreadPool pool(threads);
      const Evaluation e = evaluate(model, stream, tokenizer, 32, 0, pool);
      CHECK(e.tokens == length - 1);
      losses.push_back(e.loss());
    }
    CHECK(losses[0] == losses[1]);
    // By hand, window by window.
    double nats = 0;
    for (size_t first = 0; first + 1 < length; first += 32) {
      const size_t n = std::min<size_t>(32, length - 1 - first);
      Tape<float> tape;
      for (const double loss : model.token_losses(tape, std::span(ids).subspan(first, n),
                                                  std::span(ids).subspan(first + 1, n), 1, n)) {
        nats += loss;
      }
    }
    CHECK(losses[0] == Approx(nats / static_cast<double>(length - 1)).epsilon(1e-6));
  }
}

TEST_CASE("B041 weights that no token reaches only decay, exactly") {
  ModelConfig config = tiny("full");
  HybridLM<float> model(config, 1);
  ThreadPool pool(2);
  LaneTrainer lanes(model, pool);
  Recipe settings = recipe("default");
  settings.steps = 100;
  settings.warmup = 3;
  AdamWOptimizer optimizer(model.parameters(), settings);
  const auto tokens = random_tokens(4 * 16, 1), targets = random_tokens(4 * 16, 2);
  const Parameter<float>* positions = model.parameters().find("pos.weight");
  REQUIRE(positions);
  std::vector<float> expected(positions->value().values().begin(), positions->value().values().end());
  const std::vector<float> first = expected;
  for (size_t step = 0; step < 100; ++step) {
    lanes.run(tokens, targets, 4, 16);
    const StepReport report = optimizer.step(step, lanes.gradients(), pool);
    const float keep = static_cast<float>(1 - report.learning_rate * settings.weight_decay);
    for (float& value : expected) value *= keep;
  }
  const Tensor<float>& value = positions->value();
  const size_t used = 16 * config.dim;
  size_t moved = 0;
  for (size_t i = 0; i < used; ++i) moved += value[i] != expected[i];
  CHECK(moved > used / 2);
  for (size_t i = used; i < value.size(); ++i) {
    REQUIRE(value[i] == Approx(expected[i]).epsilon(1e-5));
    REQUIRE(std::abs(value[i]) < std::abs(first[i]));
  }
}
