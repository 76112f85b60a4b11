// The list of differentiable ops with the examples that prove them: `storytape gradcheck`, the tests and the
// benchmarks all walk it. What has no examples can't be registered.
//
// Registration is explicit: register_basic_ops() (autograd/ops.h) here, register_mixers() in nn/; who wants
// the list calls them first. An op's examples look like this:
//
//   std::vector<GradCase> cube_examples() {
//     return {make_case("odd size", {{"x", example_normal({3, 5}, 1)}}, {"y"},
//                       [](auto&, const auto& in) { return cube(in[0]); },
//                       [](const std::vector<ComplexTensor>& in) { return map(in[0], [](auto x) { return x *
//                       x * x; }); })};
//   }
//   register_op("cube", cube_examples);
#pragma once

#include <complex>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "autograd/tape.h"

namespace storytape {

// What the scalar references compute on: S is double or std::complex<double>.
template <class S>
struct ScalarTensor {
  Shape shape;
  std::vector<S> values;  // row-major

  ScalarTensor() = default;
  explicit ScalarTensor(const Shape& sizes) : shape(sizes), values(sizes.elements()) {}
  size_t size() const { return values.size(); }
  S& operator[](size_t i) { return values[i]; }
  const S& operator[](size_t i) const { return values[i]; }
  S* data() { return values.data(); }
  const S* data() const { return values.data(); }
};
using ComplexTensor = ScalarTensor<std::complex<double>>;

// f applied to every element.
template <class S, class F>
ScalarTensor<S> map(const ScalarTensor<S>& x, F&& f) {
  ScalarTensor<S> y(x.shape);
  for (size_t i = 0; i < x.size(); ++i) y[i] = f(x[i]);
  return y;
}

struct NamedInput {
  std::string name;
  Tensor<double> value;  // representable in float, so that float and double see the same point
  bool differentiable = true;
  // The op's domain, if it has bounds: differences taken near one look to the other side only.
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

template <class T>
using OpFunction = std::function<std::vector<Var<T>>(Tape<T>&, const std::vector<Var<T>>&)>;
using OpReference = std::function<std::vector<ComplexTensor>(const std::vector<ComplexTensor>&)>;

// One op at one point.
struct GradCase {
  std::string op;       // set by register_op
  std::string example;  // what is special about this one: "width 1", "two chunks and a token"
  std::string face;     // for mixers: "recurrent", "parallel", "chunkwise"; else empty
  std::vector<NamedInput> inputs;
  std::vector<std::string> outputs;  // names, as many as run64 and run32 return
  OpFunction<double> run64;
  OpFunction<float> run32;
  OpReference
      reference;  // the definition, scalar by scalar; analytic, so that the complex step may differentiate it

  // Elements of each input that are perturbed one by one: 0 for all of them, else a random choice of so many,
  // and the whole input along random directions beside it.
  size_t samples = 0;
  // Allowed difference of float and double, in units of float rounding (2^-24), relative to the largest
  // element.
  double float_multiple = 64;
  // A tensor whose largest element is below this is compared absolutely, as if that element were this size.
  // The default lets rounding pass where a gradient vanishes identically; smaller where tiny gradients are
  // the point.
  double floor = 1e-6;
  // The same for float against double, where larger: for what a float kernel promises absolutely.
  double float_floor = 0;

  std::string name() const { return op + (face.empty() ? "" : "." + face) + " (" + example + ")"; }
};

namespace internal {
template <class R>
std::vector<R> as_vector(R one) {
  std::vector<R> result;
  result.push_back(std::move(one));
  return result;
}
template <class R>
std::vector<R> as_vector(std::vector<R> all) {
  return all;
}
}  // namespace internal

// A case from one generic callable for both types: op(Tape<T>& tape, const std::vector<Var<T>>& in) gives a
// Var<T> or a std::vector<Var<T>>, reference(const std::vector<ComplexTensor>& in) a ComplexTensor or a
// std::vector of them.
template <class Op, class Reference>
GradCase make_case(std::string example, std::vector<NamedInput> inputs, std::vector<std::string> outputs,
                   Op op, Reference reference) {
  GradCase c;
  c.example = std::move(example);
  c.inputs = std::move(inputs);
  c.outputs = std::move(outputs);
  c.run64 = [op](Tape<double>& tape, const std::vector<Var<double>>& in) {
    return internal::as_vector(op(tape, in));
  };
  c.run32 = [op](Tape<float>& tape, const std::vector<Var<float>>& in) {
    return internal::as_vector(op(tape, in));
  };
  c.reference = [reference](const std::vector<ComplexTensor>& in) {
    return internal::as_vector(reference(in));
  };
  return c;
}

// Random values that float represents exactly, the same on every machine for the same seed.
Tensor<double> example_normal(const Shape& shape, uint64_t seed, double mean = 0, double deviation = 1);
Tensor<double> example_uniform(const Shape& shape, uint64_t seed, double low, double high);
// Each value rounded to float.
Tensor<double> example_values(const Shape& shape, const std::vector<double>& values);

// Adds an op. An Error if `examples` gives none, if one is incomplete (no differentiable input, no output,
// nothing to run), or if the name is taken.
void register_op(const std::string& name, const std::function<std::vector<GradCase>()>& examples);

// Names in order of registration.
std::vector<std::string> registered_ops();

// The cases whose op is called `pattern`; if there is no such op, those whose name() contains it or, where it
// has * or
// ?, matches it as a wildcard. Empty: all. A UsageError if nothing fits.
std::vector<GradCase> gradient_cases(std::string_view pattern = "");

}  // namespace storytape
