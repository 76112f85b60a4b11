// One training step's loss and gradient, data-parallel over lanes.
//
// The batch is cut into a fixed number of lanes, whatever the number of threads. A lane runs forward and
// backward for its sequences on one thread, on a tape of its own, one pass after another so that activations
// stay in that core's cache, and adds to a gradient block of its own. The blocks are summed by the optimizer
// as a fixed tree. So the same seed, data and settings give the same bits for any number of threads.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "models/hybrid_lm.h"
#include "tensor/threads.h"

namespace storytape {

// Lanes of a step; a smaller batch has as many lanes as sequences.
constexpr size_t kLanes = 8;
// Rows (tokens) of a pass: short sequences share one, so that products have enough rows.
constexpr size_t kPassRows = 256;

class LaneTrainer {
 public:
  LaneTrainer(HybridLM<float>& model, ThreadPool& pool) : model_(model), pool_(pool) {}

  // Mean cross-entropy of the batch in nats per target, and its gradient: tokens and targets [batch ×
  // length]. A loss that is not finite is an Error that names the first block or tensor that is not.
  double run(std::span<const int32_t> tokens, std::span<const int32_t> targets, size_t batch, size_t length);

  // The lanes' gradient blocks of the last run; their sum is the gradient.
  std::span<float* const> gradients() const { return blocks_; }

 private:
  struct Lane {
    Tape<float> tape;
    std::vector<float> gradient;
    double loss = 0;
  };

  void run_lane(Lane& lane, std::span<const int32_t> tokens, std::span<const int32_t> targets,
                size_t sequences, size_t length, float scale);

  HybridLM<float>& model_;
  ThreadPool& pool_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<float*> blocks_;
  bool warm_ = false;
};

}  // namespace storytape
