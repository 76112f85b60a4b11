#include "nn/head_loss.h"

#include <algorithm>

#include "nn/kernels/head_loss.h"
#include "nn/products.h"
#include "tensor/elementwise.h"

namespace storytape {
namespace {

// Rows per tile: a tile of 4,096 logits in float takes 2 MB and passes through the caches five times; fewer
// rows read and write dE more often. Measured on StoryLM-1M.
constexpr size_t kTileRows = 128;
// A row of logits is a power of two long for most vocabularies; (H5) walks down columns, which would then all
// fall in the same few cache sets.
constexpr size_t kRowPadding = 16;

void check_targets(std::span<const int32_t> targets, size_t rows, size_t vocab) {
  if (targets.size() != rows) fail("head_loss: {} rows want as many targets, got {}", rows, targets.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] == kIgnoreTarget) continue;
    if (targets[i] < 0 || static_cast<size_t>(targets[i]) >= vocab) {
      fail("head_loss: target {} at position {} lies outside the vocabulary of {}", targets[i], i, vocab);
    }
  }
}

}  // namespace

template <class T>
Var<T> head_loss(Var<T> h, Var<T> table, Var<T> bias, std::span<const int32_t> targets, T scale) {
  if (table.value().rank() != 2 || h.value().rank() < 1 || h.shape().back() != table.shape()[1]) {
    fail("head_loss: h {} and table {} don't fit", to_string(h.shape()), to_string(table.shape()));
  }
  const size_t vocab = table.shape()[0];
  const size_t dim = table.shape()[1];
  const size_t rows = h.value().size() / dim;
  check_targets(targets, rows, vocab);
  if (bias.defined() && bias.value().size() != vocab) {
    fail("head_loss: bias wants [{}], got {}", vocab, to_string(bias.shape()));
  }

  const bool gradient = h.requires_grad() || table.requires_grad() || bias.requires_grad();
  const size_t ld = vocab + kRowPadding;
  Tensor<T> logits({std::min(rows, kTileRows), ld});
  Tensor<T> dh, dtable, dbias;
  if (h.requires_grad()) dh = Tensor<T>(h.shape());
  if (table.requires_grad()) dtable = rows ? Tensor<T>(table.shape()) : Tensor<T>::zeros(table.shape());
  if (bias.requires_grad()) dbias = Tensor<T>::zeros({vocab});

  double loss = 0;
  std::array<double, kTileRows> losses;
  const auto packed = [&](Trans trans, auto&& run) {
    if (const Parameter<T>* parameter = table.parameter()) return run(parameter->packed(trans));
    PackedB<T> own;
    own.pack(trans, vocab, dim, table.value().data());
    run(own);
  };
  packed(Trans::kYes, [&](const PackedB<T>& to_logits) {
    packed(Trans::kNo, [&](const PackedB<T>& to_hidden) {
      for (size_t r = 0; r < rows; r += kTileRows) {
        const size_t tile = std::min(kTileRows, rows - r);
        const T* h_rows = h.value().data() + r * dim;
        T* l = logits.data();
        // (H1)
        gemm_packed(Trans::kNo, tile, h_rows, dim, to_logits, T{0}, l, ld);
        // (H1) to (H3), (H6)
        head_tile(HeadTile<T>{tile, vocab, l, ld, bias.defined() ? bias.value().data() : nullptr,
                              targets.data() + r, scale, gradient, dbias.defined() ? dbias.data() : nullptr,
                              losses.data()});
        for (size_t i = 0; i < tile; ++i) loss += losses[i];
        // (H4)
        if (dh.defined()) gemm_packed(Trans::kNo, tile, l, ld, to_hidden, T{0}, dh.data() + r * dim, dim);
        // (H5)
        if (dtable.defined()) {
          gemm_own(Trans::kYes, Trans::kNo, vocab, dim, tile, T{1}, l, ld, h_rows, dim, r == 0 ? T{0} : T{1},
                   dtable.data(), dim);
        }
      }
    });
  });

  const Var<T> inputs[] = {h, table, bias};
  Tensor<T> value({1}, static_cast<T>(loss * static_cast<double>(scale)));
  return h.tape().record("head_loss", std::move(value), inputs, [=](const Grads<T>& grads) {
    const T upstream = grads.one().item();
    const auto add = [&](Var<T> to, const Tensor<T>& d) {
      if (!to.requires_grad()) return;
      const GradSlot<T> slot = to.grad_slot();
      if (slot.fresh) {
        storytape::scale(upstream, d.data(), slot.data, d.size());
      } else {
        axpy(upstream, d.data(), slot.data, d.size());
      }
    };
    add(h, dh);
    add(table, dtable);
    add(bias, dbias);
  });
}

template <class T>
std::vector<double> head_losses(const Tensor<T>& h, const Parameter<T>& table, const Parameter<T>* bias,
                                std::span<const int32_t> targets) {
  const size_t vocab = table.shape()[0];
  const size_t dim = table.shape()[1];
  const size_t rows = h.size() / dim;
  check_targets(targets, rows, vocab);
  const size_t ld = vocab + kRowPadding;
  Tensor<T> logits({std::min(rows, kTileRows), ld});
  std::vector<double> losses(rows);
  for (size_t r = 0; r < rows; r += kTileRows) {
    const size_t tile = std::min(kTileRows, rows - r);
    gemm_packed(Trans::kNo, tile, h.data() + r * dim, dim, table.packed(Trans::kYes), T{0}, logits.data(),
                ld);
    head_tile(HeadTile<T>{tile, vocab, logits.data(), ld, bias ? bias->value().data() : nullptr,
                          targets.data() + r, T{1}, false, nullptr, losses.data() + r});
  }
  return losses;
}

#define STORYTAPE_INSTANTIATE(T)                                                                       \
  template Var<T> head_loss(Var<T>, Var<T>, Var<T>, std::span<const int32_t>, T);                      \
  template std::vector<double> head_losses(const Tensor<T>&, const Parameter<T>&, const Parameter<T>*, \
                                           std::span<const int32_t>)
STORYTAPE_INSTANTIATE(float);
STORYTAPE_INSTANTIATE(double);
#undef STORYTAPE_INSTANTIATE

}  // namespace storytape
