#include "train/verify_layers.h"

#include "tensor/index.h"

namespace storytape {
namespace {

template <class T>
class LayerCase {
 public:
  LayerCase(GoldenRun<T>& r, const GoldenLayerMaker::Make<T>& make)
      : r_(r),
        parameters_(0),
        golden_(make(r, parameters_, "layer")),
        batch_(r.shape("x")[0]),
        tokens_(r.shape("x")[1]) {
    for (const StateTensor& s : golden_.layer->state_tensors(batch_)) names_.push_back(s.name);
    load();
  }

  // Pieces [0, cuts[0]), [cuts[0], cuts[1]), ... on one tape, each from the states of the one before.
  void run(Face face, const std::vector<size_t>& cuts) {
    const Var<T> x = r_.input("x");
    std::vector<Var<T>> states;
    for (const std::string& name : names_) {
      const Var<T> init = r_.input(name + "_init");
      states.push_back(init.defined() && golden_.from_file ? golden_.from_file(name, init) : init);
    }
    std::vector<Var<T>> parts;
    size_t first = 0;
    for (size_t i = 0; i <= cuts.size(); ++i) {
      const size_t last = i < cuts.size() ? cuts[i] : tokens_;
      const Var<T> piece = cuts.empty() ? x : slice(x, 1, first, last);
      Pass<T> pass = golden_.layer->apply(r_.tape, piece, states, golden_.seen + first, face);
      check_states(pass);
      parts.push_back(pass.y);
      states = std::move(pass.states);
      if (last == cut()) output_states(states, "_mid");
      first = last;
    }
    if (cuts.empty()) skip_mid();
    r_.output("y", parts.size() == 1 ? parts[0] : concat(parts, 1));
    output_states(states, "_final");
    r_.backward();
    for (const auto& [tensor, i] : loaded_) r_.gradient(tensor, parameters_[i].grad());
  }

  // The first tokens at once, the rest one by one, with the state that decoding carries.
  void decode(size_t prefill) {
    const Tensor<T> x = r_.value("x");
    State<T> state = golden_.layer->init_state(batch_);
    state.length = golden_.seen;
    for (const std::string& name : names_) {
      if (!r_.has(name + "_init")) continue;
      const Var<T> init = r_.tape.constant(r_.value(name + "_init"));
      state[name] = (golden_.from_file ? golden_.from_file(name, init) : init).value();
    }
    std::vector<Tensor<T>> parts;
    const auto extend = [&](size_t first, size_t last) {
      parts.push_back(golden_.layer->extend(state, slice(x, 1, first, last), Tensor<T>()));
    };
    if (prefill) extend(0, prefill);
    if (prefill == cut()) {
      output_states(on_tape(state), "_mid");
    } else {
      skip_mid();
    }
    for (size_t t = prefill; t < tokens_; ++t) extend(t, t + 1);
    r_.output("y", concat(std::span<const Tensor<T>>(parts), 1));
    output_states(on_tape(state), "_final");
    r_.skip_gradients();
  }

  // Where the case cuts its sequence; 0: it says nothing.
  size_t cut() const { return static_cast<size_t>(r_.golden.number("cut")); }
  // The same, or else the middle.
  size_t cut_or_middle() const { return cut() ? cut() : tokens_ / 2; }

 private:
  // Every float of the file that is neither x nor a state is a parameter, and the other way round.
  void load() {
    for (const std::string& tensor : r_.golden.tensors()) {
      if (!tensor.starts_with("in.") || tensor == "in.x") continue;
      const std::string golden = tensor.substr(3);
      bool is_state = false;
      for (const std::string& name : names_) is_state = is_state || golden == name + "_init";
      if (is_state) continue;
      const std::string name = "layer." + golden_parameter_name(golden);
      Parameter<T>* parameter = parameters_.find(name);
      if (!parameter) fail("{} stands for the parameter {}, which the layer lacks", tensor, name);
      const Tensor<T> value = r_.value(golden);
      if (!(parameter->shape() == value.shape())) {
        fail("{} is {}, and the parameter {} {}", tensor, to_string(value.shape()), name,
             to_string(parameter->shape()));
      }
      parameter->mutable_value() = value;
      loaded_.emplace_back(golden, parameter->index);
    }
    if (loaded_.size() != parameters_.size()) {
      fail("the case gives {} of the layer's {} parameters", loaded_.size(), parameters_.size());
    }
  }
  void check_states(const Pass<T>& pass) const {
    if (pass.states.size() == names_.size()) return;
    fail("the layer returns {} states and names {}", pass.states.size(), names_.size());
  }
  std::vector<Var<T>> on_tape(const State<T>& state) {
    std::vector<Var<T>> vars;
    for (const std::string& name : names_) vars.push_back(r_.tape.constant(state[name]));
    return vars;
  }
  // States that the file doesn't have at that place are not compared.
  void output_states(const std::vector<Var<T>>& states, const char* place) {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (!r_.golden.has("out." + names_[i] + place)) continue;
      r_.output(names_[i] + place, golden_.to_file ? golden_.to_file(names_[i], states[i]) : states[i]);
    }
  }
  void skip_mid() {
    for (const std::string& name : names_) r_.skip_output(name + "_mid");
  }

  GoldenRun<T>& r_;
  ParameterList<T> parameters_;
  GoldenLayer<T> golden_;
  size_t batch_, tokens_;
  std::vector<std::string> names_;                      // of the states
  std::vector<std::pair<std::string, size_t>> loaded_;  // the file's name, the parameter's index
};

}  // namespace

std::string golden_parameter_name(const std::string& tensor) {
  const size_t dot = tensor.rfind('.');
  const std::string prefix = dot == std::string::npos ? "" : tensor.substr(0, dot + 1);
  const std::string base = tensor.substr(prefix.size());
  const auto of = [](const std::string& name) { return name == "o" ? "out" : name; };
  if (base.starts_with("W_")) return prefix + of(base.substr(2)) + ".weight";
  if (base.starts_with("b_")) return prefix + of(base.substr(2)) + ".bias";
  const auto without = [&](size_t first, size_t last) {
    return base.substr(first, base.size() - first - last);
  };
  if (base.starts_with("conv_")) {
    return prefix + (base.ends_with("_b") ? without(5, 2) + "_conv.bias" : without(5, 0) + "_conv.weight");
  }
  if (base.ends_with("_w")) return prefix + without(0, 2) + ".weight";
  if (base.ends_with("_b")) return prefix + without(0, 2) + ".bias";
  return tensor;
}

std::vector<GoldenFace> layer_faces(const GoldenLayerMaker& maker) {
  std::vector<GoldenFace> faces;
  const auto add = [&](std::string name, auto run) {
    faces.push_back({std::move(name), [=](GoldenRun<float>& r) { run(LayerCase<float>(r, maker.make32)); },
                     [=](GoldenRun<double>& r) { run(LayerCase<double>(r, maker.make64)); }});
  };
  for (const Face face : {Face::kRecurrent, Face::kParallel, Face::kChunkwise}) {
    add(std::string(to_string(face)), [face](auto c) { c.run(face, {}); });
  }
  const auto in_pieces = [](Face face) {
    return [face](auto c) {
      const size_t cut = c.cut_or_middle();
      c.run(face, cut ? std::vector<size_t>{cut} : std::vector<size_t>{});
    };
  };
  add("recurrent, cut", in_pieces(Face::kRecurrent));
  add("chunkwise, cut", in_pieces(Face::kChunkwise));
  add("decode", [](auto c) { c.decode(c.cut_or_middle()); });
  return faces;
}

}  // namespace storytape
