// Golden cases of whole layers. A variant says how its layer is made of a case's attributes and shapes;
// weights, states, faces, cuts, decoding and what is compared are the same for all.
//
//   golden tensor          ours
//   x, y                   input and output
//   W_n, b_n               parameter "n.weight", "n.bias"; of W_o, b_o "out.weight", "out.bias"
//   conv_n, conv_n_b       parameter "n_conv.weight", "n_conv.bias"
//   n_w, n_b               parameter "n.weight", "n.bias" of a norm
//   s_init, s_final, s_mid the state s of Layer::state_tensors
//   another name           the parameter of that name
#pragma once

#include <memory>

#include "nn/layers/layer.h"
#include "train/verify_operations_run.h"

namespace storytape {

// What a list of parameters calls the tensor of a layer's golden case, by the table above.
std::string golden_parameter_name(const std::string& tensor);

// The layer of one case.
template <class T>
struct GoldenLayer {
  std::unique_ptr<Layer<T>> layer;
  size_t seen = 0;  // tokens before the first
  // A state as the file has it in the layer's order of axes, and back; empty where they are the same. Both
  // get the state's name.
  std::function<Var<T>(const std::string&, Var<T>)> from_file, to_file;
};

// Makes the layer in both types; its parameters begin with `name`.
struct GoldenLayerMaker {
  template <class T>
  using Make = std::function<GoldenLayer<T>(const GoldenRun<T>& r, ParameterList<T>& parameters,
                                            const std::string& name)>;
  Make<float> make32;
  Make<double> make64;
};

// The ways to compute a layer: whole by each face, in two pieces (at attribute `cut`, or in the middle) with
// their gradients, and decoded with a carried state, token by token from the cut on.
std::vector<GoldenFace> layer_faces(const GoldenLayerMaker& maker);
// From one generic callable: make(r, parameters, name) → GoldenLayer<T>.
template <class Make>
std::vector<GoldenFace> layer_faces(Make make) {
  return layer_faces(GoldenLayerMaker{make, make});
}

}  // namespace storytape
