// Layer patterns, and models of every layer.
#include "models/pattern.h"

#include <cmath>

#include "models/hybrid_lm.h"
#include "tensor/random.h"
#include "tests/catch.h"
#include "tests/error_message.h"
#include "train/lanes.h"
#include "train/optimizer.h"

using namespace storytape;
using test::message_of;

namespace {

std::vector<std::string> texts(std::string_view pattern) {
  std::vector<std::string> all;
  for (const LayerSpec& spec : parse_layers(pattern)) all.push_back(spec.text());
  return all;
}

ModelConfig small(const std::string& pattern, size_t layers) {
  ModelConfig c;
  c.vocab = 41;
  c.dim = 16;
  c.heads = 2;
  c.ffn = 24;
  c.max_seq = 64;
  c.block = "modern";
  c.positions = "none";
  c.head_bias = false;
  c.pattern = parse_pattern(pattern, layers);
  return c;
}

std::vector<int32_t> random_tokens(size_t n, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> ids(n);
  for (auto& id : ids) id = static_cast<int32_t>(random.below(41));
  return ids;
}

double worst(const Tensor<float>& a, const Tensor<float>& b) {
  REQUIRE(a.size() == b.size());
  double w = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(d <= w)) w = std::isnan(d) ? INFINITY : d;
  }
  return w;
}

}  // namespace

TEST_CASE("patterns name layers, options and repeats") {
  CHECK(texts("full") == std::vector<std::string>{"full"});
  CHECK(texts("[L, L, F]") == std::vector<std::string>{"linear", "linear", "full"});
  CHECK(texts("2*gla,full") == std::vector<std::string>{"gla", "gla", "full"});
  CHECK(texts("gated_deltanet:heads=4,conv=3,window:size=64,kv_heads=2,full") ==
        std::vector<std::string>{"gated_deltanet:heads=4,conv=3", "window:size=64,kv_heads=2", "full"});
  // Options in the order of the table, whatever the order they are given in.
  CHECK(texts("gla:rank=8,heads=4") == texts("gla:heads=4,rank=8"));
  for (const LayerKind& kind : layer_kinds()) CHECK(parse_layer(kind.name).text() == kind.name);
}

TEST_CASE("a pattern that can't be read is refused in one line that says what there is") {
  const auto refused = [](const char* pattern, const std::vector<std::string>& parts) {
    const std::string message = message_of([&] { parse_layers(pattern); });
    INFO(pattern << ": " << message);
    REQUIRE(message.find('\n') == std::string::npos);
    for (const std::string& part : parts) CHECK(message.find(part) != std::string::npos);
  };
  refused("gated_deltant", {"did you mean \"gated_deltanet\"", "full, linear"});
  refused("gla:ranks=3", {"gla has no option \"ranks\"", "did you mean \"rank\""});
  refused("gla:rank=0", {"gla:rank", "1..", "\"0\""});
  refused("window:size=0", {"window:size", "\"0\""});
  refused("gla:rank=8,rank=9", {"given twice"});
  refused("gla:rank", {"\"rank\" is no option"});
  refused("rank=3", {"belongs to no mixer"});
  refused("0*gla", {"\"0*\""});
  refused("x*gla", {"\"x*\""});
  refused("full:heads=2", {"full has no options"});
  refused("deltanet:gate=relu", {"none, silu, sigmoid"});
  refused("", {"unknown mixer \"\""});
  refused("full,,full", {"unknown mixer \"\""});
  refused("20000*full", {"1..10000"});
}

TEST_CASE("options that can't work are refused before a model is made") {
  const auto refused = [](const char* pattern) { return message_of([&] { small(pattern, 1).check(); }); };
  CHECK(refused("gla:heads=3") != "");
  CHECK(refused("attention:heads=4,kv_heads=3").find("kv_heads") != std::string::npos);
  CHECK(refused("attention:rotary=3").find("3") != std::string::npos);
  CHECK(refused("gated_deltanet:heads=2,key_heads=3") != "");
  CHECK(refused("mamba2:heads=2,groups=3") != "");
  CHECK(refused("attention:heads=4,kv_heads=2,rotary=4") == "");
}

TEST_CASE("models of every layer: losses fall, decoding is the full pass, a draft leaves no trace") {
  for (const LayerKind& kind : layer_kinds()) {
    INFO(kind.name);
    const ModelConfig config = small(kind.name + ",full", 2);
    HybridLM<float> model(config, 1);
    const auto tokens = random_tokens(25, 1);

    Tape<float> tape;
    const Tensor<float> all = [&] {
      const NoGrad no_grad(tape);
      return model.logits(tape, tokens, 1, tokens.size()).value();
    }();
    auto state = model.init_state();
    Tensor<float> step;
    for (size_t i = 0; i < tokens.size(); ++i) step = model.extend(state, std::span(tokens).subspan(i, 1));
    Tensor<float> last({1, config.vocab});
    std::copy_n(all.data() + (tokens.size() - 1) * config.vocab, config.vocab, last.data());
    CHECK(worst(step, last) < 1e-4);

    // B108: draft, reject, replay.
    const auto draft = random_tokens(7, 9), text = random_tokens(5, 10);
    auto kept = state;
    model.extend(state, draft);
    state = kept;
    const Tensor<float> replayed = model.extend(state, text);
    const Tensor<float> never = model.extend(kept, text);
    CHECK(worst(replayed, never) == 0);

    ThreadPool pool(2);
    LaneTrainer lanes(model, pool);
    Recipe settings = recipe("default");
    settings.steps = 30;
    settings.warmup = 2;
    AdamWOptimizer optimizer(model.parameters(), settings);
    const auto x = random_tokens(8 * 16, 2), y = random_tokens(8 * 16, 3);
    double first = 0, loss = 0;
    for (size_t i = 0; i < 30; ++i) {
      loss = lanes.run(x, y, 8, 16);
      if (i == 0) first = loss;
      optimizer.step(i, lanes.gradients(), pool);
    }
    CHECK(loss < first - 0.2);
  }
}
