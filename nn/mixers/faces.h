// The face law: every face of a mixer is the same function. All of them take an initial state and return the
// final one; outputs, final states and gradients to every input agree with each other and with the reference
// recurrence; and a sequence cut into pieces anywhere, the state handed on, gives what it gives in one piece.
//
// `storytape faces` and the tests walk the variants registered here.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/registry.h"
#include "nn/mixers/face.h"

namespace storytape {

// An input of a mixer's core op, drawn at random for a number of tokens.
struct FaceInput {
  std::string name;
  std::function<Tensor<double>(size_t tokens, uint64_t seed)> draw;
  bool per_token =
      true;  // axis 1 counts tokens, and is cut with the sequence; else it serves all pieces whole
};

template <class T>
struct FaceResult {
  std::vector<Var<T>> outputs;  // axis 1 counts tokens
  std::vector<Var<T>> states;   // after the last token
};

// A core op with every gate and option set, as the checks run it.
struct FaceVariant {
  std::string name;  // as patterns call it: "linear"
  std::vector<Face> faces = {Face::kRecurrent, Face::kParallel, Face::kChunkwise};
  std::vector<FaceInput> inputs;
  std::vector<FaceInput> states;  // initial ones; `tokens` is without meaning
  std::vector<std::string> outputs;

  // states is empty for a sequence from the start, else as long as `states`. chunk is for the chunkwise face.
  template <class T>
  using Run = std::function<FaceResult<T>(Face face, size_t chunk, const std::vector<Var<T>>& inputs,
                                          const std::vector<Var<T>>& states)>;
  Run<double> run64;
  Run<float> run32;
  // Outputs, then final states, by the definition; analytic as in autograd/reference.h.
  std::function<std::vector<ComplexTensor>(const std::vector<ComplexTensor>& inputs,
                                           const std::vector<ComplexTensor>& states)>
      reference;

  // Allowed difference of the float faces from double, in units of 2^-24, relative to each tensor's largest
  // element.
  double float_multiple = 256;
};

// An Error if something is missing or the name is taken.
void register_faces(FaceVariant variant);
std::vector<std::string> face_variants();

// The verdict on one face of one variant in one type: the worst relative error (max|a-b| / max|b| over a
// tensor) of outputs, final states and gradients, whole and cut.
struct FaceRow {
  std::string variant;
  std::string face;
  std::string dtype;  // "float64" or "float32"
  double worst_output = 0;
  double worst_state = 0;
  double worst_gradient = 0;
  bool ok = true;
  std::string why = {};  // what failed first, and where; empty if ok
};

struct FaceCheckOptions {
  uint64_t seed = 1;
  bool extended = false;        // 1000 tokens beside the usual 1 to 200
  double double_bound = 1e-11;  // for float64, every error
};

// All faces of the variants whose name is, contains, or with * and ? matches `pattern` (empty: all), over
// lengths around the chunk's, chunks from 1 to twice the length, with and without an initial state, whole and
// cut at random places. A UsageError if nothing fits.
std::vector<FaceRow> check_faces(std::string_view pattern = "", const FaceCheckOptions& options = {});

}  // namespace storytape
