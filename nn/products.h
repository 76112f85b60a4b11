// The three products of a linear map, as ops use them: forward, to its input, to its weight.
#pragma once

#include "autograd/tape.h"
#include "tensor/gemm.h"

namespace storytape {

// c[rows, n] = beta·c + x·op(W), then the epilogue. A parameter's W is packed once per change of its value;
// any other is packed on the way.
template <class T>
void product(Trans trans_x, size_t rows, const T* x, Var<T> w, Trans trans_w, T beta, T* c,
             const Epilogue<T>& epilogue = {}) {
  const auto run = [&](const PackedB<T>& packed) {
    const size_t ldx = trans_x == Trans::kYes ? rows : packed.k();
    gemm_packed(trans_x, rows, x, ldx, packed, beta, c, packed.n(), epilogue);
  };
  if (const Parameter<T>* parameter = w.parameter()) return run(parameter->packed(trans_w));
  PackedB<T> packed;
  const size_t columns = w.shape().back();
  packed.pack(trans_w, columns ? w.value().size() / columns : 0, columns, w.value().data());
  run(packed);
}

// dW[in, out] (+)= xᵀ·dy over `rows` rows.
template <class T>
void add_outer(size_t rows, size_t in, size_t out, const T* x, const T* dy, GradSlot<T> dw) {
  gemm_own(Trans::kYes, Trans::kNo, in, out, rows, T{1}, x, in, dy, out, dw.beta(), dw.data, out);
}

// db[out] (+)= Σ_rows dy[row, out].
template <class T>
void add_column_sums(size_t rows, size_t out, const T* dy, GradSlot<T> db) {
  column_sums(rows, out, dy, db.beta(), db.data);
}

}  // namespace storytape
