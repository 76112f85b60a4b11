// The layers of RWKV-4: time mix, channel mix, and the block of both. Peng et al., "RWKV: Reinventing RNNs for the
// Transformer Era", 2023, equations 11 to 18 and appendix.
//
//   shift(x; μ)_t = μ ⊙ x_t + (1 - μ) ⊙ x_{t-1}                                              nn/token_shift.h
//   time mix
//   (RW1)  r = shift(x; μ_r) W_r,   k = shift(x; μ_k) W_k,   v = shift(x; μ_v) W_v           A channels each
//   (RW2)  y = (σ(r) ⊙ wkv(exp(time_decay), u, k, v)) W_o                                    nn/mixers/wkv.h
//   channel mix
//   (RW3)  y = σ(shift(x; μ_r) W_r) ⊙ (max(shift(x; μ_k) W_k, 0)² W_v)                       F hidden channels
//   block
//   (RW4)  h = LN0(x) in a model's first block, else x
//   (RW5)  h ← h + timemix(LN1(h)),   y = h + channelmix(LN2(h))
//
// How they start depends on the layer's place l of L: decays from steps of one token to hundreds, spread over the
// channels, more of them long with depth; shifts that look back less with depth; matrices orthogonal, longer by √(out /
// in) where out > in. u is log 0.3 plus -1/2, 0 or 1/2 by turns, as the authors' code has it; transformers means the
// same and makes all of them 1 by a slip. Of one layer alone, which the formulas would divide by L - 1 = 0, l / (L - 1)
// is 0. Left out: the authors' zeros in W_r, W_k and W_o (transformers starts them orthogonal), their decrease of the
// first blocks' updates, and the rescaling of late layers for half precision.
#pragma once

#include "nn/layers/parts.h"

namespace storytape {

// Where a layer stands in its model.
struct LayerPlace {
  size_t layer = 0;
  size_t layers = 1;  // above `layer`
};

struct TimeMixConfig {
  size_t dim;                // D
  size_t attention_dim = 0;  // A; 0: D
  LayerPlace place = {};
};

// Carries "x_prev" [B, D], "mean" and "logden" [B, A].
template <class T>
class TimeMix final : public Layer<T> {
 public:
  TimeMix(const TimeMixConfig& config, ParameterList<T>& parameters, const std::string& name);

  std::string_view kind() const override { return "rwkv4"; }
  std::vector<StateTensor> state_tensors(size_t batch) const override;
  Pass<T> apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states, size_t seen,
                Face face) const override;

 private:
  TimeMixConfig config_;
  Parameter<T>*mu_r_, *mu_k_, *mu_v_;
  Projection<T> r_, k_, v_, out_;
  Parameter<T>*time_decay_, *u_;
};

struct ChannelMixConfig {
  size_t dim;         // D
  size_t hidden = 0;  // F; 0: 4 D
  LayerPlace place = {};
};

// Carries "x_prev" [B, D].
template <class T>
class ChannelMix final : public Layer<T> {
 public:
  ChannelMix(const ChannelMixConfig& config, ParameterList<T>& parameters, const std::string& name);

  std::string_view kind() const override { return "rwkv4_channel_mix"; }
  std::vector<StateTensor> state_tensors(size_t batch) const override;
  Pass<T> apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states, size_t seen,
                Face face) const override;

 private:
  ChannelMixConfig config_;
  Parameter<T>*mu_k_, *mu_r_;
  Projection<T> k_, v_, r_;
};

struct RwkvBlockConfig {
  size_t dim;                // D
  size_t attention_dim = 0;  // A; 0: D
  size_t hidden = 0;         // F; 0: 4 D
  bool first = false;        // has LN0
  double ln_eps = 1e-5;
  LayerPlace place = {};
};

// Carries the states of its two parts, "att.x_prev", "att.mean", "att.logden" and "ffn.x_prev": what was shifted there is
// normalised.
template <class T>
class RwkvBlock final : public Layer<T> {
 public:
  RwkvBlock(const RwkvBlockConfig& config, ParameterList<T>& parameters, const std::string& name);

  std::string_view kind() const override { return "rwkv4_block"; }
  std::vector<StateTensor> state_tensors(size_t batch) const override;
  Pass<T> apply(const Weights<T>& weights, Var<T> x, std::span<const Var<T>> states, size_t seen,
                Face face) const override;

 private:
  struct Norm {
    Norm(ParameterList<T>& parameters, const std::string& name, size_t dim);
    Parameter<T>*weight, *bias;
  };
  Var<T> normed(const Weights<T>& weights, const Norm& norm, Var<T> x) const;

  double ln_eps_;
  std::vector<Norm> ln0_;  // one or none
  Norm ln1_;
  TimeMix<T> att_;
  Norm ln2_;
  ChannelMix<T> ffn_;
};

}  // namespace storytape
