#include "nn/mixers/softmax_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/ops.h"
#include "nn/mixers/kernels/softmax_attention.h"

namespace storytape {
namespace {

// Sizes of one call, checked.
struct Sizes {
  size_t batch, queries, keys, heads, kv_heads, dk, dv;
  ptrdiff_t offset;
  double scale, softcap;
};

template <class T>
Sizes checked_sizes(const Tensor<T>& q, const Tensor<T>& k, const Tensor<T>& v, const Tensor<T>& log_f,
                    const SoftmaxAttentionOptions& options) {
  const char* op = "softmax_attention";
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4) {
    fail("{}: q, k and v want 4 axes [batch, tokens, heads, size], got {}, {} and {}", op,
         to_string(q.shape()), to_string(k.shape()), to_string(v.shape()));
  }
  Sizes n{q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3), v.size(3), 0, 0, 0};
  if (q.size() == 0 || v.size() == 0) {
    fail("{}: q {} and v {} want at least one element", op, to_string(q.shape()), to_string(v.shape()));
  }
  const Shape want_k{n.batch, n.keys, n.kv_heads, n.dk};
  if (!(k.shape() == want_k))
    fail("{}: k is {}, wanted {} beside q {}", op, to_string(k.shape()), to_string(want_k),
         to_string(q.shape()));
  const Shape want_v{n.batch, n.keys, n.kv_heads, n.dv};
  if (!(v.shape() == want_v))
    fail("{}: v is {}, wanted {} beside k {}", op, to_string(v.shape()), to_string(want_v),
         to_string(k.shape()));
  if (n.heads % n.kv_heads != 0) {
    fail("{}: {} query heads can't share {} key and value heads evenly", op, n.heads, n.kv_heads);
  }
  if (options.offset) {
    n.offset = *options.offset;
  } else if (n.keys < n.queries) {
    fail("{}: {} queries but {} keys; say where the queries stand with an offset", op, n.queries, n.keys);
  } else {
    n.offset = static_cast<ptrdiff_t>(n.keys - n.queries);
  }
  n.scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(n.dk)));
  if (!std::isfinite(n.scale)) fail("{}: the scale is {}, wanted a finite number", op, n.scale);
  n.softcap = internal::checked_softcap(options.softcap, log_f.defined());
  if (!log_f.defined()) return n;
  const Shape want_f{n.batch, n.keys, n.heads};
  if (!(log_f.shape() == want_f)) {
    fail("{}: log_f is {}, wanted {}: a gate per key's token and query head", op, to_string(log_f.shape()),
         to_string(want_f));
  }
  if (n.offset + static_cast<ptrdiff_t>(n.queries) > static_cast<ptrdiff_t>(n.keys)) {
    fail("{}: the last query stands at {}, past the last of {} keys and their forget gates", op,
         n.offset + static_cast<ptrdiff_t>(n.queries) - 1, n.keys);
  }
  return n;
}

// The queries that stand at or after the first key; `skipped` queries before them see none.
template <class T>
SoftmaxAttentionArgs<T> kernel_args(const Sizes& n, const Tensor<T>& q, const Tensor<T>& k,
                                    const Tensor<T>& v, const Tensor<T>& log_f, size_t window) {
  const size_t skipped = n.offset < 0 ? std::min(n.queries, static_cast<size_t>(-n.offset)) : 0;
  SoftmaxAttentionArgs<T> args{};
  args.batch = n.batch;
  args.heads = n.heads;
  args.kv_heads = n.kv_heads;
  args.queries = n.queries - skipped;
  args.keys = n.keys;
  args.dk = n.dk;
  args.dv = n.dv;
  args.offset = n.offset < 0 ? 0 : static_cast<size_t>(n.offset);
  args.window = window;
  args.scale = static_cast<T>(n.scale);
  args.softcap = static_cast<T>(n.softcap);
  args.q = q.data() + skipped * n.heads * n.dk;
  args.k = k.data();
  args.v = v.data();
  args.q_rows = n.queries;
  args.kv_rows = n.keys;
  args.log_f = log_f.defined() ? log_f.data() : nullptr;
  return args;
}

template <class T>
Tensor<T> value_or_none(Var<T> x) {
  return x.defined() ? x.value() : Tensor<T>();
}

// Zeros in the first `count` rows of `width` values of each sequence.
template <class T>
void zero_rows(T* x, size_t batch, size_t rows, size_t count, size_t width) {
  for (size_t b = 0; b < batch && count; ++b) std::fill_n(x + b * rows * width, count * width, T{0});
}

// What the backward of the fused faces keeps.
template <class T>
struct Saved {
  Sizes n;
  SoftmaxAttentionOptions options;
  Var<T> q, k, v, log_f;
  Tensor<T> o, max, sum;  // max and sum [B, H, T]; undefined where recomputed

  void backward(const Grads<T>& grads) const {
    const SoftmaxAttentionArgs<T> args =
        kernel_args(n, q.value(), k.value(), v.value(), value_or_none(log_f), options.window);
    const size_t skipped = n.queries - args.queries;
    // In the kernels' order, dq before dk before dv, so that one variable in two places is first set, then
    // added to.
    const auto slot = [](const Var<T>& var) {
      if (!var.defined() || !var.requires_grad()) return SoftmaxAttentionGrad<T>{};
      const GradSlot<T> place = var.grad_slot();
      return SoftmaxAttentionGrad<T>{place.data, !place.fresh};
    };
    SoftmaxAttentionGrads<T> to;
    to.q = slot(q);
    to.k = slot(k);
    to.v = slot(v);
    to.log_f = slot(log_f);
    if (to.q.data) {
      if (!to.q.add) zero_rows(to.q.data, n.batch, n.queries, skipped, n.heads * n.dk);
      to.q.data += skipped * n.heads * n.dk;
    }
    const size_t first = skipped * n.heads * n.dv;
    if (options.face == Face::kRecurrent) {
      softmax_attention_rows_backward(args, grads.data() + first, to);
    } else {
      const SoftmaxAttentionStats<T> stats{const_cast<T*>(max.data()) + skipped,
                                           const_cast<T*>(sum.data()) + skipped};
      softmax_attention_backward(args, o.data() + first, stats, grads.data() + first, to);
    }
  }
};

// 0 where a query sees a key, -∞ elsewhere: [1, 1, group · T, S], a group's heads one after another.
template <class T>
Tensor<T> mask(const Sizes& n, size_t window, size_t group) {
  Tensor<T> m({1, 1, group * n.queries, n.keys}, T{0});
  T* to = m.data();
  for (size_t row = 0; row < group * n.queries; ++row) {
    const ptrdiff_t position = n.offset + static_cast<ptrdiff_t>(row % n.queries);
    for (size_t j = 0; j < n.keys; ++j, ++to) {
      const ptrdiff_t distance = position - static_cast<ptrdiff_t>(j);
      const bool seen = distance >= 0 && (window == 0 || static_cast<size_t>(distance) < window);
      if (!seen) *to = -std::numeric_limits<T>::infinity();
    }
  }
  return m;
}

// (A14) of all pairs, [B, H, T, S], as a product: the gates up to each query by those after each key.
template <class T>
Var<T> biases(const Sizes& n, Var<T> log_f) {
  // -∞ would meet zeros in the product; see (A14) in softmax_attention.h for what stands in for it.
  constexpr T kLowest = T{-1e30f};
  Tensor<T> bounded(log_f.shape()), until({n.queries, n.keys}, T{0}), after({n.keys, n.keys}, T{0});
  for (size_t i = 0; i < bounded.size(); ++i) bounded[i] = log_f.value()[i] < kLowest ? T{0} : T{1};
  for (size_t l = 0; l < n.keys; ++l) {
    for (size_t i = 0; i < n.queries; ++i) {
      if (n.offset + static_cast<ptrdiff_t>(i) >= static_cast<ptrdiff_t>(l)) until[i * n.keys + l] = T{1};
    }
    for (size_t j = 0; j < l; ++j) after[l * n.keys + j] = T{1};
  }
  Tape<T>& tape = log_f.tape();
  const Var<T> gates = select(bounded, log_f, tape.constant(Tensor<T>(log_f.shape(), kLowest)));
  const Var<T> rows = reshape(transpose(gates, {0, 2, 1}), {n.batch, n.heads, 1, n.keys});
  return matmul(mul(rows, tape.constant(until)), tape.constant(after));
}

// (A1)-(A4) as masked products over all pairs; the gradient is the primitive ops' own.
template <class T>
Var<T> parallel(const Sizes& n, Var<T> q, Var<T> k, Var<T> v, Var<T> log_f, size_t window) {
  const size_t group = n.heads / n.kv_heads;
  // Heads that share keys stand one after another along the rows of one product.
  const Var<T> q_rows =
      reshape(transpose(reshape(q, {n.batch, n.queries, n.kv_heads, group, n.dk}), {0, 2, 3, 1, 4}),
              {n.batch, n.kv_heads, group * n.queries, n.dk});
  const Var<T> k_rows = transpose(k, {0, 2, 1, 3});
  const Var<T> v_rows = transpose(v, {0, 2, 1, 3});
  Var<T> logits = scale(matmul(q_rows, k_rows, Trans::kNo, Trans::kYes), n.scale);
  if (n.softcap != 0) logits = scale(tanh(scale(logits, 1 / n.softcap)), n.softcap);  // (A17)
  if (log_f.defined()) {
    logits = add(logits, reshape(biases(n, log_f), {n.batch, n.kv_heads, group * n.queries, n.keys}));
  }
  const Var<T> p = softmax(add(logits, q.tape().constant(mask<T>(n, window, group))));
  const Var<T> o = reshape(matmul(p, v_rows), {n.batch, n.kv_heads, group, n.queries, n.dv});
  return reshape(transpose(o, {0, 3, 1, 2, 4}), {n.batch, n.queries, n.heads, n.dv});
}

}  // namespace

double internal::checked_softcap(double softcap, bool gates) {
  if (softcap != 0 && !(softcap >= 1e-30 && softcap <= 1e30)) {
    fail("softmax_attention: the soft cap is {}, wanted a positive number, or 0 for none", softcap);
  }
  if (softcap != 0 && gates) fail("softmax_attention: a soft cap and forget gates don't go together");
  return softcap;
}

template <class T>
Var<T> softmax_attention(Var<T> q, Var<T> k, Var<T> v, const SoftmaxAttentionOptions& options, Var<T> log_f) {
  const Tensor<T> gates = value_or_none(log_f);
  const Sizes n = checked_sizes(q.value(), k.value(), v.value(), gates, options);
  if (options.face == Face::kParallel) return parallel(n, q, k, v, log_f, options.window);

  const SoftmaxAttentionArgs<T> args = kernel_args(n, q.value(), k.value(), v.value(), gates, options.window);
  const size_t skipped = n.queries - args.queries;
  const size_t first = skipped * n.heads * n.dv;
  const bool wanted = q.requires_grad() || k.requires_grad() || v.requires_grad() ||
                      (log_f.defined() && log_f.requires_grad());
  const bool keeps = q.tape().recording() && wanted;
  Tensor<T> o({n.batch, n.queries, n.heads, n.dv});
  zero_rows(o.data(), n.batch, n.queries, skipped, n.heads * n.dv);
  Tensor<T> max, sum;
  if (options.face == Face::kRecurrent) {
    softmax_attention_rows_forward(args, o.data() + first);
  } else {
    SoftmaxAttentionStats<T> stats{};
    if (keeps) {
      max = Tensor<T>({n.batch, n.heads, n.queries});
      sum = Tensor<T>({n.batch, n.heads, n.queries});
      stats = {max.data() + skipped, sum.data() + skipped};
    }
    softmax_attention_forward(args, o.data() + first, stats);
  }
  const Saved<T> saved{n, options, q, k, v, log_f, keeps ? o : Tensor<T>(), max, sum};
  return q.tape().record("softmax_attention", std::move(o), {q, k, v, log_f},
                         [saved](const Grads<T>& grads) { saved.backward(grads); });
}

template Var<float> softmax_attention(Var<float>, Var<float>, Var<float>, const SoftmaxAttentionOptions&,
                                      Var<float>);
template Var<double> softmax_attention(Var<double>, Var<double>, Var<double>, const SoftmaxAttentionOptions&,
                                       Var<double>);

}  // namespace storytape
