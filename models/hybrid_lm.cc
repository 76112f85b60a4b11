#include "models/hybrid_lm.h"

#include "autograd/ops.h"
#include "nn/embedding.h"
#include "nn/gelu_mlp.h"
#include "nn/head_loss.h"
#include "tensor/elementwise.h"
#include "tensor/norm.h"

namespace storytape {
namespace {

constexpr double kNormEps = 1e-5;

}  // namespace

template <class T>
HybridLM<T>::HybridLM(const ModelConfig& config, uint64_t seed) : config_(config), parameters_(seed) {
  config.check();
  const size_t d = config.dim;
  tokens_ = &parameters_.add("tok.weight", {config.vocab, d}, Init::uniform_fan(d));
  positions_ = &parameters_.add("pos.weight", {config.max_seq, d}, Init::uniform_fan(d));
  const MixerConfig mixer{d, config.heads, config.bias, config.linear_eps};
  for (size_t i = 0; i < config.layers(); ++i) {
    const std::string name = "blocks." + std::to_string(i);
    Block& block = blocks_.emplace_back();
    block.norm1 = add_norm(name + ".norm1");
    block.mixer = make_mixer(config.pattern[i], mixer, parameters_, name + ".mixer");
    block.norm2 = add_norm(name + ".norm2");
    block.fc1 = std::make_unique<Linear<T>>(parameters_, name + ".mlp.fc1", d, config.ffn, config.bias);
    block.fc2 = std::make_unique<Linear<T>>(parameters_, name + ".mlp.fc2", config.ffn, d, config.bias);
  }
  norm_ = add_norm("norm");
  if (config.head_bias) head_bias_ = &parameters_.add("head.bias", {config.vocab}, Init::constant(0));
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].shape().rank() == 2 && &parameters_[i] != positions_)
      packed_.push_back(&parameters_[i]);
  }
}

template <class T>
typename HybridLM<T>::Norm HybridLM<T>::add_norm(const std::string& name) {
  return {&parameters_.add(name + ".weight", {config_.dim}, Init::constant(1)),
          &parameters_.add(name + ".bias", {config_.dim}, Init::constant(0))};
}

template <class T>
Var<T> HybridLM<T>::normed(Tape<T>& tape, const Norm& norm, Var<T> x) const {
  return layer_norm(x, tape.parameter(*norm.gamma), tape.parameter(*norm.beta), kNormEps);
}

template <class T>
Var<T> HybridLM<T>::mlp(Tape<T>& tape, const Block& block, Var<T> x, Var<T> residual) const {
  if (config_.gelu == "tanh") return (*block.fc2)(tape, gelu_tanh((*block.fc1)(tape, x)), residual);
  const auto bias = [&](const Linear<T>& map) { return map.bias ? tape.parameter(*map.bias) : Var<T>(); };
  return gelu_mlp(x, tape.parameter(*block.fc1->weight), bias(*block.fc1), tape.parameter(*block.fc2->weight),
                  bias(*block.fc2), residual);
}

template <class T>
Var<T> HybridLM<T>::hidden(Tape<T>& tape, std::span<const int32_t> tokens, size_t batch, size_t length,
                           Face face) const {
  Var<T> x = embed(tape.parameter(*tokens_), tape.parameter(*positions_), tokens, batch, length);
  for (const Block& block : blocks_) {
    x = block.mixer->forward(tape, normed(tape, block.norm1, x), face, x);
    x = mlp(tape, block, normed(tape, block.norm2, x), x);
  }
  return normed(tape, norm_, x);
}

template <class T>
Var<T> HybridLM<T>::loss(Tape<T>& tape, std::span<const int32_t> tokens, std::span<const int32_t> targets,
                         size_t batch, size_t length, T scale, Face face) const {
  const Var<T> h = hidden(tape, tokens, batch, length, face);
  return head_loss(h, tape.parameter(*tokens_), head_bias_ ? tape.parameter(*head_bias_) : Var<T>(), targets,
                   scale);
}

template <class T>
Var<T> HybridLM<T>::logits(Tape<T>& tape, std::span<const int32_t> tokens, size_t batch, size_t length,
                           Face face) const {
  const Var<T> h = hidden(tape, tokens, batch, length, face);
  const Var<T> table = transpose(tape.parameter(*tokens_), {1, 0});
  return linear(h, table, head_bias_ ? tape.parameter(*head_bias_) : Var<T>());
}

template <class T>
std::vector<double> HybridLM<T>::token_losses(Tape<T>& tape, std::span<const int32_t> tokens,
                                              std::span<const int32_t> targets, size_t batch,
                                              size_t length) const {
  const NoGrad no_grad(tape);
  const Var<T> h = hidden(tape, tokens, batch, length, Face::kChunkwise);
  return head_losses(h.value(), *tokens_, head_bias_, targets);
}

template <class T>
LMState<T> HybridLM<T>::init_state(size_t batch) const {
  if (batch == 0) fail("a state wants a batch of at least 1");
  LMState<T> state;
  state.batch = batch;
  for (const Block& block : blocks_) state.blocks.push_back(block.mixer->init_state(batch));
  return state;
}

template <class T>
Tensor<T> HybridLM<T>::normed(const Norm& norm, const Tensor<T>& x) const {
  Tensor<T> y(x.shape());
  const size_t rows = x.size() / config_.dim;
  layer_norm(x.data(), std::as_const(*norm.gamma).value().data(), std::as_const(*norm.beta).value().data(),
             static_cast<T>(kNormEps), y.data(), nullptr, nullptr, rows, config_.dim);
  return y;
}

template <class T>
Tensor<T> HybridLM<T>::mlp(const Block& block, const Tensor<T>& x, const Tensor<T>& residual) const {
  const Unary gelu = config_.gelu == "tanh" ? Unary::kGeluTanh : Unary::kGeluErf;
  const Tensor<T> a = unary(gelu, block.fc1->apply(x));
  return block.fc2->apply(a, &residual);
}

template <class T>
Tensor<T> HybridLM<T>::extend(LMState<T>& state, std::span<const int32_t> tokens) const {
  if (tokens.empty() || tokens.size() % state.batch != 0) {
    fail("{} tokens can't be shared out over a batch of {}", tokens.size(), state.batch);
  }
  if (state.blocks.size() != blocks_.size()) {
    fail("the state has {} blocks, the model {}", state.blocks.size(), blocks_.size());
  }
  const size_t length = tokens.size() / state.batch;
  Tensor<T> x = embed_values(std::as_const(*tokens_).value(), std::as_const(*positions_).value(), tokens,
                             state.batch, length, state.length);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    x = blocks_[i].mixer->extend(state.blocks[i], normed(blocks_[i].norm1, x), x);
    x = mlp(blocks_[i], normed(blocks_[i].norm2, x), x);
  }
  state.length += length;
  // Only the last token of each sequence needs logits.
  Tensor<T> last({state.batch, config_.dim});
  for (size_t b = 0; b < state.batch; ++b) {
    const T* from = std::as_const(x).data() + (b * length + length - 1) * config_.dim;
    std::copy_n(from, config_.dim, last.data() + b * config_.dim);
  }
  last = normed(norm_, last);
  Tensor<T> logits({state.batch, config_.vocab});
  Epilogue<T> epilogue;
  if (head_bias_) epilogue.bias = std::as_const(*head_bias_).value().data();
  gemm_packed(Trans::kNo, state.batch, std::as_const(last).data(), config_.dim, tokens_->packed(Trans::kYes),
              T{0}, logits.data(), config_.vocab, epilogue);
  return logits;
}

template class HybridLM<float>;
template class HybridLM<double>;

}  // namespace storytape
