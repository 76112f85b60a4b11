// AdamW (Loshchilov and Hutter 2019) over all parameters of a model, with the sum of lane gradients and
// global-norm clipping before it. Work is cut into fixed pieces and every sum has a fixed order, so the
// result does not depend on the number of threads.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "nn/parameters.h"
#include "tensor/threads.h"
#include "train/recipe.h"

namespace storytape {

// What one step did.
struct StepReport {
  double gradient_norm = 0;  // before clipping
  double learning_rate = 0;
};

class AdamWOptimizer {
 public:
  // Moments start at 0.
  AdamWOptimizer(ParameterList<float>& parameters, const Recipe& recipe);

  // One step, counted from 0:
  //   (O1) g = Σ lanes, as a fixed tree    (O2) n = ‖g‖₂; if n > clip: g *= clip / (n + 1e-6)
  //   (O3) p *= 1 − lr·decay               (O4) m = β1·m + (1−β1)·g,  v = β2·v + (1−β2)·g²
  //   (O5) p −= lr · (m / (1−β1^(step+1))) / (sqrt(v / (1−β2^(step+1))) + eps)
  // `lanes` are flat blocks of parameters.elements() values; block 0 is overwritten with the sum. A gradient
  // that is not finite is an Error that names its parameter and the step, and nothing is changed.
  StepReport step(size_t step, std::span<float* const> lanes, ThreadPool& pool);

  // First and second moments, flat, as the parameters lie in their list.
  std::vector<float>& m() { return m_; }
  std::vector<float>& v() { return v_; }

 private:
  struct Piece {
    size_t parameter, begin, size;  // elements [begin, begin + size) of the parameter
    double squares = 0;
  };

  ParameterList<float>& parameters_;
  Recipe recipe_;
  std::vector<Piece> pieces_;
  std::vector<float> m_, v_;
  std::vector<float*> values_;  // of each parameter, during a step
};

}  // namespace storytape
