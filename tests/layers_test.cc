// Whole layers as published: their gradients, the carried state, rollback, how they start and what they
// refuse.
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "autograd/gradcheck.h"
#include "autograd/ops.h"
#include "nn/examples.h"
#include "nn/layers/deltanet.h"
#include "nn/layers/examples.h"
#include "nn/layers/gated_deltanet.h"
#include "nn/layers/gated_deltaproduct.h"
#include "nn/layers/gla.h"
#include "nn/layers/kda.h"
#include "nn/layers/mamba2.h"
#include "nn/layers/retention.h"
#include "tensor/index.h"
#include "tests/catch.h"
#include "tests/error_message.h"
#include "tests/linear_attention_testing.h"
#include "tests/shared.h"
#include "train/verify_operations.h"

namespace storytape {
namespace {

using namespace test;

constexpr size_t kDim = 12, kBatch = 2;

template <class T>
struct NamedLayer {
  std::string name;
  OwnedLayer<T> owned;
};

// Every layer, and those of its forms that compute something else.
template <class T>
std::vector<NamedLayer<T>> all_layers(uint64_t seed = 1) {
  std::vector<NamedLayer<T>> all;
  GatedDeltaNetConfig gdn{.dim = kDim, .key_heads = 1, .value_heads = 2, .key_dim = 5, .value_dim = 6};
  all.push_back({"gated_deltanet", own_layer<GatedDeltaNet, T>(gdn, seed)});
  gdn.convolution.width = 1;
  gdn.gate = OutputGate::kNone;
  gdn.beta_scale = 2;
  all.push_back({"gated_deltanet, convolution of one token", own_layer<GatedDeltaNet, T>(gdn, seed)});
  KdaConfig kda{.dim = kDim, .key_heads = 2, .value_heads = 2, .key_dim = 5, .value_dim = 6};
  all.push_back({"kda", own_layer<KimiDeltaAttention, T>(kda, seed)});
  const DeltaNetConfig deltanet{.dim = kDim, .heads = 3, .key_dim = 4, .value_dim = 5};
  all.push_back({"deltanet", own_layer<DeltaNet, T>(deltanet, seed)});
  const GatedDeltaProductConfig product{
      .dim = kDim, .key_heads = 1, .value_heads = 2, .key_dim = 4, .value_dim = 5, .steps = 3};
  all.push_back({"gated_deltaproduct", own_layer<GatedDeltaProduct, T>(product, seed)});
  GlaConfig gla{.dim = kDim, .heads = 2, .kv_heads = 1, .key_dim = 3, .value_dim = 6};
  all.push_back({"gla", own_layer<GatedLinearAttention, T>(gla, seed)});
  gla.convolution.width = 4;
  all.push_back({"gla, convolution", own_layer<GatedLinearAttention, T>(gla, seed)});
  RetentionConfig retention{.dim = kDim, .heads = 2, .key_dim = 6, .value_dim = 7};
  all.push_back({"retention", own_layer<Retention, T>(retention, seed)});
  retention.group_norm = true;
  all.push_back({"retention, group norm", own_layer<Retention, T>(retention, seed)});
  Mamba2Config mamba{.dim = kDim, .heads = 4, .head_dim = 6, .state_dim = 5, .groups = 2};
  all.push_back({"mamba2", own_layer<Mamba2, T>(mamba, seed)});
  mamba.dt_min = 0.01;
  mamba.dt_max = 0.05;
  all.push_back({"mamba2, step widths limited", own_layer<Mamba2, T>(mamba, seed)});
  return all;
}

template <class T>
bool same_bits(const Tensor<T>& a, const Tensor<T>& b) {
  return a.shape() == b.shape() && (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}
template <class T>
bool same_bits(const State<T>& a, const State<T>& b) {
  bool same = a.length == b.length && a.tensors().size() == b.tensors().size();
  for (size_t i = 0; same && i < a.tensors().size(); ++i) {
    same = a.tensors()[i].first == b.tensors()[i].first &&
           same_bits(a.tensors()[i].second, b.tensors()[i].second);
  }
  return same;
}

template <class T>
Tensor<T> forward(const Layer<T>& layer, const Tensor<T>& x, Face face, const Tensor<T>& residual = {}) {
  Tape<T> tape;
  return layer.forward(tape, tape.constant(x), face, residual.defined() ? tape.constant(residual) : Var<T>())
      .value();
}

// Tokens [cuts[i], cuts[i+1]) at a time, from the state as it is.
template <class T>
Tensor<T> extended(const Layer<T>& layer, State<T>& state, const Tensor<T>& x,
                   const std::vector<size_t>& cuts) {
  std::vector<Tensor<T>> parts;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    parts.push_back(layer.extend(state, slice(x, 1, cuts[i], cuts[i + 1]), Tensor<T>()));
  }
  return concat(std::span<const Tensor<T>>(parts), 1);
}
std::vector<size_t> one_by_one(size_t tokens) {
  std::vector<size_t> cuts;
  for (size_t t = 0; t <= tokens; ++t) cuts.push_back(t);
  return cuts;
}

// Outputs, states after, and gradients to x, the parameters and the states before.
template <class T>
struct Outcome {
  std::vector<Tensor<T>> values, gradients;
};
template <class T>
Outcome<T> run(const OwnedLayer<T>& owned, const Tensor<T>& x, Face face, const std::vector<size_t>& cuts) {
  Tape<T> tape;
  const Var<T> input = tape.input(x);
  std::vector<Var<T>> leaves{input}, weights, states;
  for (size_t i = 0; i < owned.parameters->size(); ++i) {
    weights.push_back(tape.input(std::as_const((*owned.parameters)[i]).value()));
    leaves.push_back(weights.back());
  }
  uint64_t seed = 300;
  for (const StateTensor& state : owned.layer->state_tensors(x.size(0))) {
    states.push_back(tape.input(random_tensor<T>(state.shape, seed++)));
    leaves.push_back(states.back());
  }
  std::vector<Var<T>> parts;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const Var<T> piece = slice(input, 1, cuts[i], cuts[i + 1]);
    Pass<T> pass = owned.layer->apply(Weights<T>(tape, weights), piece, states, cuts[i], face);
    parts.push_back(pass.y);
    states = std::move(pass.states);
  }
  std::vector<Var<T>> ends{concat(parts, 1)};
  ends.insert(ends.end(), states.begin(), states.end());
  Outcome<T> outcome;
  std::vector<Tensor<T>> cotangents;
  for (const Var<T>& end : ends) {
    outcome.values.push_back(end.value().clone());
    cotangents.push_back(random_tensor<T>(end.shape(), seed++));
  }
  tape.backward(ends, cotangents);
  for (const Var<T>& leaf : leaves) outcome.gradients.push_back(leaf.grad());
  return outcome;
}

template <class T>
double apart(const Outcome<T>& a, const Outcome<T>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    if (a.values[i].size()) worst = std::max(worst, distance(a.values[i], b.values[i]));
  }
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    if (a.gradients[i].size()) worst = std::max(worst, distance(a.gradients[i], b.gradients[i]));
  }
  return worst;
}

}  // namespace

TEST_CASE("every layer's gradients are proven, by its input, parameters and states") {
  register_basic_ops();
  register_nn_ops();
  for (const std::string op : {"repeat_heads", "gated_deltanet_layer", "kda_layer", "deltanet_layer",
                               "gated_deltaproduct_layer", "gla_layer", "retention_layer", "mamba2_layer"}) {
    const std::vector<GradRow> rows = gradcheck(op);
    CHECK(rows.size() >= (op == "repeat_heads" ? 3 : 40));
    for (const GradRow& row : rows) {
      INFO(row.op << "." << row.face << " (" << row.example << ") " << row.input << ": " << row.why);
      CHECK(row.ok);
    }
  }
}

TEST_CASE("published layers give the golden vectors: outputs, states, gradients, cut sequences, decoding") {
  STORYTAPE_NEED_SHARED(shared);
  OperationOptions options;
  options.only = {
      "gated_deltanet_layer", "kda_layer",   "deltanet_layer", "gated_deltaproduct_layer", "gla_layer",
      "retention_layer",      "mamba2_layer"};
  const std::vector<OperationRow> rows = verify_operations(shared / "golden-layers", options);
  CHECK(rows.size() == 70 * 6 * 2);
  for (const OperationRow& row : rows) {
    INFO(row.variant << " " << row.case_name << " " << row.face << " " << row.dtype << ": " << row.detail);
    CHECK(row.ok);
  }
}

TEST_CASE("a layer decodes token by token, or cut anywhere, what it computes chunkwise") {
  constexpr size_t kTokens = 75;
  const Tensor<double> x = random_tensor<double>({kBatch, kTokens, kDim}, 5);
  const Tensor<float> x32 = cast<float>(x);
  for (const auto& [name, owned] : all_layers<double>()) {
    INFO(name);
    const Layer<double>& layer = *owned.layer;
    const Tensor<double> whole = forward(layer, x, Face::kChunkwise);
    for (const Face face : {Face::kRecurrent, Face::kParallel}) {
      CHECK(distance(forward(layer, x, face), whole) <= 1e-11);
    }
    State<double> last = layer.init_state(kBatch);
    extended(layer, last, x, {0, kTokens});
    for (const std::vector<size_t>& cuts : {one_by_one(kTokens), std::vector<size_t>{0, 1, 64, 66, kTokens},
                                            std::vector<size_t>{0, 2, 3, kTokens}}) {
      State<double> state = layer.init_state(kBatch);
      CHECK(distance(extended(layer, state, x, cuts), whole) <= 1e-11);
      CHECK(state.length == kTokens);
      for (size_t i = 0; i < state.tensors().size(); ++i) {
        const Tensor<double>& tensor = std::as_const(state).tensors()[i].second;
        if (tensor.size()) CHECK(distance(tensor, std::as_const(last).tensors()[i].second) <= 1e-11);
      }
    }
  }
  for (const auto& [name, owned] : all_layers<float>()) {
    INFO(name);
    State<float> state = owned.layer->init_state(kBatch);
    const Tensor<float> decoded = extended(*owned.layer, state, x32, one_by_one(kTokens));
    CHECK(distance(decoded, forward(*owned.layer, x32, Face::kChunkwise)) <= 1e-4);
  }
}

TEST_CASE("a sequence cut into pieces gives a layer the gradients of the whole, states before included") {
  const Tensor<double> x = random_tensor<double>({kBatch, 21, kDim}, 6);
  for (const auto& [name, owned] : all_layers<double>()) {
    INFO(name);
    const Outcome<double> whole = run(owned, x, Face::kRecurrent, {0, 21});
    for (const Face face : {Face::kRecurrent, Face::kParallel, Face::kChunkwise}) {
      CHECK(apart(run(owned, x, face, {0, 21}), whole) <= 1e-11);
      CHECK(apart(run(owned, x, face, {0, 1, 2, 19, 21}), whole) <= 1e-11);
    }
  }
}

TEST_CASE("draft, reject, restore, replay: a layer's bits are those of never having drafted") {
  const Tensor<float> x = random_tensor<float>({kBatch, 17, kDim}, 7),
                      draft = random_tensor<float>({kBatch, 4, kDim}, 8);
  for (const auto& [name, owned] : all_layers<float>()) {
    INFO(name);
    const Layer<float>& layer = *owned.layer;
    State<float> never = layer.init_state(kBatch);
    extended(layer, never, x, {0, 9});
    State<float> drafted = layer.init_state(kBatch);
    extended(layer, drafted, x, {0, 9});
    const State<float> kept = drafted;
    extended(layer, drafted, draft, {0, 1, 4});
    CHECK(drafted.length == 13);
    CHECK_FALSE(same_bits(drafted, kept));
    CHECK(same_bits(kept, never));
    drafted = kept;
    const Tensor<float> wanted = extended(layer, never, x, {9, 10, 13, 17});
    CHECK(same_bits(extended(layer, drafted, x, {9, 10, 13, 17}), wanted));
    CHECK(same_bits(drafted, never));
  }
}

TEST_CASE(
    "a layer's state is as large after many tokens as before the first, and an error leaves it as it was") {
  for (const auto& [name, owned] : all_layers<float>()) {
    INFO(name);
    State<float> state = owned.layer->init_state(kBatch);
    const size_t bytes = state.bytes();
    CHECK(bytes > 0);
    extended(*owned.layer, state, random_tensor<float>({kBatch, 70, kDim}, 9), {0, 70});
    CHECK(state.bytes() == bytes);
    const State<float> before = state;
    CHECK_FALSE(message_of([&, &layer = owned.layer] {
                  layer->extend(state, random_tensor<float>({kBatch, 1, kDim + 1}, 9), Tensor<float>());
                }).empty());
    CHECK(same_bits(state, before));
  }
}

TEST_CASE(
    "a layer adds its residual, in training and in decoding, and reads no other sequence of the batch") {
  const Tensor<double> x = random_tensor<double>({kBatch, 6, kDim}, 10),
                       residual = random_tensor<double>({kBatch, 6, kDim}, 11);
  for (const auto& [name, owned] : all_layers<double>()) {
    INFO(name);
    const Layer<double>& layer = *owned.layer;
    Tensor<double> wanted = forward(layer, x, Face::kChunkwise).clone();
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] += std::as_const(residual)[i];
    CHECK(distance(forward(layer, x, Face::kChunkwise, residual), wanted) <= 1e-13);
    State<double> state = layer.init_state(kBatch);
    CHECK(distance(layer.extend(state, x, residual), wanted) <= 1e-13);
    State<double> alone = layer.init_state(1);
    CHECK(distance(layer.extend(alone, x.rows(1, 2), residual.rows(1, 2)), wanted.rows(1, 2)) <= 1e-13);
  }
}

TEST_CASE("parameters and variables that stand for them give a layer the same outputs and gradients") {
  const Tensor<double> x = random_tensor<double>({kBatch, 9, kDim}, 12);
  for (const auto& [name, owned] : all_layers<double>()) {
    INFO(name);
    Tape<double> with_parameters, with_variables;
    std::vector<Var<double>> stand_ins;
    for (size_t i = 0; i < owned.parameters->size(); ++i) {
      stand_ins.push_back(with_variables.input(std::as_const((*owned.parameters)[i]).value()));
    }
    const Var<double> a =
        owned.layer->apply(with_parameters, with_parameters.input(x), {}, 0, Face::kChunkwise).y;
    const Var<double> b = owned.layer
                              ->apply(Weights<double>(with_variables, stand_ins), with_variables.input(x), {},
                                      0, Face::kChunkwise)
                              .y;
    CHECK(distance(a.value(), b.value()) <= 1e-14);
    const Tensor<double> dy = random_tensor<double>(x.shape(), 13);
    with_parameters.backward(std::vector<Var<double>>{a}, std::vector<Tensor<double>>{dy});
    with_variables.backward(std::vector<Var<double>>{b}, std::vector<Tensor<double>>{dy});
    for (size_t i = 0; i < owned.parameters->size(); ++i) {
      INFO((*owned.parameters)[i].name());
      REQUIRE((*owned.parameters)[i].grad().defined());
      CHECK(distance(std::as_const((*owned.parameters)[i]).grad(), stand_ins[i].grad()) <= 1e-12);
      (*owned.parameters)[i].zero_grad();
    }
  }
}

TEST_CASE("decays start over horizons from one token to hundreds") {
  // α at x = 0 is exp(-exp(A_log) softplus(dt_bias)).
  const GatedDeltaNetConfig config{
      .dim = 4, .key_heads = 1, .value_heads = 4096, .key_dim = 1, .value_dim = 1};
  const auto owned = own_layer<GatedDeltaNet, double>(config, 3);
  const Tensor<double> A_log = std::as_const(*owned.parameters->find("layer.A_log")).value();
  const Tensor<double> bias = std::as_const(*owned.parameters->find("layer.dt_bias")).value();
  std::vector<double> alpha;
  for (size_t h = 0; h < A_log.size(); ++h) {
    CHECK(std::exp(A_log[h]) > 0);
    CHECK(std::exp(A_log[h]) <= 16 * (1 + 1e-15));
    const double dt = std::log1p(std::exp(bias[h]));
    CHECK(dt >= 1e-3 * (1 - 1e-12));
    CHECK(dt <= 1e-1 * (1 + 1e-12));
    alpha.push_back(std::exp(-std::exp(A_log[h]) * dt));
  }
  std::sort(alpha.begin(), alpha.end());
  // Quantiles of the published initialisation.
  CHECK(alpha[alpha.size() / 20] == Approx(0.47).margin(0.03));
  CHECK(alpha[alpha.size() / 2] == Approx(0.94).margin(0.01));
  CHECK(alpha[alpha.size() * 19 / 20] == Approx(0.996).margin(0.001));
}

TEST_CASE("layers start as their public codes say") {
  const auto value = [](const auto& owned, const std::string& name) {
    const Parameter<double>* parameter = owned.parameters->find("layer." + name);
    REQUIRE(parameter);
    return parameter->value();
  };
  const auto range = [](const Tensor<double>& x) {
    const auto [low, high] = std::minmax_element(x.values().begin(), x.values().end());
    return std::pair(*low, *high);
  };
  const auto mamba =
      own_layer<Mamba2, double>(Mamba2Config{.dim = 64, .heads = 8, .head_dim = 16, .state_dim = 16});
  for (size_t h = 0; h < 8; ++h) {
    CHECK(value(mamba, "A_log")[h] == Approx(std::log(static_cast<double>(h + 1))));
    CHECK(value(mamba, "D")[h] == 1);
  }
  double squares = 0;
  const Tensor<double> in = value(mamba, "z.weight");
  for (const double w : in.values()) squares += w * w;
  CHECK(std::sqrt(squares / static_cast<double>(in.size())) == Approx(0.1).epsilon(0.03));
  CHECK(range(value(mamba, "x_conv.bias")) == std::pair(0.0, 0.0));
  const auto taps = range(value(mamba, "x_conv.weight"));
  CHECK((taps.first >= -0.5 && taps.first < -0.45 && taps.second < 0.5 && taps.second > 0.45));

  const auto kda = own_layer<KimiDeltaAttention, double>(
      KdaConfig{.dim = 8, .key_heads = 64, .value_heads = 64, .key_dim = 2, .value_dim = 2});
  const auto rates = range(value(kda, "A_log"));
  CHECK((rates.first >= 0 && rates.first < 1 && rates.second <= std::log(16.0) && rates.second > 2.5));
  CHECK(value(kda, "dt_bias").shape() == Shape{64, 2});
  CHECK_FALSE(kda.parameters->find("layer.dt_bias")->decays);
  KdaConfig bounded{.dim = 8, .key_heads = 2, .value_heads = 2, .key_dim = 2, .value_dim = 2};
  bounded.lower_bound = -5;
  CHECK(range(value(own_layer<KimiDeltaAttention, double>(bounded), "A_log")) == std::pair(0.0, 0.0));

  const auto gla =
      own_layer<GatedLinearAttention, double>(GlaConfig{.dim = 8, .heads = 2, .key_dim = 2, .value_dim = 4});
  CHECK(range(value(gla, "gk2.bias")) == std::pair(0.0, 0.0));
  CHECK(value(gla, "gk1.weight").shape() == Shape{8, 16});
}

TEST_CASE("a layer of sizes that can't work is refused in a line that names them") {
  ParameterList<float> list(0);
  const GatedDeltaNetConfig gdn{.dim = 8, .key_heads = 2, .value_heads = 3, .key_dim = 2, .value_dim = 2};
  CHECK(message_of([&] { GatedDeltaNet<float>(gdn, list, "layer"); }) ==
        "gated_deltanet: value_heads = 3 is no multiple of key_heads = 2");
  KdaConfig kda{.dim = 8, .key_heads = 1, .value_heads = 1, .key_dim = 2, .value_dim = 2};
  kda.beta_scale = 3;
  CHECK(message_of([&] { KimiDeltaAttention<float>(kda, list, "layer"); }) ==
        "kda: beta_scale is 3, wanted a number above 0 and up to 2");
  kda.beta_scale = std::numeric_limits<double>::quiet_NaN();
  CHECK_FALSE(message_of([&] { KimiDeltaAttention<float>(kda, list, "layer"); }).empty());
  const DeltaNetConfig deltanet{.dim = 8, .heads = 2, .key_dim = 0, .value_dim = 2};
  CHECK(message_of([&] { DeltaNet<float>(deltanet, list, "layer"); }) ==
        "deltanet: key_dim is 0, wanted at least 1");
  GatedDeltaProductConfig product{.dim = 8, .key_heads = 1, .value_heads = 1, .key_dim = 2, .value_dim = 2};
  product.steps = 0;
  CHECK(message_of([&] { GatedDeltaProduct<float>(product, list, "layer"); }) ==
        "deltaproduct: steps is 0, wanted at least 1");
  const GlaConfig gla{.dim = 8, .heads = 3, .kv_heads = 2, .key_dim = 2, .value_dim = 2};
  CHECK(message_of([&] { GatedLinearAttention<float>(gla, list, "layer"); }) ==
        "gla: heads = 3 is no multiple of kv_heads = 2");
  const RetentionConfig odd{.dim = 8, .heads = 2, .key_dim = 3, .value_dim = 2};
  CHECK(message_of([&] { Retention<float>(odd, list, "layer"); }) ==
        "retention: key_dim is 3, and a rotation turns pairs of channels: wanted an even number");
  Mamba2Config mamba{.dim = 8, .heads = 2, .head_dim = 2, .state_dim = 2};
  mamba.dt_min = 0.5;
  mamba.dt_max = 0.1;
  CHECK(message_of([&] { Mamba2<float>(mamba, list, "layer"); }) ==
        "mamba2: dt_min and dt_max are 0.5 and 0.1, wanted 0 <= dt_min < dt_max");
  CHECK(list.size() == 0);
}

}  // namespace storytape
