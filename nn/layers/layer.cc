#include "nn/layers/layer.h"

#include "autograd/ops_arithmetic.h"

namespace storytape {

template <class T>
Var<T> Layer<T>::forward(Tape<T>& tape, Var<T> x, Face face, Var<T> residual) const {
  const Var<T> y = apply(tape, x, {}, 0, face).y;
  return residual.defined() ? add(y, residual) : y;
}

template <class T>
State<T> Layer<T>::init_state(size_t batch) const {
  State<T> state;
  for (const StateTensor& s : state_tensors(batch)) {
    state.add(s.name, Tensor<T>(s.shape, static_cast<T>(s.start)));
  }
  return state;
}

template <class T>
Tensor<T> Layer<T>::extend(State<T>& state, const Tensor<T>& x, const Tensor<T>& residual) const {
  Tape<T> tape;
  const NoGrad<T> no_grad(tape);
  std::vector<Var<T>> before;
  for (const auto& [name, tensor] : std::as_const(state).tensors()) before.push_back(tape.constant(tensor));
  const Face face = x.size(1) == 1 ? Face::kRecurrent : Face::kChunkwise;
  const Pass<T> pass = apply(tape, tape.constant(x), before, state.length, face);
  const Var<T> y = residual.defined() ? add(pass.y, tape.constant(residual)) : pass.y;
  State<T> after;
  for (size_t i = 0; i < before.size(); ++i) after.add(state.tensors()[i].first, pass.states[i].value());
  after.length = state.length + x.size(1);
  state = std::move(after);
  return y.value();
}

template class Layer<float>;
template class Layer<double>;

}  // namespace storytape
