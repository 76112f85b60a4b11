// Calls of the gated mixers with all their results, and the scalar recurrence as their witness, for tests.
#pragma once

#include <complex>
#include <string>
#include <utility>
#include <vector>

#include "nn/mixers/gated_recurrence.h"
#include "nn/mixers/kernels/gated.h"
#include "nn/mixers/reference.h"
#include "tests/linear_attention_testing.h"

namespace storytape::test {

struct GatedVariant {
  const char* op;
  GateKind gate;
  bool delta;
  size_t steps;
};

inline constexpr GatedVariant kUngated{"linear", GateKind::kNone, false, 1};
inline constexpr GatedVariant kUnified{"unified", GateKind::kScalar, false, 1};
inline constexpr GatedVariant kGla{"gla", GateKind::kVector, false, 1};
inline constexpr GatedVariant kDelta{"delta_rule", GateKind::kNone, true, 1};
inline constexpr GatedVariant kGatedDelta{"gated_delta_rule", GateKind::kScalar, true, 1};
inline constexpr GatedVariant kKda{"kda", GateKind::kVector, true, 1};
inline constexpr GatedVariant kDeltaProduct{"delta_product", GateKind::kNone, true, 2};
inline constexpr GatedVariant kGatedDeltaProduct{"gated_delta_product", GateKind::kScalar, true, 3};
inline constexpr GatedVariant kGatedVariants[] = {kUngated,    kUnified, kGla,          kDelta,
                                                  kGatedDelta, kKda,     kDeltaProduct, kGatedDeltaProduct};

template <class T>
void normalise_rows(Tensor<T>& x) {
  const size_t n = x.shape().back();
  T* data = x.data();
  for (size_t first = 0; first < x.size(); first += n) {
    double sum = 0;
    for (size_t i = first; i < first + n; ++i) sum += static_cast<double>(data[i]) * data[i];
    for (size_t i = first; i < first + n; ++i) data[i] = static_cast<T>(data[i] / std::sqrt(sum));
  }
}

// Inputs of a call; undefined tensors are not given. Delta writes have unit keys.
template <class T>
struct GatedCall {
  GatedVariant variant = kUngated;
  Tensor<T> q, k, v, alpha, beta, S;

  static GatedCall random(const GatedVariant& variant, size_t batch, size_t tokens, size_t heads, size_t dk,
                          size_t dv, bool states, uint64_t seed = 1) {
    GatedCall call;
    call.variant = variant;
    const size_t writes = tokens * variant.steps;
    call.q = random_tensor<T>({batch, tokens, heads, dk}, seed);
    call.k = random_tensor<T>({batch, writes, heads, dk}, seed + 1);
    call.v = random_tensor<T>({batch, writes, heads, dv}, seed + 2);
    if (variant.delta) {
      normalise_rows(call.k);
      call.beta = random_tensor<T>({batch, writes, heads}, seed + 3, 0, 1);
    }
    if (variant.gate == GateKind::kScalar) {
      call.alpha = random_tensor<T>({batch, tokens, heads}, seed + 4, 0.3, 1);
    } else if (variant.gate == GateKind::kVector) {
      call.alpha = random_tensor<T>({batch, tokens, heads, dk}, seed + 4, 0.3, 1);
    }
    if (states) call.S = random_tensor<T>({batch, heads, dk, dv}, seed + 5);
    return call;
  }
  std::vector<Tensor<T>*> tensors() { return {&q, &k, &v, &alpha, &beta, &S}; }
  std::vector<const Tensor<T>*> tensors() const { return {&q, &k, &v, &alpha, &beta, &S}; }
  Shape state_shape() const { return {q.size(0), q.size(2), q.size(3), v.size(3)}; }
  Shape output_shape() const { return {q.size(0), q.size(1), q.size(2), v.size(3)}; }
  // Tokens [first, last), the initial state as it is.
  GatedCall tokens(size_t first, size_t last) const {
    GatedCall part = *this;
    Tape<T> tape;
    const auto cut = [&](Tensor<T>& x, size_t steps) {
      if (x.defined()) x = slice(tape.constant(x), 1, first * steps, last * steps).value();
    };
    cut(part.q, 1);
    cut(part.alpha, 1);
    for (Tensor<T>* x : {&part.k, &part.v, &part.beta}) cut(*x, variant.steps);
    return part;
  }
};

template <class To, class From>
GatedCall<To> cast_call(const GatedCall<From>& from) {
  GatedCall<To> to;
  to.variant = from.variant;
  const auto sources = from.tensors();
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i]->defined()) *to.tensors()[i] = cast<To>(*sources[i]);
  }
  return to;
}

inline GatedOptions gated(Face face, size_t chunk = 64) {
  GatedOptions options;
  options.face = face;
  options.chunk = chunk;
  return options;
}
// The parallel face divided by the running product of the gates, as textbooks write it.
inline GatedOptions textbook() {
  GatedOptions options = gated(Face::kParallel);
  options.rescale = true;
  return options;
}

// What came out, and the gradients of ⟨o, d_o⟩ + ⟨S, d_S⟩ in the order of GatedCall, where cotangents are given.
template <class T>
struct GatedOutcome {
  Tensor<T> o, S;
  std::vector<Tensor<T>> gradients;
};

template <class T>
GatedOutcome<T> run(const GatedCall<T>& call, GatedOptions options, const Tensor<T>& d_o = {},
                    const Tensor<T>& d_S = {}) {
  Tape<T> tape;
  options.steps = call.variant.steps;
  std::vector<Var<T>> x;
  for (const Tensor<T>* t : call.tensors()) x.push_back(t->defined() ? tape.input(*t) : Var<T>());
  const auto y = gated_recurrence(call.variant.op, x[0], x[1], x[2], x[3], x[4], x[5], options);
  GatedOutcome<T> outcome{y.o.value(), y.S.value(), {}};
  if (!d_o.defined() && !d_S.defined()) return outcome;
  tape.backward(std::vector<Var<T>>{y.o, y.S}, std::vector<Tensor<T>>{d_o, d_S});
  for (const Var<T>& v : x) outcome.gradients.push_back(v.defined() ? v.grad() : Tensor<T>());
  return outcome;
}

template <class T>
double distance(const GatedOutcome<T>& a, const GatedOutcome<T>& b) {
  double worst = std::max(distance(a.o, b.o), distance(a.S, b.S));
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    if (a.gradients[i].defined()) worst = std::max(worst, distance(a.gradients[i], b.gradients[i]));
  }
  return worst;
}

// The definition in scalars of S, one element of one input (in the order of GatedCall) moved by `step`: outputs,
// then the final state.
template <class S>
std::vector<S> witness(const GatedCall<double>& call, size_t which = 0, size_t element = 0, S step = S{0}) {
  std::vector<std::vector<S>> x;
  for (const Tensor<double>* t : call.tensors()) x.emplace_back(t->values().begin(), t->values().end());
  if (x[5].empty()) x[5].assign(call.state_shape().elements(), S{0});
  x[which][element] += step;
  std::vector<S> results(call.output_shape().elements());
  const reference::MixerSize size{call.q.size(0), call.q.size(1), call.q.size(2), call.q.size(3),
                                  call.v.size(3)};
  const auto given = [](const std::vector<S>& values) { return values.empty() ? nullptr : values.data(); };
  reference::gated_recurrence<S>(size, call.variant.steps, call.variant.gate == GateKind::kVector,
                                 x[0].data(), x[1].data(), x[2].data(), given(x[3]), given(x[4]), x[5].data(),
                                 results.data());
  results.insert(results.end(), x[5].begin(), x[5].end());
  return results;
}

// The same as tensors.
inline GatedOutcome<double> witness_outcome(const GatedCall<double>& call) {
  const std::vector<double> y = witness<double>(call);
  const size_t n = call.output_shape().elements();
  return {Tensor<double>(call.output_shape(), std::span(y).first(n)),
          Tensor<double>(call.state_shape(), std::span(y).subspan(n)),
          {}};
}

// The worst |gradient - witness| / max(1, |witness|) over at most `samples` elements of each input, by the complex
// step through the definition; infinite where a value is not finite or nothing was given.
template <class T>
double gradient_error(const GatedCall<T>& call, const GatedOutcome<T>& got, const Tensor<T>& d_o,
                      const Tensor<T>& d_S, size_t samples = 40) {
  const GatedCall<double> exact = cast_call<double>(call);
  double worst = got.gradients.empty() ? std::numeric_limits<double>::infinity() : 0;
  Random random(77);
  for (size_t which = 0; which < got.gradients.size(); ++which) {
    const Tensor<T>& gradient = got.gradients[which];
    for (size_t i = 0; i < gradient.size(); ++i) {
      if (!std::isfinite(gradient[i])) return std::numeric_limits<double>::infinity();
    }
    for (size_t i = 0; i < std::min(samples, gradient.size()); ++i) {
      const size_t element = gradient.size() <= samples ? i : random.below(gradient.size());
      const auto y = witness<std::complex<double>>(exact, which, element, {0, 1e-30});
      double want = 0;
      for (size_t j = 0; j < d_o.size(); ++j) want += static_cast<double>(d_o[j]) * y[j].imag() / 1e-30;
      const size_t states = exact.output_shape().elements();
      for (size_t j = 0; j < d_S.size(); ++j)
        want += static_cast<double>(d_S[j]) * y[states + j].imag() / 1e-30;
      worst = std::max(
          worst, std::abs(static_cast<double>(gradient[element]) - want) / std::max(1.0, std::abs(want)));
    }
  }
  return worst;
}

}  // namespace storytape::test
