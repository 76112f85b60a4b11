#include "train/lanes.h"

#include <algorithm>
#include <cmath>

namespace storytape {

double LaneTrainer::run(std::span<const int32_t> tokens, std::span<const int32_t> targets, size_t batch,
                        size_t length) {
  if (batch == 0 || length == 0 || tokens.size() != batch * length || targets.size() != tokens.size()) {
    fail("a step of {} × {} tokens got {} tokens and {} targets", batch, length, tokens.size(),
         targets.size());
  }
  const size_t lanes = std::min(kLanes, batch);
  if (lanes_.size() != lanes) {
    lanes_.clear();
    blocks_.clear();
    for (size_t i = 0; i < lanes; ++i) {
      Lane& lane = *lanes_.emplace_back(std::make_unique<Lane>());
      lane.gradient.resize(model_.parameters().elements());
      lane.tape.set_sink({lane.gradient.data(), model_.parameters().offsets()});
      blocks_.push_back(lane.gradient.data());
    }
    warm_ = false;
  }
  model_.prepare([&](size_t n, const auto& f) { pool_.parallel_for(n, f); });

  const auto scale = static_cast<float>(1 / static_cast<double>(batch * length));
  const auto one = [&](size_t i) {
    // Lane i takes sequences [i·batch/lanes, (i+1)·batch/lanes).
    const size_t first = i * batch / lanes;
    const size_t last = (i + 1) * batch / lanes;
    run_lane(*lanes_[i], tokens.subspan(first * length, (last - first) * length),
             targets.subspan(first * length, (last - first) * length), last - first, length, scale);
  };
  // The first step shares the lanes out evenly, so that every thread's buffer pool holds what a lane needs;
  // later ones go to whichever thread is free.
  if (warm_) {
    pool_.parallel_for(lanes, one);
  } else {
    pool_.parallel_for_static(lanes, one);
    warm_ = true;
  }
  double loss = 0;
  for (const auto& lane : lanes_) loss += lane->loss;
  return loss;
}

void LaneTrainer::run_lane(Lane& lane, std::span<const int32_t> tokens, std::span<const int32_t> targets,
                           size_t sequences, size_t length, float scale) {
  std::fill(lane.gradient.begin(), lane.gradient.end(), 0.0f);
  lane.loss = 0;
  const size_t pass = std::max<size_t>(1, kPassRows / length);
  for (size_t i = 0; i < sequences; i += pass) {
    const size_t n = std::min(pass, sequences - i);
    lane.tape.reset();
    const Var<float> loss = model_.loss(lane.tape, tokens.subspan(i * length, n * length),
                                        targets.subspan(i * length, n * length), n, length, scale);
    const double value = static_cast<double>(loss.value().item());
    if (!std::isfinite(value)) fail("the loss is not finite; first in {}", lane.tape.first_non_finite());
    lane.loss += value;
    lane.tape.backward(loss);
  }
  lane.tape.reset();
}

}  // namespace storytape
