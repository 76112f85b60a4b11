// Calls of linear attention with all their results, for its tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "nn/mixers/linear_attention.h"
#include "tensor/random.h"

namespace storytape::test {

inline constexpr Face kFaces[] = {Face::kRecurrent, Face::kParallel, Face::kChunkwise};

template <class T>
Tensor<T> random_tensor(const Shape& shape, uint64_t seed, double low = -2, double high = 2) {
  Random random(seed);
  Tensor<T> t(shape);
  for (T& x : t.values()) x = static_cast<T>(random.uniform(low, high));
  return t;
}

inline LinearAttentionOptions with(Face face, size_t chunk = 64, double eps = 1e-6) {
  LinearAttentionOptions options;
  options.face = face;
  options.chunk = chunk;
  options.eps = eps;
  return options;
}

// Inputs of a call; undefined tensors are not given.
template <class T>
struct Inputs {
  Tensor<T> q, k, v, gamma, S, z;
  static Inputs random(size_t batch, size_t tokens, size_t heads, size_t dk, size_t dv, bool states,
                       uint64_t seed = 1) {
    Inputs in;
    in.q = random_tensor<T>({batch, tokens, heads, dk}, seed);
    in.k = random_tensor<T>({batch, tokens, heads, dk}, seed + 1);
    in.v = random_tensor<T>({batch, tokens, heads, dv}, seed + 2);
    in.gamma = random_tensor<T>({heads}, seed + 3, 0.5, 1);
    if (states) in.S = random_tensor<T>({batch, heads, dk, dv}, seed + 4);
    if (states) in.z = random_tensor<T>({batch, heads, dk}, seed + 5, 0.25, 2);
    return in;
  }
};

// What came out, and the gradients of ⟨o, d_o⟩ + ⟨S, d_S⟩ + ⟨z, d_z⟩ in the order of Inputs.
template <class T>
struct Results {
  Tensor<T> o, S, z;
  std::vector<Tensor<T>> gradients;
};

template <class T>
Results<T> run(const Inputs<T>& in, const LinearAttentionOptions& options, const Tensor<T>& d_o,
               const Tensor<T>& d_S = {}, const Tensor<T>& d_z = {}) {
  Tape<T> tape;
  const auto var = [&](const Tensor<T>& t) { return t.defined() ? tape.input(t) : Var<T>(); };
  const Var<T> vars[] = {var(in.q), var(in.k), var(in.v), var(in.gamma), var(in.S), var(in.z)};
  const auto y = linear_attention(vars[0], vars[1], vars[2], vars[3], vars[4], vars[5], options);
  Results<T> results{y.o.value(), y.S.value(), options.normalise ? y.z.value() : Tensor<T>(), {}};
  const std::vector<Var<T>> ends =
      options.normalise ? std::vector<Var<T>>{y.o, y.S, y.z} : std::vector<Var<T>>{y.o, y.S};
  const std::vector<Tensor<T>> seeds =
      options.normalise ? std::vector<Tensor<T>>{d_o, d_S, d_z} : std::vector<Tensor<T>>{d_o, d_S};
  tape.backward(ends, seeds);
  for (const Var<T>& v : vars) results.gradients.push_back(v.defined() ? v.grad() : Tensor<T>());
  return results;
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
double distance(const Results<T>& a, const Results<T>& b) {
  double worst = std::max(distance(a.o, b.o), distance(a.S, b.S));
  if (a.z.defined()) worst = std::max(worst, distance(a.z, b.z));
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    if (a.gradients[i].defined()) worst = std::max(worst, distance(a.gradients[i], b.gradients[i]));
  }
  return worst;
}

}  // namespace storytape::test
