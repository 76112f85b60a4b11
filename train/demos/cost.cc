#include "train/demos/cost.h"

#include <cmath>
#include <vector>

#include "nn/mixers/linear_attention.h"
#include "nn/mixers/reference.h"
#include "nn/mixers/reference_softmax.h"
#include "nn/mixers/softmax_attention.h"
#include "train/demos/demo.h"

namespace storytape {
namespace {

using nlohmann::json;

// A number that counts the products it takes part in.
struct Counted {
  double value = 0;
  static inline thread_local uint64_t products = 0;

  Counted() = default;
  Counted(double x) : value(x) {}
  Counted& operator+=(const Counted& b) {
    value += b.value;
    return *this;
  }
  Counted& operator-=(const Counted& b) {
    value -= b.value;
    return *this;
  }
  Counted& operator*=(const Counted& b) {
    ++products;
    value *= b.value;
    return *this;
  }
  friend Counted operator+(Counted a, const Counted& b) { return a += b; }
  friend Counted operator-(Counted a, const Counted& b) { return a -= b; }
  friend Counted operator*(Counted a, const Counted& b) { return a *= b; }
  friend Counted operator/(const Counted& a, const Counted& b) { return a.value / b.value; }
  friend double real(const Counted& x) { return x.value; }
  friend Counted tanh(const Counted& x) { return std::tanh(x.value); }
  friend Counted exp(const Counted& x) { return std::exp(x.value); }
  friend Counted log(const Counted& x) { return std::log(x.value); }
};

std::vector<Counted> numbers(size_t n) {
  return std::vector<Counted>(n, Counted(0.5));
}

template <class F>
uint64_t count(const F& f) {
  Counted::products = 0;
  f();
  return Counted::products;
}

// The first length at which softmax attention multiplies at least as much as linear attention.
size_t crossover_length(size_t dim, bool causal) {
  std::vector<size_t> lengths;
  std::vector<uint64_t> softmax, linear;
  for (size_t length = 1; length <= 3 * dim; ++length) {
    lengths.push_back(length);
    softmax.push_back(softmax_multiplications(length, dim, causal));
    linear.push_back(linear_multiplications(length, dim));
  }
  return crossover(lengths, softmax, linear).value_or(0);
}

}  // namespace

uint64_t softmax_multiplications(size_t length, size_t dim, bool causal) {
  const auto q = numbers(length * dim), k = q, v = q;
  auto o = numbers(length * dim);
  const ptrdiff_t offset = causal ? 0 : static_cast<ptrdiff_t>(length) - 1;
  const reference::SoftmaxSize size{1, length, length, 1, 1, dim, dim, offset, 0};
  return count([&] { reference::softmax_attention(size, 1.0, q.data(), k.data(), v.data(), o.data()); });
}

uint64_t linear_multiplications(size_t length, size_t dim) {
  const auto q = numbers(length * dim), k = q, v = q;
  auto o = numbers(length * dim), state = numbers(dim * dim);
  const Counted* no_decay = nullptr;
  Counted* no_normaliser = nullptr;
  return count([&] {
    reference::linear_attention({1, length, 1, dim, dim}, false, 0, q.data(), k.data(), v.data(), no_decay,
                                state.data(), no_normaliser, o.data());
  });
}

uint64_t delta_product_multiplications(size_t length, size_t dim, size_t steps) {
  const auto q = numbers(length * dim), k = numbers(length * steps * dim), v = k,
             beta = numbers(length * steps);
  auto o = numbers(length * dim), state = numbers(dim * dim);
  const Counted* no_gate = nullptr;
  const uint64_t all = count([&] {
    reference::gated_recurrence({1, length, 1, dim, dim}, steps, false, q.data(), k.data(), v.data(), no_gate,
                                beta.data(), state.data(), o.data());
  });
  return all - length * dim * dim;
}

std::optional<size_t> crossover(std::span<const size_t> lengths, std::span<const uint64_t> a,
                                std::span<const uint64_t> b) {
  std::optional<size_t> first;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (a[i] < b[i]) {
      first.reset();
    } else if (!first) {
      first = lengths[i];
    }
  }
  return first;
}

DemoResult demo_cost(const DemoOptions&) {
  constexpr size_t kDim = 16;
  const std::vector<size_t> lengths = {4, 8, 16, 32, 64, 128};
  json softmax = json::array(), linear = json::array(), wanted = json::array(), caches = json::array(),
       states = json::array(), cache_formula = json::array();
  for (const size_t length : lengths) {
    softmax.push_back(softmax_multiplications(length, kDim, false));
    linear.push_back(linear_multiplications(length, kDim));
    wanted.push_back(2 * length * kDim * kDim);
    const Tensor<float> tokens({1, length, 1, kDim}, 0.5f);
    auto cache = softmax_attention_state<float>(1, 1, kDim, kDim);
    softmax_attention_extend(cache, tokens, tokens, tokens, {});
    caches.push_back(softmax_attention_bytes(cache));
    cache_formula.push_back(2 * length * kDim * sizeof(float));
    LinearAttentionOptions options;
    options.phi = FeatureMap::kIdentity;
    options.normalise = false;
    auto state = linear_attention_state<float>(1, 1, kDim, kDim, options);
    linear_attention_extend(state, tokens, tokens, tokens, {}, options);
    states.push_back(state.bytes());
  }
  DemoResult result;
  result.show("d", kDim, "one head; multiplications counted in the defining recurrences");
  result.show("length", lengths, "tokens L");
  result.exact("linear_multiplications", linear, wanted, "2 L d^2: one write and one read of the state");
  json pairs = json::array();
  for (const size_t length : lengths) pairs.push_back(length * length * (2 * kDim + 1));
  result.exact("softmax_multiplications", softmax, pairs,
               "L^2 (2d + 1): all pairs, scores, scale and values");
  result.exact("crossover", {crossover_length(16, false), crossover_length(24, false)}, {16, 24},
               "at L = d, for d = 16 and 24");
  result.show("crossover_causal", {crossover_length(16, true), crossover_length(24, true)},
              "with the needed half of the pairs, as we compute it: near 2 d");
  result.exact("kv_cache_bytes", caches, cache_formula, "2 L d floats: grows");
  result.exact("state_bytes", states, std::vector<size_t>(lengths.size(), kDim * kDim * sizeof(float)),
               "d^2 floats, whatever the length");
  return result;
}

}  // namespace storytape
