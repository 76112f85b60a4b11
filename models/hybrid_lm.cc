#include "models/hybrid_lm.h"

#include "autograd/ops.h"
#include "models/layers.h"
#include "models/pattern.h"
#include "nn/embedding.h"
#include "nn/gates.h"
#include "nn/gelu_mlp.h"
#include "nn/head_loss.h"
#include "tensor/elementwise.h"
#include "tensor/norm.h"

namespace storytape {
template <class T>
HybridLM<T>::HybridLM(const ModelConfig& config, uint64_t seed) : config_(config), parameters_(seed) {
  config.check();
  const size_t d = config.dim;
  tokens_ = &parameters_.add("tok.weight", {config.vocab, d}, Init::uniform_fan(d));
  if (config.positions == "learned") {
    positions_ = &parameters_.add("pos.weight", {config.max_seq, d}, Init::uniform_fan(d));
  }
  for (size_t i = 0; i < config.layers(); ++i) blocks_.push_back(add_block(i));
  norm_ = add_norm("norm");
  head_ = config.tied ? tokens_ : &parameters_.add("head.weight", {config.vocab, d}, Init::uniform_fan(d));
  if (config.head_bias) head_bias_ = &parameters_.add("head.bias", {config.vocab}, Init::constant(0));
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Parameter<T>& parameter = parameters_[i];
    if (parameter.shape().rank() != 2 || &parameter == positions_) continue;
    if (!config.tied && &parameter == tokens_) continue;  // only looked up
    packed_.push_back(&parameter);
  }
}

template <class T>
typename HybridLM<T>::Block HybridLM<T>::add_block(size_t index) {
  const size_t d = config_.dim, ffn = config_.ffn;
  const std::string name = "blocks." + std::to_string(index);
  const LayerSpec spec = parse_layer(config_.pattern[index]);
  Block block;
  block.norm_output = norms_output(spec);
  block.norm1 = add_norm(name + ".norm1");
  block.mixer = make_layer(spec, config_, index, parameters_, name + ".mixer");
  block.norm2 = add_norm(name + ".norm2");
  const auto map = [&](const char* part, size_t in, size_t out, bool bias) {
    return std::make_unique<Linear<T>>(parameters_, name + ".mlp." + part, in, out, bias);
  };
  if (config_.block == "modern") {
    block.fc1 = map("gate", d, ffn, false);
    block.up = map("up", d, ffn, false);
    block.fc2 = map("down", ffn, d, false);
  } else {
    block.fc1 = map("fc1", d, ffn, config_.bias);
    block.fc2 = map("fc2", ffn, d, config_.bias);
  }
  return block;
}

template <class T>
typename HybridLM<T>::Norm HybridLM<T>::add_norm(const std::string& name) {
  const bool modern = config_.block == "modern";
  Norm norm{
      &parameters_.add(name + ".weight", {config_.dim}, Init::constant(modern ? 1 - config_.norm_offset : 1)),
      nullptr};
  if (!modern) norm.beta = &parameters_.add(name + ".bias", {config_.dim}, Init::constant(0));
  return norm;
}

template <class T>
Var<T> HybridLM<T>::normed(Tape<T>& tape, const Norm& norm, Var<T> x) const {
  const Var<T> gamma = tape.parameter(*norm.gamma);
  if (norm.beta) return layer_norm(x, gamma, tape.parameter(*norm.beta), config_.norm_eps);
  return rms_norm(x, config_.norm_offset == 0 ? gamma : add_constant(gamma, config_.norm_offset),
                  config_.norm_eps);
}

template <class T>
Var<T> HybridLM<T>::mlp(Tape<T>& tape, const Block& block, Var<T> x, Var<T> residual) const {
  if (block.up) return (*block.fc2)(tape, swish_gate((*block.up)(tape, x), (*block.fc1)(tape, x)), residual);
  if (config_.gelu == "tanh") return (*block.fc2)(tape, gelu_tanh((*block.fc1)(tape, x)), residual);
  const auto bias = [&](const Linear<T>& map) { return map.bias ? tape.parameter(*map.bias) : Var<T>(); };
  return gelu_mlp(x, tape.parameter(*block.fc1->weight), bias(*block.fc1), tape.parameter(*block.fc2->weight),
                  bias(*block.fc2), residual);
}

template <class T>
Var<T> HybridLM<T>::hidden(Tape<T>& tape, std::span<const int32_t> tokens, size_t batch, size_t length,
                           Face face) const {
  const Var<T> positions = positions_ ? tape.parameter(*positions_) : Var<T>();
  Var<T> x = embed(tape.parameter(*tokens_), positions, tokens, batch, length);
  for (const Block& block : blocks_) {
    if (block.norm_output) {
      x = add(x, normed(tape, block.norm1, block.mixer->forward(tape, x, face, Var<T>())));
      x = add(x, normed(tape, block.norm2, mlp(tape, block, x, Var<T>())));
    } else {
      x = block.mixer->forward(tape, normed(tape, block.norm1, x), face, x);
      x = mlp(tape, block, normed(tape, block.norm2, x), x);
    }
  }
  return normed(tape, norm_, x);
}

template <class T>
Var<T> HybridLM<T>::loss(Tape<T>& tape, std::span<const int32_t> tokens, std::span<const int32_t> targets,
                         size_t batch, size_t length, T scale, Face face) const {
  const Var<T> h = hidden(tape, tokens, batch, length, face);
  return head_loss(h, tape.parameter(*head_), head_bias_ ? tape.parameter(*head_bias_) : Var<T>(), targets,
                   scale);
}

template <class T>
Var<T> HybridLM<T>::logits(Tape<T>& tape, std::span<const int32_t> tokens, size_t batch, size_t length,
                           Face face) const {
  const Var<T> h = hidden(tape, tokens, batch, length, face);
  const Var<T> table = transpose(tape.parameter(*head_), {1, 0});
  return linear(h, table, head_bias_ ? tape.parameter(*head_bias_) : Var<T>());
}

template <class T>
std::vector<double> HybridLM<T>::token_losses(Tape<T>& tape, std::span<const int32_t> tokens,
                                              std::span<const int32_t> targets, size_t batch,
                                              size_t length) const {
  const NoGrad no_grad(tape);
  const Var<T> h = hidden(tape, tokens, batch, length, Face::kChunkwise);
  return head_losses(h.value(), *head_, head_bias_, targets);
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
  const Tensor<T>& weight = std::as_const(*norm.gamma).value();
  const T eps = static_cast<T>(config_.norm_eps);
  if (norm.beta) {
    layer_norm(x.data(), weight.data(), std::as_const(*norm.beta).value().data(), eps, y.data(), nullptr,
               nullptr, rows, config_.dim);
    return y;
  }
  const Tensor<T> gamma =
      config_.norm_offset == 0 ? weight : add(weight, Tensor<T>({1}, static_cast<T>(config_.norm_offset)));
  rms_norm(x.data(), gamma.data(), eps, y.data(), nullptr, rows, config_.dim);
  return y;
}

template <class T>
Tensor<T> HybridLM<T>::mlp(const Block& block, const Tensor<T>& x, const Tensor<T>* residual) const {
  if (block.up) return block.fc2->apply(swish_gate(block.up->apply(x), block.fc1->apply(x)), residual);
  const Unary gelu = config_.gelu == "tanh" ? Unary::kGeluTanh : Unary::kGeluErf;
  return block.fc2->apply(unary(gelu, block.fc1->apply(x)), residual);
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
  const Tensor<T> positions = positions_ ? std::as_const(*positions_).value() : Tensor<T>();
  Tensor<T> x =
      embed_values(std::as_const(*tokens_).value(), positions, tokens, state.batch, length, state.length);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    State<T>& carried = state.blocks[i];
    if (block.norm_output) {
      x = add(x, normed(block.norm1, block.mixer->extend(carried, x, Tensor<T>())));
      x = add(x, normed(block.norm2, mlp(block, x, nullptr)));
    } else {
      x = block.mixer->extend(carried, normed(block.norm1, x), x);
      x = mlp(block, normed(block.norm2, x), &x);
    }
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
  gemm_packed(Trans::kNo, state.batch, std::as_const(last).data(), config_.dim, head_->packed(Trans::kYes),
              T{0}, logits.data(), config_.vocab, epilogue);
  return logits;
}

template class HybridLM<float>;
template class HybridLM<double>;

}  // namespace storytape
