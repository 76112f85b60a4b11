// RWKV's mixer: a softmax over time without a query, in parallel and token by token.
#include <algorithm>
#include <cmath>
#include <vector>

#include "nn/mixers/rwkv_time_mix.h"
#include "nn/mixers/softmax_attention.h"
#include "nn/mixers/wkv.h"
#include "nn/token_shift.h"
#include "train/demos/demo.h"
#include "train/demos/inputs.h"

namespace storytape {
namespace {

using namespace demo;
using nlohmann::json;

WkvOptions with(Face face) {
  WkvOptions options;
  options.face = face;
  options.chunk = 5;
  return options;
}

// The weights that the last of `tokens` tokens gives each: keys of 0, token i's value is 1 in channel i alone.
std::vector<float> weights_of_last(size_t tokens, double w, double u) {
  Values x;
  const Shape channels = {tokens}, shape = {1, tokens, tokens};
  const Tensor<float> o =
      wkv<float>(x(Tensor<float>(channels, static_cast<float>(w))),
                 x(Tensor<float>(channels, static_cast<float>(u))), x(Tensor<float>(shape, 0.0f)),
                 x(one_hot(tokens, tokens).reshape(shape)), {}, {})
          .o.value();
  const auto last = o.values().last(tokens);
  return {last.begin(), last.end()};
}

}  // namespace

DemoResult demo_wkv_faces(const DemoOptions&) {
  constexpr size_t kTokens = 12, kDim = 8;
  const Tensor<float> w = uniform({kDim}, 0, 0.1, 1.5), u = normal({kDim}, 1),
                      k = normal({1, kTokens, kDim}, 2), v = normal({1, kTokens, kDim}, 3);
  const auto run = [&](Face face) {
    Values x;
    return wkv<float>(x(w), x(u), x(k), x(v), {}, {}, with(face)).o.value();
  };
  const Tensor<float> recurrent = run(Face::kRecurrent);
  const double parallel = difference(run(Face::kParallel), recurrent),
               chunkwise = difference(run(Face::kChunkwise), recurrent);
  bool first = true;
  for (const Face face : {Face::kRecurrent, Face::kParallel, Face::kChunkwise}) {
    first = first && difference(run(face).values().first(kDim), v.values().first(kDim)) == 0;
  }
  DemoResult result;
  result.exact("agree", std::max(parallel, chunkwise) <= 1e-5, true, "parallel, recurrent and chunkwise");
  result.rounding("max_abs_diff", parallel, 1e-5,
                  "parallel against recurrent; the chapter's random numbers gave 2.4e-07");
  result.rounding("max_abs_diff_chunkwise", chunkwise, 1e-5);
  result.exact("first_token_is_value", first, true, "wkv_0 = v_0, to the bit");
  return result;
}

DemoResult demo_wkv_horizon(const DemoOptions&) {
  constexpr size_t kTokens = 12;
  DemoResult result;
  result.show("length", kTokens, "tokens with flat keys; the weights that the last one gives each");
  const std::vector<float> flat = weights_of_last(kTokens, 0, 0), near = weights_of_last(kTokens, 2, 0),
                           now = weights_of_last(kTokens, 0, 1);
  result.near("w_0_u_0", flat, std::vector<double>(kTokens, 1.0 / 12), 1e-7, "all alike");
  result.near("w_2_u_0_last_three", std::vector<float>(near.end() - 3, near.end()), {0.0628, 0.4637, 0.4637},
              5e-5, "a short memory");
  std::vector<double> wanted(kTokens, 0.0729);
  wanted.back() = 0.1982;
  result.near("w_0_u_1", now, wanted, 5e-5, "the bonus lifts the current token");
  // e^(-(10-i)w) for what came before, e^u for the last, over their sum.
  json ours = json::array(), formula = json::array();
  for (const double w : {0.1, 0.5, 1.0}) {
    const double u = 0.5;
    std::vector<double> weights(kTokens, std::exp(u));
    double sum = std::exp(u);
    for (size_t i = 0; i + 1 < kTokens; ++i) sum += weights[i] = std::exp(-(static_cast<double>(10 - i)) * w);
    for (double& x : weights) x /= sum;
    formula.push_back(weights);
    ours.push_back(weights_of_last(kTokens, w, u));
  }
  result.near("weights", ours, formula, 1e-6, "w = 0.1, 0.5, 1 with u = 0.5, by the formula");
  return result;
}

DemoResult demo_token_shift(const DemoOptions&) {
  const Tensor<float> x({1, 3, 2}, {1, 2, 3, 4, 5, 6});
  const auto shifted = [&](float mu) {
    Values on_tape;
    return list(token_shift<float>(on_tape(x), on_tape(Tensor<float>({2}, mu))).y.value().values());
  };
  DemoResult result;
  result.show("x", list(x.values()), "three tokens of two channels");
  result.exact("mu_1", shifted(1), {1, 2, 3, 4, 5, 6}, "the identity");
  result.exact("mu_0", shifted(0), {0, 0, 1, 2, 3, 4}, "the token before, zeros at the start");
  result.exact("mu_0.5", shifted(0.5f), {0.5, 1, 2, 3, 4, 5}, "halfway");
  return result;
}

DemoResult demo_rwkv_decode(const DemoOptions&) {
  constexpr size_t kTokens = 32, kDim = 16;
  const auto matrix = [](uint64_t seed) {
    Tensor<float> W = normal({kDim, kDim}, seed);
    for (float& value : W.values()) value /= 4;  // √kDim
    return W;
  };
  const auto mix = [](uint64_t seed) { return uniform({kDim}, seed, 0, 1); };
  const TimeMixWeights<Tensor<float>> weights{
      mix(1),           mix(2),    mix(3),    matrix(4),
      matrix(5),        matrix(6), matrix(7), uniform({kDim}, 8, 0.1, 1.5),
      normal({kDim}, 9)};
  const Tensor<float> x = normal({1, kTokens, kDim}, 0);
  Values var;
  const TimeMixWeights<Var<float>> on_tape{var(weights.mu_r), var(weights.mu_k), var(weights.mu_v),
                                           var(weights.W_r),  var(weights.W_k),  var(weights.W_v),
                                           var(weights.W_o),  var(weights.w),    var(weights.u)};
  const Tensor<float> forward =
      rwkv_time_mix<float>(on_tape, var(x), {}, {}, {}, with(Face::kParallel)).y.value();

  auto state = rwkv_time_mix_state<float>(1, kDim);
  auto cache = softmax_attention_state<float>(1, 1, kDim, kDim);
  json state_bytes = json::array(), cache_bytes = json::array();
  double worst = 0;
  for (size_t t = 0; t < kTokens; ++t) {
    const Tensor<float> token({1, 1, kDim}, x.values().subspan(t * kDim, kDim));
    const Tensor<float> y = rwkv_time_mix_extend(weights, state, token);
    worst = std::max(worst, difference(y.values(), forward.values().subspan(t * kDim, kDim)));
    const Tensor<float> head = token.reshape({1, 1, 1, kDim});
    softmax_attention_extend(cache, head, head, head, {});
    if (t == 0 || t + 1 == kTokens) {
      state_bytes.push_back(state.bytes());
      cache_bytes.push_back(softmax_attention_bytes(cache));
    }
  }
  DemoResult result;
  result.exact("agree", worst <= 1e-5, true, "token by token against the parallel form");
  result.rounding("max_abs_diff", worst, 1e-5, "the chapter's random numbers gave 2.1e-07");
  result.exact("state_bytes", state.bytes(), 192, "3 d floats: the last x and two of WKV");
  result.exact("state_bytes_after_1_and_32", state_bytes, {192, 192}, "constant in length");
  result.exact("kv_cache_bytes_equiv", softmax_attention_bytes(cache) / 2, 2048,
               "2 L d values of 2 bytes; the chapter sets them beside 4-byte states");
  result.exact("kv_cache_bytes_float32", cache_bytes, {128, 4096},
               "2 L d values of 4 bytes after 1 and 32 tokens");
  return result;
}

}  // namespace storytape
