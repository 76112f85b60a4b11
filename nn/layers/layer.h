// A sequence layer as published: projections, short convolution, gates, norms and output gate around a core
// of nn/mixers/. A layer writes one function, apply; forward, decoding, prefill and the gradients of carried
// states are that function.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "nn/mixers/mixer.h"

namespace storytape {

// A layer's parameters on a tape: the model's own, or variables that stand for them, which is how the layer's
// gradient by each parameter is proven.
template <class T>
class Weights {
 public:
  // Implicit, so that a tape may be given where a layer wants its weights.
  Weights(Tape<T>& tape) : tape_(&tape) {}  // NOLINT(google-explicit-constructor)
  // values[i] stands for the parameter whose index is i. REQUIRES: values outlives this, and holds all
  // parameters of the list that the layer's are in.
  Weights(Tape<T>& tape, std::span<const Var<T>> values) : tape_(&tape), values_(values) {}

  Tape<T>& tape() const { return *tape_; }
  // Undefined for null: a bias or a gate that the layer doesn't have.
  Var<T> operator()(Parameter<T>* parameter) const {
    if (!parameter) return {};
    return values_.empty() ? tape_->parameter(*parameter) : values_[parameter->index];
  }

 private:
  Tape<T>* tape_;
  std::span<const Var<T>> values_;
};

// One tensor of what a layer carries from token to token.
struct StateTensor {
  std::string name;
  Shape shape;       // the batch first
  double start = 0;  // its value before the first token
};

template <class T>
struct Pass {
  Var<T> y;                    // [B, T, D]
  std::vector<Var<T>> states;  // after the last token, as state_tensors lists them
};

template <class T>
class Layer : public Mixer<T> {
 public:
  // x [B, T, D], T ≥ 1. `states`, as state_tensors lists them, from the `seen` tokens before; empty, or
  // undefined one by one: nothing seen. Differentiable by the weights, x and the states, from y and the
  // states after.
  virtual Pass<T> apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states, size_t seen,
                        Face face) const = 0;
  // What it carries, for `batch` sequences. Where a state grows with the tokens seen: before the first of
  // them.
  virtual std::vector<StateTensor> state_tensors(size_t batch) const = 0;

  Var<T> forward(Tape<T>& tape, Var<T> x, Face face, Var<T> residual) const override;
  State<T> init_state(size_t batch) const override;
  // `residual` may be undefined. An Error leaves the state as it was.
  Tensor<T> extend(State<T>& state, const Tensor<T>& x, const Tensor<T>& residual) const override;

 protected:
  // states[i], or undefined where nothing was seen.
  static Var<T> state_or_none(std::span<const Var<T>> states, size_t i) {
    return i < states.size() ? states[i] : Var<T>();
  }
};

}  // namespace storytape
