// The parallel face of the gated mixers: (G3)-(G7) over the whole sequence, composed of primitive ops, so that
// its gradient owes nothing to the derivation of (G8)-(G15) and (R1)-(R9). O(T²) time and memory.
#include "autograd/ops.h"
#include "nn/mixers/gated_recurrence.h"
#include "nn/mixers/parallel_ops.h"

namespace storytape {
namespace {

// The rows that (G3)-(G7) speak of, heads flattened: M = batch·heads, N = T·n_h.
template <class T>
struct GatedRows {
  Var<T> Q;     // [M, T, dk]
  Var<T> K;     // [M, N, dk]
  Var<T> V;     // [M, N, dv]
  Var<T> beta;  // [M, N, 1] or undefined
  Var<T> S;     // [M, dk, dv] or undefined
  Var<T> g;     // [M or 1, N, dk or 1], 1 where a write has no gate
  size_t tokens, steps, writes;
  bool per_channel;

  // Of rows [., N, ...] those of each token's last write.
  Var<T> read(Var<T> x) const {
    const Shape shape = x.shape();
    std::vector<size_t> split{shape[0], tokens, steps}, joined{shape[0], tokens};
    for (size_t axis = 2; axis < shape.rank(); ++axis) {
      split.push_back(shape[axis]);
      joined.push_back(shape[axis]);
    }
    return reshape(slice(reshape(x, Shape(std::span<const size_t>(split))), 2, steps - 1, steps),
                   Shape(std::span<const size_t>(joined)));
  }
  // U of (G5) from A [M, N, N] and V - K̂ S_0.
  Var<T> effective_values(Var<T> A, Var<T> corrected) const {
    return solve_unit_lower(mul(beta, A), mul(beta, corrected));
  }
};

template <class T>
Var<T> by_head(Var<T> x, size_t rows, size_t width) {
  std::vector<size_t> axes{0, 2, 1};
  if (x.shape().rank() == 4) axes.push_back(3);
  const size_t heads = x.shape()[0] * x.shape()[2];
  return reshape(transpose(x, axes), {heads, rows, width});
}

template <class T>
GatedRows<T> rows_of(Var<T> q, Var<T> k, Var<T> v, Var<T> alpha, Var<T> beta, Var<T> S_init, size_t steps) {
  Tape<T>& tape = q.tape();
  const size_t tokens = q.shape()[1], heads = q.shape()[0] * q.shape()[2], dk = q.shape()[3],
               dv = v.shape()[3];
  GatedRows<T> rows;
  rows.tokens = tokens;
  rows.steps = steps;
  rows.writes = tokens * steps;
  rows.Q = by_head(q, tokens, dk);
  rows.K = by_head(k, rows.writes, dk);
  rows.V = by_head(v, rows.writes, dv);
  if (beta.defined()) rows.beta = by_head(beta, rows.writes, 1);
  if (S_init.defined()) rows.S = reshape(S_init, {heads, dk, dv});
  rows.per_channel = alpha.defined() && alpha.shape().rank() == 4;
  if (!alpha.defined()) {
    rows.g = tape.constant(Tensor<T>({1, rows.writes, 1}, T{1}));
    return rows;
  }
  const size_t width = rows.per_channel ? dk : 1;
  Var<T> gates = reshape(by_head(alpha, tokens, width), {heads, tokens, 1, width});
  if (steps > 1) {
    gates = concat<T>({gates, tape.constant(Tensor<T>({heads, tokens, steps - 1, width}, T{1}))}, 2);
  }
  rows.g = reshape(gates, {heads, rows.writes, width});
  return rows;
}

// Q̂ or K̂ times the state, or undefined without one.
template <class T>
Var<T> read_state(const GatedRows<T>& rows, Var<T> x) {
  return rows.S.defined() ? matmul(x, rows.S) : Var<T>();
}
template <class T>
Var<T> plus(Var<T> x, Var<T> y) {
  return y.defined() ? add(x, y) : x;
}
template <class T>
Var<T> minus(Var<T> x, Var<T> y) {
  return y.defined() ? sub(x, y) : x;
}

template <class T>
struct Flat {
  Var<T> o, S;  // [M, T, dv], [M, dk, dv]
};

// λ of every write: (G4).
template <class T>
Var<T> spans(const GatedRows<T>& rows, Var<T> D) {
  const Shape shape = D.shape();
  const Var<T> from_first = reshape(slice(D, 2, 0, 1), {shape[0], rows.writes, shape[3]});
  return mul(from_first, slice(rows.g, 1, 0, 1));
}

template <class T>
Flat<T> by_segments(const GatedRows<T>& rows) {
  const Var<T> D = segment_products(rows.g);  // [M or 1, N, N, C]
  const Shape shape = D.shape();
  const size_t N = rows.writes, C = shape[3];
  const Var<T> span = spans(rows, D);
  // x [M, R, dk] against the keys as they have decayed by each row.
  const auto scores = [&](Var<T> x, Var<T> decay /*[., R, N, C]*/) {
    const size_t M = x.shape()[0], R = x.shape()[1];
    if (!rows.per_channel) {
      return mul(matmul(x, rows.K, Trans::kNo, Trans::kYes), reshape(decay, {shape[0], R, N}));
    }
    return sum(mul(mul(reshape(x, {M, R, 1, C}), reshape(rows.K, {M, 1, N, C})), decay), 3);
  };
  const Var<T> P = scores(rows.Q, rows.read(D));  // (G3)
  const Var<T> Q_hat = mul(rows.Q, rows.read(span));
  const Var<T> K_end = mul(rows.K, reshape(slice(D, 1, N - 1, N), {shape[0], N, C}));  // (G4)
  Var<T> U = rows.V;
  if (rows.beta.defined()) {
    const Var<T> K_hat = mul(rows.K, span);
    U = rows.effective_values(scores(rows.K, D), minus(rows.V, read_state(rows, K_hat)));  // (G5)
  }
  Flat<T> result;
  result.o = plus(matmul(P, U), read_state(rows, Q_hat));  // (G6)
  result.S = matmul(K_end, U, Trans::kYes, Trans::kNo);    // (G7)
  if (rows.S.defined()) {
    const Var<T> whole = reshape(slice(span, 1, N - 1, N), {shape[0], C, 1});
    result.S = add(result.S, mul(rows.S, whole));
  }
  return result;
}

// The same with everything divided by b, the running product of the gates from the start.
template <class T>
Flat<T> rescaled(const GatedRows<T>& rows) {
  const size_t N = rows.writes;
  const Var<T> ones = rows.g.tape().constant(Tensor<T>({1, N, 1}, T{1}));
  const Var<T> causal = reshape(segment_products(ones), {1, N, N});
  const Var<T> b = spans(rows, segment_products(rows.g));  // [M or 1, N, C]
  const Var<T> b_read = rows.read(b);
  const Var<T> whole = reshape(slice(b, 1, N - 1, N), {b.shape()[0], b.shape()[2], 1});
  // Per channel the factors ride on queries and keys; one factor per token rides on values and outputs.
  const Var<T> Q = rows.per_channel ? mul(rows.Q, b_read) : rows.Q;
  const Var<T> K_read = rows.per_channel ? mul(rows.K, b) : rows.K;
  const Var<T> K = rows.per_channel ? div(rows.K, b) : rows.K;
  const Var<T> V = rows.per_channel ? rows.V : div(rows.V, b);

  Var<T> U = V;
  if (rows.beta.defined()) {
    U = rows.effective_values(matmul(K_read, K, Trans::kNo, Trans::kYes), minus(V, read_state(rows, K_read)));
  }
  const Var<T> P = mul(matmul(Q, K, Trans::kNo, Trans::kYes), rows.read(causal));
  Flat<T> result;
  result.o = plus(matmul(P, U), read_state(rows, Q));
  if (!rows.per_channel) result.o = mul(result.o, b_read);
  result.S = mul(plus(matmul(K, U, Trans::kYes, Trans::kNo), rows.S), whole);
  return result;
}

}  // namespace

template <class T>
GatedResult<T> internal::gated_parallel(Var<T> q, Var<T> k, Var<T> v, Var<T> alpha, Var<T> beta,
                                        Var<T> S_init, const GatedOptions& options) {
  const size_t batch = q.shape()[0], tokens = q.shape()[1], heads = q.shape()[2], dk = q.shape()[3];
  const size_t dv = v.shape()[3];
  const GatedRows<T> rows = rows_of(q, k, v, alpha, beta, S_init, options.steps);
  const Flat<T> flat = options.rescale ? rescaled(rows) : by_segments(rows);
  return {transpose(reshape(flat.o, {batch, heads, tokens, dv}), {0, 2, 1, 3}),
          reshape(flat.S, {batch, heads, dk, dv})};
}

template GatedResult<float> internal::gated_parallel(Var<float>, Var<float>, Var<float>, Var<float>,
                                                     Var<float>, Var<float>, const GatedOptions&);
template GatedResult<double> internal::gated_parallel(Var<double>, Var<double>, Var<double>, Var<double>,
                                                      Var<double>, Var<double>, const GatedOptions&);

}  // namespace storytape
