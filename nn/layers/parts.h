// What the published layers share: projections with a short convolution, keys of length 1, heads that several
// others read, and the norm and gate behind the core.
//
// Weights start as PyTorch's layers do, and with them flash-linear-attention's outside a model: U(±1/√fan_in)
// for matrices, U(±1/√K) for convolutions, 0 for biases, 1 for norms. Inside their models the public codes
// draw matrices and convolutions from N(0, 0.02), which suits widths of thousands: at a width of 128 a
// convolution of such taps takes the values down by a factor of 25, and training from scratch has first to
// undo it.
#pragma once

#include <string>
#include <vector>

#include "nn/layers/layer.h"
#include "nn/linear.h"

namespace storytape {

// y_h = x_{h / r}, r = heads / H: every head r times in a row, so that head h of `heads` reads head floor(h H
// / heads).
//   (Y1) y_{g r + s} = x_g          s < r
//   (Y2) dx_g = Σ_s dy_{g r + s}
// x [..., H, d] → [..., heads, d]; x itself where H is `heads`. An Error if H doesn't divide `heads`.
template <class T>
Var<T> repeat_heads(Var<T> x, size_t heads);

// Heads are contiguous blocks of columns: [B, T, H d] as [B, T, H, d], and back.
template <class T>
Var<T> split_heads(Var<T> x, size_t heads);
template <class T>
Var<T> merge_heads(Var<T> x);

// x W (+ b): "NAME.weight" [in, out] and, if wanted, "NAME.bias" [out].
template <class T>
struct Projection {
  Projection() = default;
  Projection(ParameterList<T>& parameters, const std::string& name, size_t in, size_t out,
             bool with_bias = false)
      : Projection(parameters, name, in, out, with_bias, Init::uniform_fan(in)) {}
  Projection(ParameterList<T>& parameters, const std::string& name, size_t in, size_t out, bool with_bias,
             const Init& init);

  Var<T> operator()(const Weights<T>& weights, Var<T> x) const {
    return linear(x, weights(weight), weights(bias));
  }

  Parameter<T>* weight = nullptr;  // null: the layer doesn't have it
  Parameter<T>* bias = nullptr;
};

// The states of one pass: those before, in the order of state_tensors, and those after.
template <class T>
class Carried {
 public:
  explicit Carried(std::span<const Var<T>> before) : before_(before) {}
  // The next state to be read: that many are written.
  Var<T> next() const { return after.size() < before_.size() ? before_[after.size()] : Var<T>(); }

  std::vector<Var<T>> after;

 private:
  std::span<const Var<T>> before_;
};

struct ConvolutionConfig {
  size_t width = 4;  // K; 0: none
  bool bias = false;
  bool silu_alone = true;  // without a convolution: the SiLU stays
};

// silu(conv(x W (+ b))): "NAME.weight", "NAME_conv.weight" [C, K], "NAME_conv.bias" [C]; carries "conv_NAME"
// [B, K-1, C], the last inputs of the convolution.
template <class T>
class ConvolvedProjection {
 public:
  // `layer` is the name that parameters begin with, `name` this projection's.
  ConvolvedProjection(ParameterList<T>& parameters, const std::string& layer, const std::string& name,
                      size_t in, size_t out, const ConvolutionConfig& config, bool with_bias = false)
      : ConvolvedProjection(parameters, layer, name, in, out, config, with_bias, Init::uniform_fan(in)) {}
  ConvolvedProjection(ParameterList<T>& parameters, const std::string& layer, const std::string& name,
                      size_t in, size_t out, const ConvolutionConfig& config, bool with_bias,
                      const Init& init);

  // x [B, T, D] → [B, T, C]
  Var<T> operator()(const Weights<T>& weights, Var<T> x, Carried<T>& states) const;
  void add_state(size_t batch, std::vector<StateTensor>& states) const;

 private:
  std::string name_;
  ConvolutionConfig config_;
  Projection<T> projection_;
  Parameter<T>* taps_ = nullptr;
  Parameter<T>* bias_ = nullptr;
};

enum class OutputGate { kNone, kSilu, kSigmoid };

// o act(g); g is not looked at for kNone. Both of one shape.
template <class T>
Var<T> output_gate(Var<T> o, Var<T> g, OutputGate gate);

// RMS norm of each head's row, o [B, T, H, d], by one weight [d] for all heads, and then the gate g [B, T, H
// d] → [B, T, H d].
template <class T>
Var<T> gated_head_norm(Var<T> o, Var<T> weight, Var<T> g, OutputGate gate, double eps);

// Queries and keys of length 1 (ε = 1e-6 under the root); the queries times dk^-1/2. [B, T, H, dk]
template <class T>
Var<T> unit_queries(Var<T> q);
template <class T>
Var<T> unit_keys(Var<T> k);

// `factor` sigmoid(x W): the strength of a delta write, one per head, [B, T, H]. Factor 2 allows negative
// eigenvalues.
template <class T>
Var<T> write_strength(const Weights<T>& weights, const Projection<T>& b, Var<T> x, double factor);

// An Error unless every size is at least 1; sizes by name, such as {"heads", 4}.
void check_sizes(const char* layer, std::initializer_list<std::pair<const char*, size_t>> sizes);
// An Error unless `fewer` divides `heads`.
void check_head_groups(const char* layer, const char* heads_name, size_t heads, const char* fewer_name,
                       size_t fewer);
// An Error unless 0 < beta_scale ≤ 2.
void check_beta_scale(const char* layer, double beta_scale);

// Adds the examples of repeat_heads to the list that gradients are proven by.
void register_repeat_heads();

}  // namespace storytape
