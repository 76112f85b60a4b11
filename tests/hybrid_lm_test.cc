#include "models/hybrid_lm.h"

#include <cmath>

#include "models/generate.h"
#include "tensor/random.h"
#include "tests/catch.h"
#include "train/lanes.h"

using namespace storytape;

namespace {

ModelConfig tiny(const std::string& pattern, size_t layers = 3) {
  ModelConfig c;
  c.vocab = 37;
  c.dim = 12;
  c.heads = 3;
  c.ffn = 20;
  c.max_seq = 40;
  c.pattern.assign(layers, "full");
  c.pattern = parse_pattern(pattern, layers);
  return c;
}

std::vector<int32_t> random_tokens(size_t n, size_t vocab, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> ids(n);
  for (auto& id : ids) id = static_cast<int32_t>(random.below(vocab));
  return ids;
}

template <class T>
double worst(const Tensor<T>& a, const Tensor<T>& b) {
  REQUIRE(a.size() == b.size());
  double w = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(d <= w)) w = std::isnan(d) ? INFINITY : d;
  }
  return w;
}

}  // namespace

TEST_CASE("StoryLM presets have the course's number of weights") {
  const auto count = [](const char* name, const char* pattern, size_t max_seq = 256) {
    ModelConfig c = preset(name);
    c.pattern = parse_pattern(pattern, c.layers());
    c.max_seq = max_seq;
    return HybridLM<float>(c, 1).parameters().elements();
  };
  CHECK(count("storylm-1m", "full") == 1354496);
  CHECK(count("storylm-1m", "linear") == 1354512);
  CHECK(count("storylm-1m", "[L,L,L,F]") == 1354508);
  CHECK(count("storylm-1m", "full", 128) == 1338112);
  CHECK(count("storylm-5m", "full") == 5857280);
  CHECK(count("storylm-5m", "linear") == 5857328);
  CHECK(count("storylm-5m", "linear,linear,linear,full") == 5857320);
  CHECK(count("storylm-30m", "full") == 30604800);
}

TEST_CASE("patterns are read in every form and refused by name") {
  CHECK(parse_pattern("[L,L,L,F]", 6) ==
        std::vector<std::string>{"linear", "linear", "linear", "full", "linear", "linear"});
  CHECK(parse_pattern("full", 2) == std::vector<std::string>{"full", "full"});
  CHECK(parse_pattern(" Linear , FULL", 2) == std::vector<std::string>{"linear", "full"});
  CHECK_THROWS_WITH(parse_pattern("linear,foo", 4), Catch::Matchers::Contains("\"foo\""));
  CHECK_THROWS_AS(parse_pattern("", 4), UsageError);
  CHECK_THROWS_AS(parse_pattern("[]", 4), UsageError);
  CHECK_THROWS_WITH(parse_pattern("full,full,full", 2), Catch::Matchers::Contains("3 entries"));
  ModelConfig c = tiny("full");
  c.heads = 5;
  CHECK_THROWS_WITH(HybridLM<float>(c, 1), Catch::Matchers::Contains("not divisible by 5 heads"));
}

TEST_CASE("initial weights are uniform with the course's range, and the first loss is ln V + 1/6") {
  ModelConfig c = preset("storylm-1m");
  HybridLM<float> model(c, 1);
  const Tensor<float>& w = model.parameters().find("blocks.2.mlp.fc2.weight")->value();
  double top = 0, squares = 0;
  for (const float x : w.values()) {
    top = std::max(top, std::abs(static_cast<double>(x)));
    squares += static_cast<double>(x) * static_cast<double>(x);
  }
  CHECK(top <= 1 / std::sqrt(512.0));
  CHECK(top > 0.99 / std::sqrt(512.0));
  CHECK(std::sqrt(squares / static_cast<double>(w.size())) == Approx(1 / std::sqrt(3 * 512.0)).epsilon(0.02));
  // Random targets scatter by 0.58 nats each: by 0.013 over 2,048 of them.
  const auto tokens = random_tokens(2048, c.vocab, 1);
  const auto targets = random_tokens(2048, c.vocab, 2);
  Tape<float> tape;
  const float loss = model.loss(tape, tokens, targets, 8, 256, 1.0f / 2048).value().item();
  CHECK(static_cast<double>(loss) == Approx(std::log(4096.0) + 1.0 / 6).margin(0.05));
}

TEST_CASE("B012 B105 B110 any cut of a sequence into calls gives the logits of the full pass") {
  for (const char* pattern : {"full", "linear", "linear,full,linear"}) {
    CAPTURE(pattern);
    const HybridLM<double> model(tiny(pattern), 3);
    const size_t length = 33;
    const auto tokens = random_tokens(length, 37, 4);
    Tape<double> tape;
    const NoGrad<double> no_grad(tape);
    const Tensor<double> full = model.logits(tape, tokens, 1, length).value();
    for (const auto& cuts :
         std::vector<std::vector<size_t>>{{33}, std::vector<size_t>(33, 1), {5, 1, 26, 1}, {32, 1}}) {
      LMState<double> state = model.init_state();
      size_t at = 0;
      for (const size_t n : cuts) {
        const Tensor<double> logits = model.extend(state, std::span(tokens).subspan(at, n));
        at += n;
        CHECK(worst(logits, full.reshape({length, 37}).rows(at - 1, at)) < 1e-11);
      }
      CHECK(state.length == length);
    }
  }
}

TEST_CASE("the three faces of a whole model agree in loss and in every gradient") {
  const HybridLM<double> model(tiny("linear,full"), 5);
  const auto tokens = random_tokens(2 * 19, 37, 6);
  const auto targets = random_tokens(2 * 19, 37, 7);
  std::vector<std::vector<double>> gradients;
  for (const Face face : {Face::kChunkwise, Face::kParallel, Face::kRecurrent}) {
    auto& gradient = gradients.emplace_back(model.parameters().elements(), 0.0);
    Tape<double> tape;
    tape.set_sink({gradient.data(), model.parameters().offsets()});
    const Var<double> loss = model.loss(tape, tokens, targets, 2, 19, 1.0 / 38, face);
    const double value = loss.value().item();
    tape.backward(loss);
    gradient.push_back(value);
  }
  for (size_t i = 0; i < gradients[0].size(); ++i) {
    REQUIRE(std::abs(gradients[0][i] - gradients[1][i]) < 1e-12);
    REQUIRE(std::abs(gradients[0][i] - gradients[2][i]) < 1e-12);
  }
}

TEST_CASE(
    "random directions through all weights agree with differences, and a step along -g lowers the loss") {
  for (const char* pattern : {"full", "linear", "linear,full"}) {
    CAPTURE(pattern);
    HybridLM<double> model(tiny(pattern), 8);
    ParameterList<double>& parameters = model.parameters();
    const auto tokens = random_tokens(2 * 17, 37, 9);
    const auto targets = random_tokens(2 * 17, 37, 10);
    std::vector<double> gradient(parameters.elements());
    const auto loss_now = [&] {
      Tape<double> tape;
      const NoGrad<double> no_grad(tape);
      return model.loss(tape, tokens, targets, 2, 17, 1.0 / 34).value().item();
    };
    {
      Tape<double> tape;
      tape.set_sink({gradient.data(), parameters.offsets()});
      tape.backward(model.loss(tape, tokens, targets, 2, 17, 1.0 / 34));
    }
    const auto move = [&](const std::vector<double>& direction, double by) {
      for (size_t i = 0; i < parameters.size(); ++i) {
        double* values = parameters[i].mutable_value().data();
        for (size_t j = 0; j < parameters[i].size(); ++j)
          values[j] += by * direction[parameters.offsets()[i] + j];
      }
    };
    Random random(11);
    for (int trial = 0; trial < 5; ++trial) {
      std::vector<double> direction(parameters.elements());
      double expected = 0;
      for (size_t i = 0; i < direction.size(); ++i) {
        direction[i] = random.normal();
        expected += direction[i] * gradient[i];
      }
      const double h = 1e-5;  // along some 4,000 weights at once
      double difference = 0;
      for (const auto& [at, weight] : {std::pair{1.0, 8.0}, {-1.0, -8.0}, {2.0, -1.0}, {-2.0, 1.0}}) {
        move(direction, at * h);
        difference += weight * loss_now();
        move(direction, -at * h);
      }
      difference /= 12 * h;
      CHECK(std::abs(difference - expected) <= 1e-7 * std::max(1.0, std::abs(expected)));
    }
    const double before = loss_now();
    move(gradient, -1e-2);
    CHECK(loss_now() < before);
  }
}

TEST_CASE("B050 the tied table receives the gradient of the lookup and of the head") {
  HybridLM<double> model(tiny("full", 1), 1);
  const std::vector<int32_t> tokens = {3}, targets = {5};
  Tape<double> tape;
  const Var<double> loss = model.loss(tape, tokens, targets, 1, 1, 1.0);
  tape.backward(loss);
  const Tensor<double>& d = model.parameters().find("tok.weight")->grad();
  // Row 3 was looked up, row 5 is the target, and every row is a class of the head.
  for (const size_t row : {3u, 5u, 36u}) {
    double sum = 0;
    for (size_t j = 0; j < 12; ++j) sum += std::abs(std::as_const(d)[row * 12 + j]);
    CHECK(sum > 1e-6);
  }
}

TEST_CASE("B042 B145 losses and gradients are the same bits for every number of threads") {
  const ModelConfig c = tiny("linear,full");
  std::vector<double> losses;
  std::vector<std::vector<float>> gradients;
  const auto tokens = random_tokens(13 * 16, 37, 1);
  const auto targets = random_tokens(13 * 16, 37, 2);
  for (const size_t threads : {1u, 2u, 3u, 7u, 16u}) {
    HybridLM<float> model(c, 1);
    ThreadPool pool(threads);
    LaneTrainer lanes(model, pool);
    losses.push_back(lanes.run(tokens, targets, 13, 16));
    auto& all = gradients.emplace_back();
    for (const float* block : lanes.gradients())
      all.insert(all.end(), block, block + model.parameters().elements());
  }
  for (size_t i = 1; i < losses.size(); ++i) {
    CHECK(losses[i] == losses[0]);
    CHECK(gradients[i] == gradients[0]);
  }
}

TEST_CASE("B037 a batch in parts adds up to the gradient of the whole") {
  const ModelConfig c = tiny("full");
  const auto tokens = random_tokens(8 * 16, 37, 1);
  const auto targets = random_tokens(8 * 16, 37, 2);
  const auto gradient = [&](size_t part) {
    HybridLM<double> model(c, 1);
    std::vector<double> sum(model.parameters().elements());
    Tape<double> tape;
    tape.set_sink({sum.data(), model.parameters().offsets()});
    for (size_t i = 0; i < 8; i += part) {
      tape.reset();
      tape.backward(model.loss(tape, std::span(tokens).subspan(i * 16, part * 16),
                               std::span(targets).subspan(i * 16, part * 16), part, 16, 1.0 / 128));
    }
    return sum;
  };
  const auto whole = gradient(8);
  for (const size_t part : {1u, 2u, 4u}) {
    const auto parts = gradient(part);
    for (size_t i = 0; i < whole.size(); ++i) REQUIRE(std::abs(parts[i] - whole[i]) < 1e-13);
  }
}

TEST_CASE("after the first step a training step takes no memory from the system") {
  HybridLM<float> model(preset("storylm-1m"), 1);
  ThreadPool pool(2);
  LaneTrainer lanes(model, pool);
  const auto tokens = random_tokens(8 * 64, 4096, 1);
  const auto targets = random_tokens(8 * 64, 4096, 2);
  lanes.run(tokens, targets, 8, 64);
  lanes.run(tokens, targets, 8, 64);
  const uint64_t before = allocation_count();
  for (int i = 0; i < 3; ++i) lanes.run(tokens, targets, 8, 64);
  CHECK(allocation_count() == before);
}

TEST_CASE("B108 B109 a copied state goes back, and restored runs repeat exactly") {
  const HybridLM<float> model(tiny("linear,full"), 3);
  const auto tokens = random_tokens(20, 37, 4);
  LMState<float> state = model.init_state();
  model.extend(state, std::span(tokens).first(10));
  const LMState<float> saved = state;
  const auto rest = std::span(tokens).subspan(10);
  const Tensor<float> first = model.extend(state, rest).clone();
  for (int i = 0; i < 3; ++i) {
    LMState<float> again = saved;
    CHECK(model.extend(again, rest).to_vector() == first.to_vector());
  }
  CHECK(saved.length == 10);
}

TEST_CASE("B111 texts grow past the context with the same memory, and senseless calls are refused") {
  const HybridLM<float> model(tiny("linear,full"), 3);
  GenerateOptions o;
  o.tokens = 200;
  std::vector<int32_t> told;
  const auto give = [&](int32_t id) {
    told.push_back(id);
    return true;
  };
  const GenerateResult r = generate(model, random_tokens(5, 37, 1), o, give);
  CHECK(r.tokens == 200);
  CHECK(r.context_moved);
  CHECK(told.size() == 200);
  for (const size_t n : {39u, 40u, 41u, 400u}) {
    o.tokens = 5;
    CHECK(generate(model, random_tokens(n, 37, 2), o, give).tokens == 5);
  }
  o.tokens = 0;
  CHECK(generate(model, random_tokens(5, 37, 1), o, give).tokens == 0);
  CHECK_THROWS_AS(generate(model, {}, o, give), Error);
  LMState<float> state = model.init_state();
  CHECK_THROWS_WITH(model.extend(state, random_tokens(41, 37, 1)), Catch::Matchers::Contains("41"));
  const std::vector<int32_t> outside = {1, 37};
  CHECK_THROWS_WITH(model.extend(state, outside), Catch::Matchers::Contains("token 37 at position 1"));
  CHECK(state.length == 0);
}
