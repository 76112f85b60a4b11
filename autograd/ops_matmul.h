// Matrix products of variables.
#pragma once

#include "autograd/tape.h"
#include "tensor/gemm.h"

namespace storytape {

// y[…, m, n] = op(a)·op(b) over the last two axes, op transposing them where told to: op(a) is [m, k], op(b)
// [k, n]. Leading axes are batches and must be equal, or missing on one side, which then serves every batch.
// An Error names both shapes if they don't fit.
template <class T>
Var<T> matmul(Var<T> a, Var<T> b, Trans trans_a = Trans::kNo, Trans trans_b = Trans::kNo);

extern template Var<float> matmul(Var<float>, Var<float>, Trans, Trans);
extern template Var<double> matmul(Var<double>, Var<double>, Trans, Trans);

}  // namespace storytape
