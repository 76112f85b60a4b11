// A language model over any pattern of layers: the course's HybridTransformerLM, with "full" alone its TransformerLM,
// and with the modern block and published layers the hybrids of today. Parameters in order: tok, pos (learned positions
// alone), per block [norm1, mixer, norm2, mlp], norm, head weight (untied alone), head bias.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "autograd/tape.h"
#include "models/config.h"
#include "nn/linear.h"
#include "nn/mixers/mixer.h"
#include "nn/parameters.h"

namespace storytape {

// What a model carries from token to token: one state per block. Copy it to branch or to go back.
template <class T>
struct LMState {
  std::vector<State<T>> blocks;
  size_t batch = 1;
  size_t length = 0;  // tokens seen

  size_t bytes() const {
    size_t sum = 0;
    for (const State<T>& state : blocks) sum += state.bytes();
    return sum;
  }
};

template <class T>
class HybridLM {
 public:
  // An Error if the configuration is out of range. Weights from `seed`: matrices and tables
  // uniform(±1/sqrt(fan_in)), tables ±1/sqrt(D); biases 0; norms gamma 1, beta 0; gamma_logit 4.6.
  HybridLM(const ModelConfig& config, uint64_t seed);

  const ModelConfig& config() const { return config_; }
  ParameterList<T>& parameters() { return parameters_; }
  const ParameterList<T>& parameters() const { return parameters_; }
  const Mixer<T>& mixer(size_t block) const { return *blocks_[block].mixer; }

  // scale · Σ of the cross-entropies of all targets: tokens and targets [batch·length] → [1]. With scale =
  // 1/(number of targets in the step) the losses and gradients of its parts add up to the step's mean.
  Var<T> loss(Tape<T>& tape, std::span<const int32_t> tokens, std::span<const int32_t> targets, size_t batch,
              size_t length, T scale, Face face = Face::kChunkwise) const;
  // [batch, length, vocab]; for tests and small models.
  Var<T> logits(Tape<T>& tape, std::span<const int32_t> tokens, size_t batch, size_t length,
                Face face = Face::kChunkwise) const;
  // Cross-entropy of each target in nats, without gradients.
  std::vector<double> token_losses(Tape<T>& tape, std::span<const int32_t> tokens,
                                   std::span<const int32_t> targets, size_t batch, size_t length) const;

  LMState<T> init_state(size_t batch = 1) const;
  // Feeds length ≥ 1 tokens per sequence, tokens [batch·length]; returns the logits after the last: [batch,
  // vocab]. An Error if the position table would be exceeded.
  Tensor<T> extend(LMState<T>& state, std::span<const int32_t> tokens) const;

  // Packs the weights for the kernels, on as many threads as `parallel_for(n, f)` gives; done on first use
  // otherwise.
  template <class ParallelFor>
  void prepare(ParallelFor&& parallel_for) const {
    parallel_for(packed_.size(), [&](size_t i) {
      packed_[i]->packed(Trans::kNo);
      packed_[i]->packed(Trans::kYes);
    });
  }

 private:
  struct Norm {
    Parameter<T>* gamma;
    Parameter<T>* beta;  // null: an RMS norm
  };
  struct Block {
    Norm norm1, norm2;
    std::unique_ptr<Mixer<T>> mixer;
    // The course's MLP: fc1, fc2. The modern one: gate, up, down = fc2.
    std::unique_ptr<Linear<T>> fc1, fc2, up;
    bool norm_output;
  };

  Norm add_norm(const std::string& name);
  Block add_block(size_t index);
  Var<T> normed(Tape<T>& tape, const Norm& norm, Var<T> x) const;
  Tensor<T> normed(const Norm& norm, const Tensor<T>& x) const;
  Var<T> mlp(Tape<T>& tape, const Block& block, Var<T> x, Var<T> residual) const;
  Tensor<T> mlp(const Block& block, const Tensor<T>& x, const Tensor<T>* residual) const;
  // The residual stream after the last norm, [batch, length, D].
  Var<T> hidden(Tape<T>& tape, std::span<const int32_t> tokens, size_t batch, size_t length, Face face) const;

  ModelConfig config_;
  mutable ParameterList<T> parameters_;  // a tape's variables refer to them and add to their gradients
  Parameter<T>* tokens_;
  Parameter<T>* positions_ = nullptr;  // null without a table
  Parameter<T>* head_ = nullptr;       // [V, D], the tokens' table where tied
  std::vector<Block> blocks_;
  Norm norm_;
  Parameter<T>* head_bias_ = nullptr;
  std::vector<const Parameter<T>*> packed_;
};

extern template class HybridLM<float>;
extern template class HybridLM<double>;

}  // namespace storytape
