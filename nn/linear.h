// Linear layers: y = x·W + b with W stored [in, out].
#pragma once

#include <string>

#include "autograd/tape.h"
#include "nn/parameters.h"

namespace storytape {

// y = x·W (+ b) (+ residual):  x [..., in], w [in, out], b [out] or undefined, residual [..., out] or
// undefined. One op: bias and residual ride on the product's write-back, W is packed once per change of a
// parameter.
template <class T>
Var<T> linear(Var<T> x, Var<T> w, Var<T> b = {}, Var<T> residual = {});

template <class T>
struct Linear {
  Linear(ParameterList<T>& parameters, const std::string& name, size_t in, size_t out, bool bias);

  Var<T> operator()(Tape<T>& tape, Var<T> x, Var<T> residual = {}) const {
    return linear(x, tape.parameter(*weight), bias ? tape.parameter(*bias) : Var<T>(), residual);
  }
  // Values alone, for decoding: x [rows, in] → [rows, out].
  Tensor<T> apply(const Tensor<T>& x, const Tensor<T>* residual = nullptr) const;

  Parameter<T>* weight;
  Parameter<T>* bias;  // null without
};

}  // namespace storytape
