#include "train/optimizer.h"

#include <cmath>

#include "tensor/elementwise.h"
#include "tensor/reduce.h"

namespace storytape {
namespace {

// Elements a task takes at a time: a few cache pages of each of p, m, v and the lanes' gradients.
constexpr size_t kPiece = 16384;
constexpr size_t kMaxLanes = 64;

}  // namespace

AdamWOptimizer::AdamWOptimizer(ParameterList<float>& parameters, const Recipe& recipe)
    : parameters_(parameters),
      recipe_(recipe),
      m_(parameters.elements()),
      v_(parameters.elements()),
      values_(parameters.size()) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const size_t size = parameters[i].size();
    for (size_t begin = 0; begin < size; begin += kPiece)
      pieces_.push_back({i, begin, std::min(kPiece, size - begin)});
  }
}

StepReport AdamWOptimizer::step(size_t step, std::span<float* const> lanes, ThreadPool& pool) {
  if (lanes.empty() || lanes.size() > kMaxLanes)
    fail("1 to {} lanes can be summed, got {}", kMaxLanes, lanes.size());
  StepReport report;
  report.learning_rate = learning_rate(recipe_, step);
  // (O1), and each piece's part of (O2)
  pool.parallel_for(pieces_.size(), [&](size_t i) {
    Piece& piece = pieces_[i];
    const size_t at = parameters_.offsets()[piece.parameter] + piece.begin;
    const float* blocks[kMaxLanes];
    for (size_t lane = 0; lane < lanes.size(); ++lane) blocks[lane] = lanes[lane] + at;
    tree_sum(lanes[0] + at, blocks, lanes.size(), piece.size);
    piece.squares = sum_of_squares(lanes[0] + at, piece.size);
  });
  double squares = 0;
  for (const Piece& piece : pieces_) {
    if (!std::isfinite(piece.squares)) {
      fail("step {}: the gradient of {} is not finite", step + 1, parameters_[piece.parameter].name());
    }
    squares += piece.squares;
  }
  // (O2)
  report.gradient_norm = std::sqrt(squares);
  const bool clips = recipe_.clip > 0 && report.gradient_norm > recipe_.clip;
  AdamW s;
  s.grad_scale = clips ? recipe_.clip / (report.gradient_norm + 1e-6) : 1.0;
  s.lr = report.learning_rate;
  s.beta1 = recipe_.beta1;
  s.beta2 = recipe_.beta2;
  s.eps = recipe_.eps;
  s.bias1 = 1 - std::pow(recipe_.beta1, static_cast<double>(step + 1));
  s.bias2 = 1 - std::pow(recipe_.beta2, static_cast<double>(step + 1));
  // Detached from their packed forms once, before the threads write.
  for (size_t i = 0; i < parameters_.size(); ++i) values_[i] = parameters_[i].mutable_value().data();
  pool.parallel_for(pieces_.size(), [&](size_t i) {
    const Piece& piece = pieces_[i];
    const size_t at = parameters_.offsets()[piece.parameter] + piece.begin;
    AdamW mine = s;
    mine.weight_decay = recipe_.decay_all || parameters_[piece.parameter].decays ? recipe_.weight_decay : 0;
    // (O3) to (O5)
    adamw(mine, values_[piece.parameter] + piece.begin, m_.data() + at, v_.data() + at, lanes[0] + at,
          piece.size);
  });
  return report;
}

}  // namespace storytape
