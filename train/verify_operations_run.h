// Computing one golden case one way in one type, and the list of what can be computed.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "autograd/ops.h"
#include "train/verify_operations_case.h"

namespace storytape {

// What one run hands in. Names are those of the case without "in.", "out.", "grad.".
template <class T>
class GoldenRun {
 public:
  explicit GoldenRun(const GoldenCase& of) : golden(of) {}

  const GoldenCase& golden;
  Tape<T> tape;

  bool has(const std::string& name) const { return golden.has("in." + name); }
  Tensor<T> value(const std::string& name) const { return golden.tensor<T>("in." + name); }
  Tensor<T> value_or_none(const std::string& name) const { return has(name) ? value(name) : Tensor<T>(); }
  Shape shape(const std::string& name) const { return golden.shape("in." + name); }
  std::vector<int32_t> ids(const std::string& name) const { return golden.ids("in." + name); }

  // An input on the tape, whose gradient is then compared; undefined if the case has none of that name.
  Var<T> input(const std::string& name) {
    if (!has(name)) return {};
    inputs_.emplace_back(name, tape.input(value(name)));
    return inputs_.back().second;
  }

  // An output on the tape: compared, and given its upstream gradient.
  void output(const std::string& name, Var<T> y) {
    // A single value is [1] in the files.
    if (y.value().size() == 1 && golden.has("out." + name) && golden.shape("out." + name) == Shape{1}) {
      y = reshape(y, {1});
    }
    output(name, y.value());
    if (!golden.has("up." + name)) return;
    outputs_.push_back(y);
    upstream_.push_back(golden.tensor<T>("up." + name));
  }
  void output(const std::string& name, const Tensor<T>& y) { compare("out." + name, y); }
  void gradient(const std::string& name, const Tensor<T>& d) {
    compare("grad." + name, d.defined() ? d : Tensor<T>::zeros(golden.shape("grad." + name)));
  }

  // Outputs that this way of computing doesn't give.
  void skip_output(const std::string& name) { done_.insert("out." + name); }
  void skip_gradients() { gradients_ = false; }

  // Once; finish() does it where it was not done before, for parameters whose gradients are then compared.
  void backward() {
    if (!walked_ && !outputs_.empty()) tape.backward(outputs_, upstream_);
    walked_ = true;
  }

  // Compares the gradients of all inputs; then nothing of the case may be left.
  GoldenError finish() {
    if (gradients_) {
      backward();
      for (const auto& [name, x] : inputs_) gradient(name, x.grad());
    }
    if (done_.empty()) fail("the case has nothing to compare");
    for (const std::string& tensor : golden.tensors()) {
      const bool wanted = tensor.starts_with("out.") || (gradients_ && tensor.starts_with("grad."));
      if (wanted && !done_.contains(tensor)) fail("{} was not computed", tensor);
    }
    return worst_;
  }

 private:
  void compare(const std::string& tensor, const Tensor<T>& computed) {
    if (!golden.has(tensor)) fail("the case has no {}", tensor);
    GoldenError error = golden_error(golden, tensor, computed);
    done_.insert(tensor);
    if (error.ratio > worst_.ratio) worst_ = std::move(error);
  }

  std::vector<std::pair<std::string, Var<T>>> inputs_;
  std::vector<Var<T>> outputs_;
  std::vector<Tensor<T>> upstream_;
  std::set<std::string> done_;
  bool gradients_ = true;
  bool walked_ = false;
  GoldenError worst_;
};

// One way to compute a variant; a type that it can't be computed in is empty.
struct GoldenFace {
  std::string name;
  std::function<void(GoldenRun<float>&)> run32;
  std::function<void(GoldenRun<double>&)> run64;
};
// From one generic callable: run(GoldenRun<T>&).
template <class Run>
GoldenFace golden_face(std::string name, Run run) {
  return {std::move(name), [run](GoldenRun<float>& r) { run(r); }, [run](GoldenRun<double>& r) { run(r); }};
}

// By variant.
using GoldenFaces = std::map<std::string, std::vector<GoldenFace>, std::less<>>;
void add_basic_operations(GoldenFaces& faces);
void add_sequence_operations(GoldenFaces& faces);
void add_training_operations(GoldenFaces& faces);
void add_mixers(GoldenFaces& faces);
void add_gated_mixers(GoldenFaces& faces);
void add_wkv(GoldenFaces& faces);
void add_models(GoldenFaces& faces);
void add_recurrent_layers(GoldenFaces& faces);
void add_attention_layers(GoldenFaces& faces);
void add_hybrid_models(GoldenFaces& faces);

}  // namespace storytape
