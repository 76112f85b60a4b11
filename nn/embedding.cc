#include "nn/embedding.h"

#include <vector>

#include "tensor/elementwise.h"

namespace storytape {

template <class T>
Tensor<T> embed_values(const Tensor<T>& table, const Tensor<T>& positions, std::span<const int32_t> tokens,
                       size_t batch, size_t length, size_t offset) {
  if (table.rank() != 2) fail("embed: the table is {}, wanted 2 axes", to_string(table.shape()));
  if (positions.defined() && (positions.rank() != 2 || positions.size(1) != table.size(1))) {
    fail("embed: table {} and positions {} don't fit", to_string(table.shape()),
         to_string(positions.shape()));
  }
  const size_t vocab = table.size(0);
  const size_t dim = table.size(1);
  if (tokens.size() != batch * length) {
    fail("embed: {} × {} positions want as many tokens, got {}", batch, length, tokens.size());
  }
  if (positions.defined() && offset + length > positions.size(0)) {
    fail("a context of {} tokens reaches past the position table of {}", offset + length, positions.size(0));
  }
  Tensor<T> y({batch, length, dim});
  T* to = y.data();
  for (size_t i = 0; i < tokens.size(); ++i, to += dim) {
    if (tokens[i] < 0 || static_cast<size_t>(tokens[i]) >= vocab) {
      fail("token {} at position {} lies outside the vocabulary of {}", tokens[i], i, vocab);
    }
    // y = table[token] + positions[offset + t]
    const T* a = table.data() + static_cast<size_t>(tokens[i]) * dim;
    const T* b = positions.defined() ? positions.data() + (offset + i % length) * dim : nullptr;
    for (size_t j = 0; j < dim; ++j) to[j] = b ? a[j] + b[j] : a[j];
  }
  return y;
}

template <class T>
Var<T> embed(Var<T> table, Var<T> positions, std::span<const int32_t> tokens, size_t batch, size_t length,
             size_t offset) {
  Tensor<T> y = embed_values(table.value(), positions.defined() ? positions.value() : Tensor<T>(), tokens,
                             batch, length, offset);
  const size_t dim = y.size(2);
  const auto clear_if_fresh = [](const GradSlot<T>& slot, size_t size) {
    if (slot.fresh) std::fill_n(slot.data, size, T{0});
  };
  // The caller's tokens need not live until backward.
  const auto saved = Tensor<int32_t>(Shape{tokens.size()}, tokens);
  const Var<T> inputs[] = {table, positions};
  return table.tape().record("embed", std::move(y), inputs, [=](const Grads<T>& grads) {
    const T* dy = grads.data();
    // from y = table[token] + …
    if (table.requires_grad()) {
      const GradSlot<T> d = table.grad_slot();
      clear_if_fresh(d, table.value().size());
      for (size_t i = 0; i < saved.size(); ++i) {
        add_into(d.data + static_cast<size_t>(saved[i]) * dim, dy + i * dim, dim);
      }
    }
    // from y = … + positions[offset + t]
    if (positions.defined() && positions.requires_grad()) {
      const GradSlot<T> d = positions.grad_slot();
      clear_if_fresh(d, positions.value().size());
      for (size_t i = 0; i < saved.size(); ++i) {
        add_into(d.data + (offset + i % length) * dim, dy + i * dim, dim);
      }
    }
  });
}

#define STORYTAPE_INSTANTIATE(T)                                                                        \
  template Var<T> embed(Var<T>, Var<T>, std::span<const int32_t>, size_t, size_t, size_t);              \
  template Tensor<T> embed_values(const Tensor<T>&, const Tensor<T>&, std::span<const int32_t>, size_t, \
                                  size_t, size_t)
STORYTAPE_INSTANTIATE(float);
STORYTAPE_INSTANTIATE(double);
#undef STORYTAPE_INSTANTIATE

}  // namespace storytape
