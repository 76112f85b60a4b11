#include "nn/layers/parts.h"

#include <cmath>

#include "autograd/ops.h"
#include "autograd/registry.h"
#include "nn/gates.h"
#include "nn/normalize.h"
#include "nn/short_convolution.h"

namespace storytape {

template <class T>
Var<T> repeat_heads(Var<T> x, size_t heads) {
  Shape shape = x.shape();
  if (shape.rank() < 2) fail("repeat_heads: x is {}, wanted [..., heads, size]", to_string(shape));
  const size_t from = shape.back(1), width = shape.back();
  if (from == heads) return x;
  if (from == 0 || heads % from != 0) fail("repeat_heads: {} heads are no multiple of {}", heads, from);
  const size_t times = heads / from, rows = shape.product(0, shape.rank() - 1);
  shape[shape.rank() - 2] = heads;
  Tensor<T> y(shape);
  T* to = y.data();
  const T* in = x.value().data();
  for (size_t row = 0; row < rows; ++row) {
    for (size_t s = 0; s < times; ++s) {
      std::copy_n(in + row * width, width, to + (row * times + s) * width);  // (Y1)
    }
  }
  return x.tape().record("repeat_heads", std::move(y), {x}, [=](const Grads<T>& grads) {
    const GradSlot<T> dx = x.grad_slot();
    const T* dy = grads.data();
    for (size_t row = 0; row < rows; ++row) {
      for (size_t c = 0; c < width; ++c) {
        T sum = 0;
        for (size_t s = 0; s < times; ++s) sum += dy[(row * times + s) * width + c];  // (Y2)
        T& d = dx.data[row * width + c];
        d = dx.fresh ? sum : d + sum;
      }
    }
  });
}

template <class T>
Var<T> split_heads(Var<T> x, size_t heads) {
  const Shape s = x.shape();
  return reshape(x, {s[0], s[1], heads, s[2] / heads});
}

template <class T>
Var<T> merge_heads(Var<T> x) {
  const Shape s = x.shape();
  return reshape(x, {s[0], s[1], s[2] * s[3]});
}

template <class T>
Projection<T>::Projection(ParameterList<T>& parameters, const std::string& name, size_t in, size_t out,
                          bool with_bias, const Init& init)
    : weight(&parameters.add(name + ".weight", {in, out}, init)),
      bias(with_bias ? &parameters.add(name + ".bias", {out}, Init::constant(0)) : nullptr) {}

template <class T>
ConvolvedProjection<T>::ConvolvedProjection(ParameterList<T>& parameters, const std::string& layer,
                                            const std::string& name, size_t in, size_t out,
                                            const ConvolutionConfig& config, bool with_bias, const Init& init)
    : name_(name), config_(config), projection_(parameters, layer + "." + name, in, out, with_bias, init) {
  if (config.width == 0) return;
  const std::string taps = layer + "." + name + "_conv";
  taps_ = &parameters.add(taps + ".weight", {out, config.width}, Init::uniform_fan(config.width));
  if (config.bias) bias_ = &parameters.add(taps + ".bias", {out}, Init::constant(0));
}

template <class T>
Var<T> ConvolvedProjection<T>::operator()(const Weights<T>& weights, Var<T> x, Carried<T>& states) const {
  const Var<T> z = projection_(weights, x);
  if (!taps_) return config_.silu_alone ? silu(z) : z;
  const auto result = short_convolution(z, weights(taps_), weights(bias_), states.next());
  states.after.push_back(result.state);
  return result.y;
}

template <class T>
void ConvolvedProjection<T>::add_state(size_t batch, std::vector<StateTensor>& states) const {
  if (taps_) states.push_back({"conv_" + name_, {batch, config_.width - 1, taps_->shape()[0]}});
}

template <class T>
Var<T> output_gate(Var<T> o, Var<T> g, OutputGate gate) {
  switch (gate) {
    case OutputGate::kNone:
      return o;
    case OutputGate::kSilu:
      return swish_gate(o, g);
    case OutputGate::kSigmoid:
      return mul(o, sigmoid(g));
  }
  return o;
}

template <class T>
Var<T> gated_head_norm(Var<T> o, Var<T> weight, Var<T> g, OutputGate gate, double eps) {
  return output_gate(merge_heads(rms_norm(o, weight, eps)), g, gate);
}

template <class T>
Var<T> unit_queries(Var<T> q) {
  return scale(l2_normalize(q), 1 / std::sqrt(static_cast<double>(q.shape().back())));
}

template <class T>
Var<T> unit_keys(Var<T> k) {
  return l2_normalize(k);
}

template <class T>
Var<T> write_strength(const Weights<T>& weights, const Projection<T>& b, Var<T> x, double factor) {
  const Var<T> beta = sigmoid(b(weights, x));
  return factor == 1 ? beta : scale(beta, factor);
}

void check_sizes(const char* layer, std::initializer_list<std::pair<const char*, size_t>> sizes) {
  for (const auto& [name, size] : sizes) {
    if (size == 0) fail("{}: {} is 0, wanted at least 1", layer, name);
  }
}

void check_head_groups(const char* layer, const char* heads_name, size_t heads, const char* fewer_name,
                       size_t fewer) {
  if (heads % fewer != 0) {
    fail("{}: {} = {} is no multiple of {} = {}", layer, heads_name, heads, fewer_name, fewer);
  }
}

void check_beta_scale(const char* layer, double beta_scale) {
  if (!(beta_scale > 0 && beta_scale <= 2)) {
    fail("{}: beta_scale is {}, wanted a number above 0 and up to 2", layer, beta_scale);
  }
}

void register_repeat_heads() {
  const auto example = [](std::string name, const Shape& shape, size_t heads) {
    return make_case(
        std::move(name), {{"x", example_normal(shape, 560)}}, {"y"},
        [heads](auto&, const auto& in) { return repeat_heads(in[0], heads); },
        [heads](const std::vector<ComplexTensor>& in) {
          const ComplexTensor& x = in[0];
          Shape to = x.shape;
          const size_t from = to.back(1), width = to.back();
          to[to.rank() - 2] = heads;
          ComplexTensor y(to);
          for (size_t i = 0; i < y.size(); ++i) {
            const size_t row = i / width;
            y[i] = x[(row / heads * from + row % heads * from / heads) * width + i % width];
          }
          return y;
        });
  };
  register_op("repeat_heads", [example] {
    return std::vector<GradCase>{example("2 for 6", {2, 3, 2, 5}, 6), example("1 for 3", {1, 2, 1, 3}, 3),
                                 example("numbers", {3, 1}, 12)};
  });
}

#define STORYTAPE_INSTANTIATE(T)                                               \
  template Var<T> repeat_heads(Var<T>, size_t);                                \
  template Var<T> split_heads(Var<T>, size_t);                                 \
  template Var<T> merge_heads(Var<T>);                                         \
  template struct Projection<T>;                                               \
  template class ConvolvedProjection<T>;                                       \
  template Var<T> output_gate(Var<T>, Var<T>, OutputGate);                     \
  template Var<T> gated_head_norm(Var<T>, Var<T>, Var<T>, OutputGate, double); \
  template Var<T> unit_queries(Var<T>);                                        \
  template Var<T> unit_keys(Var<T>);                                           \
  template Var<T> write_strength(const Weights<T>&, const Projection<T>&, Var<T>, double)
STORYTAPE_INSTANTIATE(float);
STORYTAPE_INSTANTIATE(double);
#undef STORYTAPE_INSTANTIATE

}  // namespace storytape
