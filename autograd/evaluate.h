// Running one op once for the gradient checker: in memory full of NaN, with everything it returns copied out.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "autograd/registry.h"

namespace storytape::internal {

// Leaves NaN in the next `copies` pooled buffers of each size up to beyond `bytes`, so that an element that
// an op forgets to write shows.
template <class T>
void poison_pool(size_t bytes, size_t copies) {
  std::vector<Tensor<T>> held;
  for (double size = 64; size < 2.0 * static_cast<double>(bytes) + 512; size *= 1.18) {
    const Shape shape = {static_cast<size_t>(size) / sizeof(T)};
    for (size_t i = 0; i < copies; ++i) held.emplace_back(shape, std::numeric_limits<T>::quiet_NaN());
  }
}

template <class T>
bool same_bits(const Tensor<T>& a, const Tensor<T>& b) {
  return a.shape() == b.shape() && (a.size() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

template <class T>
struct Request {
  std::vector<Tensor<T>> inputs;
  std::vector<bool> wanted;           // which inputs want a gradient
  std::vector<Tensor<T>> cotangents;  // of the outputs; undefined: the loss doesn't depend on it
  std::vector<Tensor<T>> before;  // gradients that the inputs have before the op's backward runs; empty: none
  // Input `second` is the same variable as input `first`.
  size_t first = 0, second = 0;
};

template <class T>
struct Evaluation {
  std::vector<Tensor<T>> outputs;
  std::vector<Tensor<T>> grads;  // undefined where not wanted or where no path led
};

// An Error if the op returns another number of outputs than its case names, or changes an input.
template <class T>
Evaluation<T> evaluate(const GradCase& c, const OpFunction<T>& run, const Request<T>& request) {
  size_t bytes = 0;
  std::vector<Tensor<T>> copies;
  for (const Tensor<T>& x : request.inputs) {
    bytes = std::max(bytes, x.bytes());
    copies.push_back(x.clone());
  }
  for (const Tensor<T>& dy : request.cotangents) bytes = std::max(bytes, dy.bytes());
  poison_pool<T>(bytes, 4 + 2 * (c.inputs.size() + c.outputs.size()));

  Tape<T> tape;
  std::vector<Var<T>> vars;
  bool any = false;
  for (size_t i = 0; i < copies.size(); ++i) {
    vars.push_back(request.wanted[i] ? tape.input(copies[i]) : tape.constant(copies[i]));
    any = any || request.wanted[i];
  }
  if (request.first != request.second) vars[request.second] = vars[request.first];

  std::vector<Var<T>> outputs = run(tape, vars);
  if (outputs.size() != c.outputs.size()) {
    fail("returns {} outputs, its case names {}", outputs.size(), c.outputs.size());
  }
  Evaluation<T> result;
  for (const Var<T>& y : outputs) result.outputs.push_back(y.value().clone());

  if (any && !request.cotangents.empty()) {
    std::vector<Tensor<T>> cotangents = request.cotangents;
    bool reached = false;
    for (size_t j = 0; j < outputs.size(); ++j) {
      reached = reached || (cotangents[j].defined() && outputs[j].requires_grad());
    }
    for (size_t i = 0; i < request.before.size(); ++i) {
      if (!request.wanted[i]) continue;
      // Recorded after the op, so walked before it.
      outputs.push_back(
          tape.record("before", Tensor<T>({1}, T{0}), {vars[i]},
                      [x = vars[i], d = request.before[i]](const Grads<T>&) { x.accumulate(d.clone()); }));
      cotangents.emplace_back(Shape{1}, T{1});
      reached = true;
    }
    if (reached) tape.backward(outputs, cotangents);
  }
  for (size_t i = 0; i < copies.size(); ++i) {
    result.grads.push_back(vars[i].requires_grad() ? vars[i].grad().clone() : Tensor<T>());
    if (!same_bits(request.inputs[i], copies[i])) fail("changes its input {}", c.inputs[i].name);
  }
  return result;
}

}  // namespace storytape::internal
