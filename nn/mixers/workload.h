// The core ops of all mixers under one signature, for benchmarks and the cost experiment: random inputs of a size, one
// call, the work that counts.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/tape.h"
#include "nn/mixers/face.h"
#include "nn/mixers/state.h"

namespace storytape {

struct WorkloadSize {
  size_t batch = 1;
  size_t tokens = 1;
  size_t heads = 4;
  size_t dim = 64;   // dk = dv of a head; a mixer without heads has heads·dim channels
  size_t chunk = 0;  // of the chunkwise face; 0: the mixer's default
};

// One mixer with its inputs drawn.
class Workload {
 public:
  virtual ~Workload() = default;
  // The op on a tape, all inputs wanting a gradient: o [B, T, ...].
  virtual Var<float> run(Tape<float>& tape, Face face) const = 0;
  // A state after `history` tokens whose values don't matter but whose size does, and one step from it: the token at
  // which the inputs start, without gradients.
  virtual State<float> state_after(size_t history) const = 0;
  virtual void step(State<float>& state) const = 0;
};

struct WorkloadKind {
  std::string name;  // "gated_delta_rule"
  std::vector<Face> faces;
  bool quadratic;  // time per token grows with the context
  // FLOP per token of forward and backward that count as the mixer's own work; 0 where products aren't what it does.
  // Softmax: 6·T·d per head, the causal half. Matrix states: 12·dk·dv per head for an additive write, 18·dk·dv for each
  // write of the delta rule.
  std::function<double(const WorkloadSize&)> flops_per_token;
  std::function<std::unique_ptr<Workload>(const WorkloadSize&, uint64_t seed)> make;
};

// All mixers, in the order of nn/mixers/README.md.
const std::vector<WorkloadKind>& workload_kinds();

}  // namespace storytape
