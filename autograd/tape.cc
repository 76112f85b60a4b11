#include "autograd/tape.h"

#include <deque>
#include <mutex>

#include "tensor/elementwise.h"
#include "tensor/reduce.h"

namespace storytape {
namespace {

// Slots are handed out again but never freed, so a variable may look at its slot whenever it likes.
template <class T>
struct SlotPool {
  std::mutex mutex;
  std::deque<TapeSlot<T>> all;
  std::vector<TapeSlot<T>*> free;
};

template <class T>
SlotPool<T>& slots() {
  static auto* pool = new SlotPool<T>;
  return *pool;
}

}  // namespace

template <class T>
Tape<T>::Tape() {
  auto& pool = slots<T>();
  std::lock_guard lock(pool.mutex);
  if (pool.free.empty()) {
    slot_ = &pool.all.emplace_back();
  } else {
    slot_ = pool.free.back();
    pool.free.pop_back();
  }
  slot_->tape = this;
}

template <class T>
Tape<T>::~Tape() {
  reset();
  auto& pool = slots<T>();
  std::lock_guard lock(pool.mutex);
  slot_->tape = nullptr;
  pool.free.push_back(slot_);
}

template <class T>
void Tape<T>::destroy_closure(Node& node) {
  if (node.closure) node.destroy(std::exchange(node.closure, nullptr));
}

template <class T>
void Tape<T>::reset() {
  for (Node& node : nodes_) destroy_closure(node);
  nodes_.clear();
  parameters_.clear();
  arena_.clear();
  ++slot_->generation;
  walked_ = false;
}

template <class T>
Var<T> Tape<T>::leaf(Tensor<T> value, bool requires_grad, Parameter<T>* parameter) {
  if (walked_) fail("the tape has been walked backward; reset it before recording again");
  if (!value.defined()) fail("a variable wants a tensor, got an undefined one");
  Node& node = nodes_.emplace_back();
  node.value = std::move(value);
  node.requires_grad = requires_grad;
  node.parameter = parameter;
  node.leaf = true;
  node.op = "leaf";
  return Var<T>(slot_, slot_->generation, static_cast<uint32_t>(nodes_.size() - 1));
}

template <class T>
Var<T> Tape<T>::parameter(Parameter<T>& parameter) {
  for (const auto& [known, index] : parameters_) {
    if (known == &parameter) return Var<T>(slot_, slot_->generation, index);
  }
  Var<T> var = leaf(parameter.value(), recording_, &parameter);
  if (sink_) nodes_[var.index_].sink = sink_.block + sink_.offsets[parameter.index];
  parameters_.emplace_back(&parameter, var.index_);
  return var;
}

template <class T>
uint32_t Tape<T>::append(const char* op, Tensor<T> value, std::span<const Var<T>> inputs) {
  if (walked_) fail("{}: the tape has been walked backward; reset it before recording again", op);
  bool requires_grad = false;
  for (const Var<T>& input : inputs) {
    if (!input.defined()) continue;
    if (&input.tape() != this) fail("{}: an input lies on another tape", op);
    requires_grad = requires_grad || nodes_[input.index_].requires_grad;
  }
  Node& node = nodes_.emplace_back();
  node.value = std::move(value);
  node.requires_grad = requires_grad && recording_;
  node.op = op;
  return static_cast<uint32_t>(nodes_.size() - 1);
}

template <class T>
void Tape<T>::backward(Var<T> loss, T seed) {
  if (loss.value().size() != 1) {
    fail("backward starts at one element, got a tensor {}; give the gradients of its elements instead",
         to_string(loss.shape()));
  }
  const Tensor<T> one(loss.shape(), seed);
  backward(std::span<const Var<T>>(&loss, 1), std::span<const Tensor<T>>(&one, 1));
}

template <class T>
void Tape<T>::backward(std::span<const Var<T>> outputs, std::span<const Tensor<T>> gradients) {
  if (walked_) fail("backward ran twice on one tape; record the forward again");
  if (outputs.size() != gradients.size()) {
    fail("backward got {} outputs and {} gradients", outputs.size(), gradients.size());
  }
  uint32_t last = 0;
  bool any = false;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!gradients[i].defined()) continue;
    if (&outputs[i].tape() != this) fail("backward from a variable of another tape");
    if (!(gradients[i].shape() == outputs[i].shape())) {
      fail("backward: output {} has shape {}, its gradient {}", i, to_string(outputs[i].shape()),
           to_string(gradients[i].shape()));
    }
    if (!outputs[i].requires_grad()) continue;
    outputs[i].accumulate(gradients[i].clone());
    last = std::max(last, outputs[i].index_);
    any = true;
  }
  if (!any) fail("backward from a value that depends on nothing that wants a gradient");
  walk(last);
}

template <class T>
std::string Tape<T>::first_non_finite() const {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (!node.value.defined() || all_finite(node.value.data(), node.value.size())) continue;
    return node.parameter ? node.parameter->name() : fmt::format("{} (node {})", node.op, i);
  }
  return "no recorded value";
}

template <class T>
void Tape<T>::walk(uint32_t last) {
  walked_ = true;
  // The op of the last node may have outputs after it.
  uint32_t first = last;
  while (!nodes_[first].leaf && !nodes_[first].closure && first > 0) --first;
  const uint32_t end = std::max(last + 1, first + nodes_[first].outputs);
  for (uint32_t i = static_cast<uint32_t>(nodes_.size()); i-- > end;) {
    destroy_closure(nodes_[i]);
    if (!nodes_[i].leaf) nodes_[i].value = Tensor<T>();
  }
  for (uint32_t i = end; i-- > 0;) {
    Node& node = nodes_[i];
    if (node.leaf || !node.closure) continue;
    output_grads_.clear();
    bool reached = false;
    for (uint32_t k = 0; k < node.outputs; ++k) {
      output_grads_.push_back(std::move(nodes_[i + k].grad));
      nodes_[i + k].grad = Tensor<T>();
      reached = reached || output_grads_.back().defined();
    }
    if (reached) node.invoke(node.closure, Grads<T>(output_grads_));
    destroy_closure(node);
    for (uint32_t k = 0; k < node.outputs; ++k) {
      if (i + k != last) nodes_[i + k].value = Tensor<T>();
    }
  }
  output_grads_.clear();
}

template <class T>
Tape<T>& Var<T>::tape() const {
  if (!slot_) fail("use of an undefined variable");
  if (!slot_->tape || slot_->generation != generation_)
    fail("use of a variable whose tape was reset or destroyed");
  return *slot_->tape;
}

template <class T>
const Tensor<T>& Var<T>::value() const {
  const auto& node = tape().nodes_[index_];
  if (!node.value.defined()) fail("{}: this value was released when backward ran", node.op);
  return node.value;
}

template <class T>
bool Var<T>::requires_grad() const {
  return defined() && tape().nodes_[index_].requires_grad;
}

template <class T>
const Parameter<T>* Var<T>::parameter() const {
  return tape().nodes_[index_].parameter;
}

template <class T>
const Tensor<T>& Var<T>::grad() const {
  const auto& node = tape().nodes_[index_];
  if (!node.requires_grad) fail("{}: no gradient is kept for this variable", node.op);
  if (node.sink) fail("{}: the gradient of this parameter went to the tape's sink", node.parameter->name());
  return node.parameter ? node.parameter->grad() : node.grad;
}

template <class T>
void Var<T>::accumulate(Tensor<T> d) const {
  auto& node = tape().nodes_[index_];
  if (!node.requires_grad) return;
  if (!(d.shape() == node.value.shape())) {
    fail("{}: gradient {} for a value {}", node.op, to_string(d.shape()), to_string(node.value.shape()));
  }
  Tensor<T>& grad = node.parameter ? node.parameter->grad() : node.grad;
  if (node.sink) {
    add_into(node.sink, std::as_const(d).data(), d.size());
  } else if (!grad.defined()) {
    grad = std::move(d);
  } else {
    add_into(grad.data(), std::as_const(d).data(), d.size());
  }
}

template <class T>
GradSlot<T> Var<T>::grad_slot() const {
  auto& node = tape().nodes_[index_];
  if (!node.requires_grad) fail("{}: no gradient is kept for this variable", node.op);
  if (node.sink) return {node.sink, false};
  Tensor<T>& grad = node.parameter ? node.parameter->grad() : node.grad;
  const bool fresh = !grad.defined();
  if (fresh) grad = Tensor<T>(node.value.shape());
  return {grad.data(), fresh};
}

template class Tape<float>;
template class Tape<double>;
template class Var<float>;
template class Var<double>;

}  // namespace storytape
