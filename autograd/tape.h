// Reverse-mode automatic differentiation on an explicit tape.
//
// Ops append nodes; backward walks them in reverse append order, so there is no recursion and no sorting, and
// depth is no limit. A node's value, gradient and saved tensors are given back as soon as its backward has
// run. A tape belongs to one thread; used again after reset() it allocates nothing that it has allocated
// before.
//
//   Tape<double> tape;
//   Var<double> x = tape.input(Tensor<double>({2}, {1, 2}));
//   Var<double> y = sum(mul(x, x));
//   tape.backward(y);
//   x.grad();  // {2, 4}
//
// An op of your own is a call of record():
//
//   template <class T> Var<T> cube(Var<T> x) {
//     Tensor<T> y = ...x³...;
//     return x.tape().record("cube", y, {x}, [x](const Grads<T>& dy) { x.accumulate(...3 x² dy...); });
//   }
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "autograd/arena.h"
#include "autograd/parameter.h"
#include "tensor/tensor.h"

namespace storytape {

template <class T>
class Tape;

// Where a backward adds the gradient of one of its inputs.
template <class T>
struct GradSlot {
  T* data;     // as many elements as the input
  bool fresh;  // true: undefined memory, every element must be written; false: must be added to
  T beta() const { return fresh ? T{0} : T{1}; }
};

// Outlives its tape, so that a variable can tell that the tape is gone.
template <class T>
struct TapeSlot {
  Tape<T>* tape = nullptr;
  uint64_t generation = 0;
};

// A value on a tape. A small handle: copy it freely. Using one whose tape was reset or destroyed is an Error.
template <class T>
class Var {
 public:
  Var() = default;

  bool defined() const { return slot_ != nullptr; }
  Tape<T>& tape() const;
  const Tensor<T>& value() const;
  const Shape& shape() const { return value().shape(); }
  bool requires_grad() const;
  // The parameter that this variable stands for, or null.
  const Parameter<T>* parameter() const;

  // dL/d(this) after backward, for inputs and parameters; undefined if no path led here.
  const Tensor<T>& grad() const;

  // For backwards: adds d to dL/d(this). Nothing happens where no gradient is wanted.
  void accumulate(Tensor<T> d) const;
  // For backwards that write in place. REQUIRES: requires_grad().
  GradSlot<T> grad_slot() const;

 private:
  friend class Tape<T>;
  Var(TapeSlot<T>* slot, uint64_t generation, uint32_t index)
      : slot_(slot), generation_(generation), index_(index) {}

  TapeSlot<T>* slot_ = nullptr;
  uint64_t generation_ = 0;
  uint32_t index_ = 0;
};

// The gradients of an op's outputs, as its backward sees them: Grads[i] is undefined where no path reached
// output i (at least one is defined, else the backward is not called).
template <class T>
class Grads {
 public:
  explicit Grads(std::span<const Tensor<T>> grads) : grads_(grads) {}
  const Tensor<T>& operator[](size_t i) const { return grads_[i]; }
  size_t size() const { return grads_.size(); }
  // For ops with one output.
  const Tensor<T>& one() const { return grads_[0]; }
  const T* data() const { return grads_[0].data(); }

 private:
  std::span<const Tensor<T>> grads_;
};

// Where parameter gradients go when several tapes work for one model: one flat block per lane, cut up as the
// parameters lie in the model's list.
template <class T>
struct GradSink {
  T* block = nullptr;               // zeroed before the first backward
  std::span<const size_t> offsets;  // of parameter i, in elements
  explicit operator bool() const { return block != nullptr; }
};

template <class T>
class Tape {
 public:
  Tape();
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // A value that no gradient is wanted for.
  Var<T> constant(Tensor<T> value) { return leaf(std::move(value), false, nullptr); }
  // A value whose gradient is wanted.
  Var<T> input(Tensor<T> value) { return leaf(std::move(value), recording_, nullptr); }
  // A model's weight; asked for twice, the same variable. Its gradient is added to the sink, or to
  // parameter.grad().
  Var<T> parameter(Parameter<T>& parameter);

  // Appends an op. `backward` is called with the outputs' gradients (const Grads<T>&) and adds to its
  // inputs'; it is kept only if an input wants a gradient. What it captures by value is its saved state.
  template <class F>
  Var<T> record(const char* op, Tensor<T> value, std::initializer_list<Var<T>> inputs, F&& backward) {
    return record(op, std::move(value), std::span<const Var<T>>(inputs.begin(), inputs.size()),
                  std::forward<F>(backward));
  }
  template <class F>
  Var<T> record(const char* op, Tensor<T> value, std::span<const Var<T>> inputs, F&& backward) {
    const uint32_t first = append(op, std::move(value), inputs);
    set_backward(first, 1, std::forward<F>(backward));
    return Var<T>(slot_, slot_->generation, first);
  }
  // The same for an op with several outputs; the results are written to outs[i].
  template <class F>
  void record_many(const char* op, std::span<Tensor<T>> values, std::span<const Var<T>> inputs,
                   std::span<Var<T>> outs, F&& backward) {
    const uint32_t first = static_cast<uint32_t>(nodes_.size());
    for (size_t i = 0; i < values.size(); ++i) {
      outs[i] = Var<T>(slot_, slot_->generation, append(op, std::move(values[i]), inputs));
    }
    set_backward(first, static_cast<uint32_t>(values.size()), std::forward<F>(backward));
  }

  // dL = seed at `loss` (one element; seed 1), walked back to every input and parameter. Once per tape: a
  // second call is an Error, as is a loss that depends on nothing that wants a gradient.
  void backward(Var<T> loss, T seed = T{1});
  // The same from several outputs with given gradients (an undefined one counts as zero).
  void backward(std::span<const Var<T>> outputs, std::span<const Tensor<T>> gradients);

  // Forgets all nodes; variables made before are invalid from here on.
  void reset();

  void set_sink(GradSink<T> sink) { sink_ = sink; }
  // Whether ops keep what a backward needs; see NoGrad.
  bool recording() const { return recording_; }
  size_t size() const { return nodes_.size(); }
  // For messages: the first recorded value that holds NaN or infinity, as "gelu_mlp (node 12)" or the name of
  // a parameter; "no recorded value" if all are finite.
  std::string first_non_finite() const;

 private:
  friend class Var<T>;
  template <class>
  friend class NoGrad;

  using Invoke = void (*)(void* closure, const Grads<T>& grads);
  using Destroy = void (*)(void* closure);

  struct Node {
    Tensor<T> value;
    Tensor<T> grad;
    Parameter<T>* parameter = nullptr;
    T* sink = nullptr;  // a parameter's place in the sink
    const char* op = "";
    void* closure = nullptr;  // on the first node of an op's outputs
    Invoke invoke = nullptr;
    Destroy destroy = nullptr;
    uint32_t outputs = 1;
    bool requires_grad = false;
    bool leaf = false;
  };

  Var<T> leaf(Tensor<T> value, bool requires_grad, Parameter<T>* parameter);
  uint32_t append(const char* op, Tensor<T> value, std::span<const Var<T>> inputs);
  void walk(uint32_t last);
  void destroy_closure(Node& node);

  template <class F>
  void set_backward(uint32_t first, uint32_t outputs, F&& backward) {
    Node& node = nodes_[first];
    node.outputs = outputs;
    if (!node.requires_grad) return;
    using Closure = std::decay_t<F>;
    static_assert(alignof(Closure) <= alignof(std::max_align_t));
    node.closure = new (arena_.allocate(sizeof(Closure))) Closure(std::forward<F>(backward));
    node.invoke = [](void* closure, const Grads<T>& grads) { (*static_cast<Closure*>(closure))(grads); };
    node.destroy = [](void* closure) { static_cast<Closure*>(closure)->~Closure(); };
  }

  TapeSlot<T>* slot_;
  std::vector<Node> nodes_;
  std::vector<std::pair<const Parameter<T>*, uint32_t>> parameters_;
  std::vector<Tensor<T>> output_grads_;
  Arena arena_;
  GradSink<T> sink_;
  bool recording_ = true;
  bool walked_ = false;
};

// While it lives, ops on the tape keep nothing for a backward and their results want no gradient.
template <class T>
class NoGrad {
 public:
  explicit NoGrad(Tape<T>& tape) : tape_(tape), before_(tape.recording_) { tape_.recording_ = false; }
  ~NoGrad() { tape_.recording_ = before_; }
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  Tape<T>& tape_;
  bool before_;
};

extern template class Tape<float>;
extern template class Tape<double>;
extern template class Var<float>;
extern template class Var<double>;

}  // namespace storytape
