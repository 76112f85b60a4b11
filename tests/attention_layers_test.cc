// The layers around softmax attention, and RWKV-4's: their gradients, decoding, rollback, how they start and what they
// refuse.
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "autograd/gradcheck.h"
#include "autograd/ops.h"
#include "nn/examples.h"
#include "nn/layers/attention.h"
#include "nn/layers/examples.h"
#include "nn/layers/forgetting_attention.h"
#include "nn/layers/mla.h"
#include "nn/layers/rwkv4.h"
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
  bool grows = true;  // its state has a row per token
};

// Every layer, and those of its forms that compute something else.
template <class T>
std::vector<NamedLayer<T>> all_layers() {
  std::vector<NamedLayer<T>> all;
  AttentionConfig attention{.dim = kDim, .heads = 4, .kv_heads = 2};
  attention.rotary_dim = 2;
  all.push_back({"attention", own_layer<Attention, T>(attention)});
  attention.head_dim = 5;
  attention.rotary_dim = 4;
  attention.qk_norm = QkNorm::kHead;
  attention.norm_offset = 1;
  attention.gate = attention.bias = attention.out_bias = true;
  all.push_back({"attention, norm and gate", own_layer<Attention, T>(attention)});
  attention.window = 5;
  attention.softcap = 0.5;
  attention.qk_norm = QkNorm::kFull;
  all.push_back({"attention, window and soft cap", own_layer<Attention, T>(attention)});
  ForgettingAttentionConfig forgetting{.dim = kDim, .heads = 3};
  all.push_back({"forgetting attention", own_layer<ForgettingAttention, T>(forgetting)});
  forgetting.kv_heads = 1;
  forgetting.qk_norm = forgetting.gate = forgetting.bias = true;
  all.push_back({"forgetting attention, norm and gate", own_layer<ForgettingAttention, T>(forgetting)});
  MlaConfig mla{.dim = kDim, .heads = 3, .nope_dim = 4, .rope_dim = 2, .value_dim = 5, .latent = 6};
  all.push_back({"mla", own_layer<LatentAttention, T>(mla)});
  mla.query_latent = 7;
  mla.rope_base = 0;
  mla.rope_dim = 3;
  all.push_back({"mla, query latent, no rotation", own_layer<LatentAttention, T>(mla)});
  const LayerPlace place{1, 3};
  const TimeMixConfig time_mix{kDim, 10, place};
  all.push_back({"time mix", own_layer<TimeMix, T>(time_mix), false});
  const ChannelMixConfig channel_mix{kDim, 0, place};
  all.push_back({"channel mix", own_layer<ChannelMix, T>(channel_mix), false});
  const RwkvBlockConfig block{.dim = kDim, .first = true, .place = place};
  all.push_back({"RWKV block", own_layer<RwkvBlock, T>(block), false});
  return all;
}

template <class T>
bool same_bits(const Tensor<T>& a, const Tensor<T>& b) {
  return a.shape() == b.shape() && (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
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

// Outputs, the states after, and gradients to x and the parameters, of a sequence that is run in pieces on one tape.
template <class T>
std::vector<Tensor<T>> run(const OwnedLayer<T>& owned, const Tensor<T>& x, Face face,
                           const std::vector<size_t>& cuts) {
  Tape<T> tape;
  std::vector<Var<T>> leaves, states;
  for (size_t i = 0; i < owned.parameters->size(); ++i) {
    leaves.push_back(tape.input(std::as_const((*owned.parameters)[i]).value()));
  }
  const std::vector<Var<T>> weights = leaves;
  leaves.push_back(tape.input(x));
  std::vector<Var<T>> parts;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const Var<T> piece = slice(leaves.back(), 1, cuts[i], cuts[i + 1]);
    Pass<T> pass = owned.layer->apply(Weights<T>(tape, weights), piece, states, cuts[i], face);
    parts.push_back(pass.y);
    states = std::move(pass.states);
  }
  std::vector<Var<T>> ends{concat(parts, 1)};
  ends.insert(ends.end(), states.begin(), states.end());
  std::vector<Tensor<T>> all, cotangents;
  uint64_t seed = 300;
  for (const Var<T>& end : ends) {
    all.push_back(end.value().clone());
    cotangents.push_back(random_tensor<T>(end.shape(), seed++));
  }
  tape.backward(ends, cotangents);
  for (const Var<T>& leaf : leaves) all.push_back(leaf.grad());
  return all;
}

template <class T>
double apart(const std::vector<Tensor<T>>& a, const std::vector<Tensor<T>>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, distance(a[i], b[i]));
  return worst;
}

const Tensor<double>& started(const ParameterList<double>& list, const std::string& name) {
  const Parameter<double>* parameter = list.find("layer." + name);
  REQUIRE(parameter != nullptr);
  return parameter->value();
}

}  // namespace

TEST_CASE("attention and RWKV layers' gradients are proven, by input, parameters and states") {
  register_basic_ops();
  register_nn_ops();
  for (const std::string op : {"attention_layer", "forgetting_attention_layer", "mla_layer",
                               "rwkv4_time_mix_layer", "rwkv4_channel_mix_layer", "rwkv4_block"}) {
    const std::vector<GradRow> rows = gradcheck(op);
    CHECK(rows.size() >= 40);
    for (const GradRow& row : rows) {
      INFO(row.op << "." << row.face << " (" << row.example << ") " << row.input << ": " << row.why);
      CHECK(row.ok);
    }
  }
}

TEST_CASE("published attention and RWKV layers give the golden vectors, cut and decoded too") {
  STORYTAPE_NEED_SHARED(shared);
  OperationOptions options;
  options.only = {"attention_layer",      "forgetting_attention_layer", "mla_layer",
                  "rwkv4_time_mix_layer", "rwkv4_channel_mix_layer",    "rwkv4_block"};
  const std::vector<OperationRow> rows = verify_operations(shared / "golden-layers", options);
  CHECK(rows.size() == 40 * 6 * 2);
  for (const OperationRow& row : rows) {
    INFO(row.variant << " " << row.case_name << " " << row.face << " " << row.dtype << ": " << row.detail);
    CHECK(row.ok);
  }
}

TEST_CASE("B012 an attention or RWKV layer, decoded in any pieces, gives what one pass gives") {
  constexpr size_t kTokens = 130;
  const Tensor<double> x = random_tensor<double>({kBatch, kTokens, kDim}, 5);
  const Tensor<float> x32 = cast<float>(x);
  const std::vector<std::vector<size_t>> all_cuts = {
      one_by_one(kTokens), {0, kTokens}, {0, 64, kTokens}, {0, 63, kTokens}, {0, 5, 65, 66, kTokens}};
  for (const auto& [name, owned, grows] : all_layers<double>()) {
    INFO(name);
    const Layer<double>& layer = *owned.layer;
    const Tensor<double> whole = forward(layer, x, Face::kChunkwise);
    for (const Face face : {Face::kRecurrent, Face::kParallel}) {
      CHECK(distance(forward(layer, x, face), whole) <= 1e-12);
    }
    for (const std::vector<size_t>& cuts : all_cuts) {
      State<double> state = layer.init_state(kBatch);
      CHECK(distance(extended(layer, state, x, cuts), whole) <= 1e-12);
      CHECK(state.length == kTokens);
    }
  }
  for (const auto& [name, owned, grows] : all_layers<float>()) {
    INFO(name);
    State<float> state = owned.layer->init_state(kBatch);
    const Tensor<float> decoded = extended(*owned.layer, state, x32, one_by_one(kTokens));
    CHECK(distance(decoded, forward(*owned.layer, x32, Face::kChunkwise)) <= 1e-5);
  }
}

TEST_CASE("B105 new tokens over a cache stand where a full pass has them") {
  const Tensor<double> x = random_tensor<double>({kBatch, 12, kDim}, 6);
  for (const auto& [name, owned, grows] : all_layers<double>()) {
    for (const size_t block : {1, 2, 7}) {
      INFO(name << ", " << block << " new tokens");
      State<double> state = owned.layer->init_state(kBatch);
      const Tensor<double> piece = slice(x, 1, 0, 5 + block);
      CHECK(distance(extended(*owned.layer, state, piece, {0, 5, 5 + block}),
                     forward(*owned.layer, piece, Face::kChunkwise)) <= 1e-12);
    }
  }
}

TEST_CASE("an attention or RWKV layer's gradients through a cut are those of the whole") {
  const Tensor<double> x = random_tensor<double>({kBatch, 21, kDim}, 7);
  for (const auto& [name, owned, grows] : all_layers<double>()) {
    INFO(name);
    const auto whole = run(owned, x, Face::kRecurrent, {0, 21});
    for (const Face face : {Face::kRecurrent, Face::kParallel, Face::kChunkwise}) {
      CHECK(apart(run(owned, x, face, {0, 21}), whole) <= 1e-11);
      CHECK(apart(run(owned, x, face, {0, 1, 2, 19, 21}), whole) <= 1e-11);
    }
  }
}

TEST_CASE(
    "draft, reject, restore, replay: attention and RWKV layers' bits are those of never having drafted") {
  const Tensor<float> x = random_tensor<float>({kBatch, 40, kDim}, 8),
                      draft = random_tensor<float>({kBatch, 7, kDim}, 9);
  for (const auto& [name, owned, grows] : all_layers<float>()) {
    INFO(name);
    const Layer<float>& layer = *owned.layer;
    State<float> never = layer.init_state(kBatch), drafted = layer.init_state(kBatch);
    extended(layer, never, x, {0, 16});
    extended(layer, drafted, x, {0, 16});
    const State<float> kept = drafted;
    extended(layer, drafted, draft, {0, 1, 7});
    CHECK(drafted.length == 23);
    drafted = kept;
    const std::vector<size_t> rest = {16, 17, 19, 40};
    CHECK(same_bits(extended(layer, drafted, x, rest), extended(layer, never, x, rest)));
    CHECK(drafted.length == never.length);
    for (size_t i = 0; i < never.tensors().size(); ++i) {
      const Tensor<float>&a = std::as_const(never).tensors()[i].second,
            &b = std::as_const(drafted).tensors()[i].second;
      // Rows past the last token are nobody's.
      const size_t rows = grows ? std::min<size_t>(a.size(1), 40) : a.size(1);
      CHECK(same_bits(slice(a, 1, 0, rows), slice(b, 1, 0, rows)));
    }
  }
}

TEST_CASE("B138 what an attention layer carries grows by doubling, or with a window not at all") {
  const size_t per_token = kBatch * 12 * sizeof(float);  // 2 heads of 3 channels, keys and values
  const Tensor<float> x = random_tensor<float>({kBatch, 1, kDim}, 10);
  for (const size_t window : {0, 6}) {
    AttentionConfig config{.dim = kDim, .heads = 4, .kv_heads = 2};
    if (window) config.window = window;
    const auto owned = own_layer<Attention, float>(config);
    State<float> state = owned.layer->init_state(kBatch);
    CHECK(state.bytes() == 0);
    size_t moves = 0;
    for (size_t t = 0; t < 300; ++t) {
      const size_t before = state.bytes();
      owned.layer->extend(state, x, Tensor<float>());
      moves += state.bytes() != before;
    }
    CHECK(moves <= 6);
    CHECK(state.bytes() <= (window ? window : 2 * 300) * per_token);
  }
  // A latent and one rotated key are all that is kept of a token, whatever the heads.
  const auto owned = own_layer<LatentAttention, float>(
      MlaConfig{.dim = kDim, .heads = 8, .nope_dim = 16, .rope_dim = 2, .value_dim = 16, .latent = 6});
  State<float> state = owned.layer->init_state(kBatch);
  for (size_t t = 0; t < 16; ++t) owned.layer->extend(state, x, Tensor<float>());
  CHECK(state.bytes() == kBatch * 16 * (6 + 2) * sizeof(float));
}

TEST_CASE("an attention or RWKV layer adds its residual, and an error leaves its state as it was") {
  const Tensor<double> x = random_tensor<double>({kBatch, 6, kDim}, 11),
                       residual = random_tensor<double>({kBatch, 6, kDim}, 12);
  for (const auto& [name, owned, grows] : all_layers<double>()) {
    INFO(name);
    const Layer<double>& layer = *owned.layer;
    Tensor<double> wanted = forward(layer, x, Face::kChunkwise).clone();
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] += std::as_const(residual)[i];
    CHECK(distance(forward(layer, x, Face::kChunkwise, residual), wanted) <= 1e-13);
    State<double> state = layer.init_state(kBatch);
    CHECK(distance(layer.extend(state, x, residual), wanted) <= 1e-13);
    const State<double> before = state;
    const auto refused = [&](const Tensor<double>& bad, const Tensor<double>& with) {
      return !message_of([&] { layer.extend(state, bad, with); }).empty();
    };
    CHECK(refused(random_tensor<double>({kBatch, 1, kDim + 1}, 13), {}));
    CHECK(refused(slice(x, 1, 0, 1), random_tensor<double>({kBatch, 1, kDim + 1}, 14)));
    CHECK(state.length == before.length);
    const Tensor<double> next = slice(x, 1, 0, 1);
    State<double> other = before;
    CHECK(same_bits(layer.extend(state, next, {}), layer.extend(other, next, {})));
    State<double> alone = layer.init_state(1);
    CHECK(distance(layer.extend(alone, x.rows(1, 2), residual.rows(1, 2)), wanted.rows(1, 2)) <= 1e-13);
  }
}

TEST_CASE("a query that reads its key past the rotated part of the head doesn't see positions") {
  AttentionConfig config{.dim = 4, .heads = 1, .head_dim = 4};
  config.rotary_dim = 2;
  for (const bool in_rotated : {false, true}) {
    const auto owned = own_layer<Attention, double>(config);
    for (size_t i = 0; i < owned.parameters->size(); ++i) {
      Tensor<double>& value = (*owned.parameters)[i].mutable_value();
      const std::string& name = (*owned.parameters)[i].name();
      if (name != "layer.q.weight" && name != "layer.k.weight") continue;
      value = Tensor<double>::zeros(value.shape());
      for (size_t row = 0; row < 4; ++row) value[row * 4 + (in_rotated ? 0 : 3)] = 1;
    }
    const Tensor<double> x = random_tensor<double>({1, 6, 4}, 15);
    Tape<double> here, far;
    const Tensor<double> at_0 = owned.layer->apply(here, here.constant(x), {}, 0, Face::kChunkwise).y.value();
    const Tensor<double> at_90 = owned.layer->apply(far, far.constant(x), {}, 90, Face::kChunkwise).y.value();
    CHECK(distance(at_0, at_90) <= 1e-12);  // distances are the same everywhere
    AttentionConfig still = config;
    still.rotary_dim = 0;
    const auto without = own_layer<Attention, double>(still);
    for (size_t i = 0; i < owned.parameters->size(); ++i) {
      (*without.parameters)[i].mutable_value() = std::as_const((*owned.parameters)[i]).value();
    }
    const double moved = distance(forward(*without.layer, x, Face::kChunkwise), at_0);
    CHECK((in_rotated ? moved > 1e-3 : moved <= 1e-14));
  }
}

TEST_CASE("attention and RWKV layers start as their public codes say") {
  AttentionConfig attention{.dim = kDim, .heads = 2};
  attention.qk_norm = QkNorm::kHead;
  attention.bias = true;
  const auto plain = own_layer<Attention, double>(attention);
  attention.norm_offset = 1;
  const auto centred = own_layer<Attention, double>(attention);
  for (size_t i = 0; i < 6; ++i) {
    CHECK(started(*plain.parameters, "q_norm.weight")[i] == 1);
    CHECK(started(*centred.parameters, "k_norm.weight")[i] == 0);
    CHECK(started(*plain.parameters, "v.bias")[i] == 0);
  }
  for (const double w : started(*plain.parameters, "q.weight").values())
    CHECK(std::abs(w) <= 1 / std::sqrt(12.0));
  const auto fox = own_layer<ForgettingAttention, double>(ForgettingAttentionConfig{.dim = kDim, .heads = 2});
  CHECK(started(*fox.parameters, "f.bias")[1] == 0);

  const size_t width = 16;
  const auto mix = own_layer<TimeMix, double>(TimeMixConfig{width, 0, {2, 4}});
  const Tensor<double>&decay = started(*mix.parameters, "time_decay"), &u = started(*mix.parameters, "u");
  const double depth = 2.0 / 3, power = 1 - 2.0 / 4;
  for (size_t h = 0; h < width; ++h) {
    const double of_all = static_cast<double>(h) / 15, of_width = static_cast<double>(h) / 16;
    CHECK(decay[h] == Approx(-5 + 8 * std::pow(of_all, 0.7 + 1.3 * depth)));
    CHECK(u[h] == Approx(std::log(0.3) + (h % 3 == 0 ? 0 : h % 3 == 1 ? 0.5 : -0.5)));
    CHECK(started(*mix.parameters, "mu_k")[h] == Approx(std::pow(of_width, power)));
    CHECK(started(*mix.parameters, "mu_v")[h] == Approx(std::pow(of_width, power) + 0.3 * depth));
    CHECK(started(*mix.parameters, "mu_r")[h] == Approx(std::pow(of_width, power / 2)));
  }
  // A layer alone in its model, of one channel, has no NaN.
  const auto alone = own_layer<TimeMix, double>(TimeMixConfig{1});
  for (size_t i = 0; i < alone.parameters->size(); ++i) {
    CHECK(std::isfinite(std::as_const((*alone.parameters)[i]).value()[0]));
  }
  // [in, out] with 6 and 24: the shorter side's vectors at right angles, longer where out > in.
  const auto channels = own_layer<ChannelMix, double>(ChannelMixConfig{6});
  const Tensor<double>&wide = started(*channels.parameters, "k.weight"),
        &tall = started(*channels.parameters, "v.weight");
  for (size_t a = 0; a < 6; ++a) {
    for (size_t b = 0; b < 6; ++b) {
      double rows = 0, columns = 0;
      for (size_t c = 0; c < 24; ++c) {
        rows += wide[a * 24 + c] * wide[b * 24 + c];
        columns += tall[c * 6 + a] * tall[c * 6 + b];
      }
      CHECK(rows == Approx(a == b ? 4.0 : 0.0).margin(1e-12));
      CHECK(columns == Approx(a == b ? 1.0 : 0.0).margin(1e-12));
    }
  }
}

TEST_CASE("an attention or RWKV layer that can't work is refused in a line that says why") {
  ParameterList<float> list(0);
  const auto attention = [&](auto change) {
    AttentionConfig config{.dim = 12, .heads = 4};
    change(config);
    return message_of([&] { Attention<float>(config, list, "layer"); });
  };
  CHECK(attention([](auto&) {}).empty());
  const size_t made = list.size();
  CHECK(attention([](auto& c) { c.heads = 0; }) == "attention: heads is 0, wanted at least 1");
  CHECK(attention([](auto& c) { c.heads = 5; }) == "attention: dim = 12 is no multiple of heads = 5");
  CHECK(attention([](auto& c) { c.kv_heads = 3; }) == "attention: heads = 4 is no multiple of kv_heads = 3");
  CHECK(attention([](auto& c) { c.window = 0; }) == "attention: the window is 0 tokens, wanted at least 1");
  CHECK(attention([](auto& c) { c.rotary_dim = 3; }) ==
        "attention: 3 rotated channels, and a rotation turns pairs of them: wanted an even number");
  CHECK(attention([](auto& c) { c.rotary_dim = 4; }) == "attention: 4 rotated channels, but the head has 3");
  CHECK(attention([](auto& c) {
          c.rotary_dim = 2;
          c.rope_base = -1;
        }) == "attention: the rotation's base is -1, wanted a positive number");
  CHECK(attention([](auto& c) { c.softcap = -1; }) ==
        "softmax_attention: the soft cap is -1, wanted a positive number, or 0 for none");
  CHECK(attention([](auto& c) { c.scale = std::numeric_limits<double>::infinity(); }) ==
        "attention: the scale is inf, wanted a finite number");
  CHECK(attention([](auto& c) { c.norm_eps = 0; }) == "attention: norm_eps is 0, wanted a positive number");

  const auto mla = [&](auto change) {
    MlaConfig config{.dim = 12, .heads = 2, .nope_dim = 4, .rope_dim = 2, .value_dim = 4, .latent = 6};
    change(config);
    return message_of([&] { LatentAttention<float>(config, list, "layer"); });
  };
  CHECK(mla([](auto& c) { c.latent = 0; }) == "mla: latent is 0, wanted at least 1");
  CHECK(mla([](auto& c) { c.rope_dim = 5; }) ==
        "mla: 5 rotated channels, and a rotation turns pairs of them: wanted an even number");
  CHECK(mla([](auto& c) { c.rope_base = -2; }) ==
        "mla: the rotation's base is -2, wanted a positive number, or 0 for none");

  const ForgettingAttentionConfig forgetting{.dim = 12, .heads = 4, .kv_heads = 3};
  CHECK(message_of([&] { ForgettingAttention<float>(forgetting, list, "layer"); }) ==
        "forgetting: heads = 4 is no multiple of kv_heads = 3");
  const TimeMixConfig beyond{12, 0, {3, 3}};
  CHECK(message_of([&] { TimeMix<float>(beyond, list, "layer"); }) ==
        "rwkv4: layer 3 of 3; they are counted from 0");
  // Nothing is allocated for what can't work.
  CHECK(list.size() == made);
}

}  // namespace storytape
