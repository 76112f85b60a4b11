// A mixer as a layer of a model: projections around a core op, with the three ways to run it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "autograd/tape.h"
#include "nn/mixers/face.h"
#include "nn/mixers/state.h"
#include "nn/parameters.h"

namespace storytape {

template <class T>
class Mixer {
 public:
  virtual ~Mixer() = default;

  // The name that patterns use: "full", "linear".
  virtual std::string_view kind() const = 0;
  // x [B, T, D] → [B, T, D], plus `residual` [B, T, D] where given, from an empty state.
  virtual Var<T> forward(Tape<T>& tape, Var<T> x, Face face, Var<T> residual) const = 0;
  // What it carries before the first token.
  virtual State<T> init_state(size_t batch) const = 0;
  // The outputs (plus residual) of T ≥ 1 further tokens x [B, T, D]; the state moves on. Prefill and decoding
  // are one function: any cut of a sequence into calls gives what forward gives.
  virtual Tensor<T> extend(State<T>& state, const Tensor<T>& x, const Tensor<T>& residual) const = 0;
};

// What a mixer needs to know of its model.
struct MixerConfig {
  size_t dim;
  size_t heads;
  bool bias;
  double linear_eps;
};

// The mixer called `kind`, its parameters added under `name` ("blocks.0.mixer"). An Error for an unknown
// kind.
template <class T>
std::unique_ptr<Mixer<T>> make_mixer(std::string_view kind, const MixerConfig& config,
                                     ParameterList<T>& parameters, const std::string& name);

}  // namespace storytape
