// Calls of WKV with all their results, for its tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "nn/mixers/wkv.h"
#include "tensor/random.h"

namespace storytape::test {

inline constexpr Face kWkvFaces[] = {Face::kRecurrent, Face::kParallel, Face::kChunkwise};

template <class T>
Tensor<T> uniform_tensor(const Shape& shape, uint64_t seed, double low = -2, double high = 2) {
  Random random(seed);
  Tensor<T> t(shape);
  for (T& x : t.values()) x = static_cast<T>(random.uniform(low, high));
  return t;
}

inline WkvOptions by(Face face, size_t chunk = 64) {
  return {face, chunk};
}

// Inputs of a call; undefined tensors are not given.
template <class T>
struct WkvCall {
  Tensor<T> w, u, k, v, mean, logden;
  static WkvCall random(size_t batch, size_t tokens, size_t channels, bool state, uint64_t seed = 1) {
    WkvCall in;
    in.w = uniform_tensor<T>({channels}, seed, 0, 1);
    in.u = uniform_tensor<T>({channels}, seed + 1);
    in.k = uniform_tensor<T>({batch, tokens, channels}, seed + 2);
    in.v = uniform_tensor<T>({batch, tokens, channels}, seed + 3);
    if (state) in.mean = uniform_tensor<T>({batch, channels}, seed + 4);
    if (state) in.logden = uniform_tensor<T>({batch, channels}, seed + 5);
    return in;
  }
};

// What came out, and the gradients of ⟨o, d_o⟩ + ⟨mean, d_mean⟩ + ⟨logden, d_logden⟩ in the order of WkvCall.
template <class T>
struct WkvAnswer {
  Tensor<T> o, mean, logden;
  std::vector<Tensor<T>> gradients;
};

template <class T>
WkvAnswer<T> run(const WkvCall<T>& in, const WkvOptions& options, const Tensor<T>& d_o,
                 const Tensor<T>& d_mean = {}, const Tensor<T>& d_logden = {}) {
  Tape<T> tape;
  const auto var = [&](const Tensor<T>& t) { return t.defined() ? tape.input(t) : Var<T>(); };
  const std::vector<Var<T>> vars{var(in.w), var(in.u), var(in.k), var(in.v), var(in.mean), var(in.logden)};
  const WkvResult<T> y = wkv(vars[0], vars[1], vars[2], vars[3], vars[4], vars[5], options);
  WkvAnswer<T> answer{y.o.value(), y.mean.value(), y.logden.value(), {}};
  tape.backward(std::vector<Var<T>>{y.o, y.mean, y.logden}, std::vector<Tensor<T>>{d_o, d_mean, d_logden});
  for (const Var<T>& v : vars) answer.gradients.push_back(v.defined() ? v.grad() : Tensor<T>());
  return answer;
}

// max|a - b| / max(1, max|b|); infinite where a value is not finite or the shapes differ.
template <class T>
double distance(const Tensor<T>& a, const Tensor<T>& b) {
  if (!(a.shape() == b.shape()) || a.defined() != b.defined()) return std::numeric_limits<double>::infinity();
  double worst = 0, scale = 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    if (!std::isfinite(x) || !std::isfinite(y)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, std::abs(x - y));
    scale = std::max(scale, std::abs(y));
  }
  return worst / scale;
}
template <class T>
double distance(const WkvAnswer<T>& a, const WkvAnswer<T>& b) {
  double worst = std::max({distance(a.o, b.o), distance(a.mean, b.mean), distance(a.logden, b.logden)});
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    if (a.gradients[i].defined()) worst = std::max(worst, distance(a.gradients[i], b.gradients[i]));
  }
  return worst;
}

template <class T>
bool all_finite(const Tensor<T>& x) {
  return std::all_of(x.values().begin(), x.values().end(), [](T value) { return std::isfinite(value); });
}

}  // namespace storytape::test
