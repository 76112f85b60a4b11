// The parts of the layers, scalar by scalar: with the recurrences of nn/mixers/reference.h the witness that
// whole layers are held against. See autograd/reference.h for what complex numbers are for.
#pragma once

#include <complex>
#include <string>
#include <vector>

#include "autograd/reference.h"
#include "nn/layers/examples.h"

namespace storytape::reference {

using Complex = std::complex<double>;

inline Shape with_last(Shape shape, size_t size) {
  shape[shape.rank() - 1] = size;
  return shape;
}

// x W (+ b): "NAME.weight", "NAME.bias".
inline ComplexTensor projection(const LayerInputs& in, const std::string& name, const ComplexTensor& x) {
  const ComplexTensor& w = in[name + ".weight"];
  ComplexTensor y(with_last(x.shape, w.shape[1]));
  matmul(false, false, y.size() / w.shape[1], w.shape[1], w.shape[0], x.data(), w.data(), y.data());
  if (!in.has(name + ".bias")) return y;
  const ComplexTensor& b = in[name + ".bias"];
  for (size_t i = 0; i < y.size(); ++i) y[i] += b[i % b.size()];
  return y;
}

// silu of the causal convolution of x W, taps "NAME_conv.weight" [C, K]; its last K-1 inputs are added to
// `states`. Without taps silu(x W), or x W itself.
inline ComplexTensor convolved(const LayerInputs& in, const std::string& name, const ComplexTensor& x,
                               std::vector<ComplexTensor>& states, bool silu_alone = true) {
  const ComplexTensor z = projection(in, name, x);
  const auto activation = [](const Complex& v) { return silu(v); };
  if (!in.has(name + "_conv.weight")) return silu_alone ? map(z, activation) : z;
  const ComplexTensor& taps = in[name + "_conv.weight"];
  const size_t batch = z.shape[0], tokens = z.shape[1], channels = z.shape[2], width = taps.shape[1];
  const std::string state = "conv_" + name + " before";
  ComplexTensor rows({batch, tokens + width - 1, channels}), after({batch, width - 1, channels}), y(z.shape);
  for (size_t b = 0; b < batch; ++b) {
    for (size_t t = 0; t < tokens + width - 1; ++t) {
      for (size_t c = 0; c < channels; ++c) {
        Complex& row = rows[(b * (tokens + width - 1) + t) * channels + c];
        if (t + 1 >= width) {
          row = z[(b * tokens + t - (width - 1)) * channels + c];
        } else if (in.has(state)) {
          row = in[state][(b * (width - 1) + t) * channels + c];
        }
        if (t >= tokens) after[(b * (width - 1) + t - tokens) * channels + c] = row;
      }
    }
    for (size_t t = 0; t < tokens; ++t) {
      for (size_t c = 0; c < channels; ++c) {
        Complex sum = in.has(name + "_conv.bias") ? in[name + "_conv.bias"][c] : 0.0;
        for (size_t j = 0; j < width; ++j) {
          sum += taps[c * width + j] * rows[(b * (tokens + width - 1) + t + j) * channels + c];
        }
        y[(b * tokens + t) * channels + c] = silu(sum);
      }
    }
  }
  states.push_back(std::move(after));
  return y;
}

// Rows of `width` over √(Σ x² + 1e-6), times `factor`.
inline ComplexTensor unit_rows(const ComplexTensor& x, size_t width, double factor) {
  ComplexTensor y(x.shape);
  for (size_t i = 0; i < x.size(); i += width) {
    Complex squares = 1e-6;
    for (size_t c = 0; c < width; ++c) squares += square(x[i + c]);
    for (size_t c = 0; c < width; ++c) y[i + c] = factor * x[i + c] / std::sqrt(squares);
  }
  return y;
}

// [..., from·width] → [..., to·width]: block h is block floor(h from / to).
inline ComplexTensor repeated(const ComplexTensor& x, size_t from, size_t to, size_t width) {
  const size_t rows = x.size() / (from * width);
  ComplexTensor y(with_last(x.shape, to * width));
  for (size_t i = 0; i < rows * to * width; ++i) {
    const size_t row = i / (to * width), head = i / width % to;
    y[i] = x[(row * from + head * from / to) * width + i % width];
  }
  return y;
}

// exp(-exp(A_log) softplus(f + bias)), one A_log for every `channels` columns.
inline ComplexTensor decay(const ComplexTensor& f, const ComplexTensor& A_log, const ComplexTensor& bias,
                           size_t channels) {
  ComplexTensor alpha(f.shape);
  for (size_t i = 0; i < f.size(); ++i) {
    const size_t column = i % bias.size();
    alpha[i] = std::exp(-std::exp(A_log[column / channels]) * softplus(Complex(f[i] + bias[column])));
  }
  return alpha;
}

// RMS norm of rows as long as the weight.
inline ComplexTensor normed(const ComplexTensor& x, const ComplexTensor& weight, double eps) {
  ComplexTensor y(x.shape);
  for (size_t i = 0; i < x.size(); i += weight.size()) {
    rms_norm(x.data() + i, weight.data(), eps, y.data() + i, weight.size());
  }
  return y;
}

// x ⊙ f(g)
template <class F>
ComplexTensor gated(const ComplexTensor& x, const ComplexTensor& g, F f) {
  ComplexTensor y(x.shape);
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * f(g[i]);
  return y;
}

}  // namespace storytape::reference
