// Elementwise functions and arithmetic of arrays, float and double.
//
// Pointer forms take arrays of n values that may lie anywhere (no alignment wanted); an output may be the
// same array as an input, but must not overlap it otherwise. They allocate nothing. For given values the
// result doesn't depend on where in the array a value stands, nor on n.
#pragma once

#include <cstddef>
#include <string>

#include "tensor/tensor.h"

namespace storytape {

enum class Unary {
  kExp,
  kLog,
  kTanh,
  kSigmoid,
  kSoftplus,    // log(1 + exp(x))
  kLogSigmoid,  // -softplus(-x)
  kSilu,        // x sigmoid(x)
  kGeluErf,     // x Phi(x), the exact GELU
  kGeluTanh,    // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  kEluPlusOne,  // x + 1 for x > 0, else exp(x)
  kSqrt,
  kSquare,
  kNeg,
  kReciprocal,
};
inline constexpr Unary kUnaryOps[] = {Unary::kExp,      Unary::kLog,        Unary::kTanh, Unary::kSigmoid,
                                      Unary::kSoftplus, Unary::kLogSigmoid, Unary::kSilu, Unary::kGeluErf,
                                      Unary::kGeluTanh, Unary::kEluPlusOne, Unary::kSqrt, Unary::kSquare,
                                      Unary::kNeg,      Unary::kReciprocal};

// "exp", "gelu_erf", ...
std::string to_string(Unary op);
// Whether f'(x) is computed from x, from y = f(x), or from neither (kNeg). Never from both, so a tape saves
// one.
bool derivative_needs_input(Unary op);
bool derivative_needs_output(Unary op);

// y = f(x). Accuracy: tensor/kernels/math-inl.h.
void unary(Unary op, const float* x, float* y, size_t n);
void unary(Unary op, const double* x, double* y, size_t n);
template <class T>
Tensor<T> unary(Unary op, const Tensor<T>& x);

// dx = dy f'(x), or dx += with `accumulate`. x or y may be null where the derivative doesn't need it.
void unary_backward(Unary op, const float* x, const float* y, const float* dy, float* dx, size_t n,
                    bool accumulate);
void unary_backward(Unary op, const double* x, const double* y, const double* dy, double* dx, size_t n,
                    bool accumulate);

enum class Binary { kAdd, kSub, kMul, kDiv };

// Rows of n values each. A row stride is the distance from a row's start to the next one's (0: the same row
// each time); an inner stride is 1, or 0 for one value that stands for the whole row. y's rows lie n apart.
struct BinaryRows {
  size_t rows, n;
  size_t a_row_stride, a_stride;
  size_t b_row_stride, b_stride;
};
void binary_rows(Binary op, const BinaryRows& rows, const float* a, const float* b, float* y);
void binary_rows(Binary op, const BinaryRows& rows, const double* a, const double* b, double* y);

// y = a op b, element by element.
template <class T>
void binary(Binary op, const T* a, const T* b, T* y, size_t n) {
  binary_rows(op, {1, n, n, 1, n, 1}, a, b, y);
}

// a op b under numpy's broadcasting rule. Throws Error for shapes that don't broadcast.
template <class T>
Tensor<T> binary(Binary op, const Tensor<T>& a, const Tensor<T>& b);

template <class T>
Tensor<T> add(const Tensor<T>& a, const Tensor<T>& b) {
  return binary(Binary::kAdd, a, b);
}
template <class T>
Tensor<T> sub(const Tensor<T>& a, const Tensor<T>& b) {
  return binary(Binary::kSub, a, b);
}
template <class T>
Tensor<T> mul(const Tensor<T>& a, const Tensor<T>& b) {
  return binary(Binary::kMul, a, b);
}
template <class T>
Tensor<T> div(const Tensor<T>& a, const Tensor<T>& b) {
  return binary(Binary::kDiv, a, b);
}

// The reverse of broadcasting `shape` to x's shape: x summed over the axes that were repeated, in the order
// of sum_axis. Shares x's buffer where nothing was. Throws Error where `shape` doesn't broadcast to x's.
template <class T>
Tensor<T> reduce_to(const Tensor<T>& x, const Shape& shape);
// x repeated along the axes that broadcasting to `shape` repeats.
template <class T>
Tensor<T> broadcast_to(const Tensor<T>& x, const Shape& shape);

// y += x
void add_into(float* y, const float* x, size_t n);
void add_into(double* y, const double* x, size_t n);
// y += a x
void axpy(float a, const float* x, float* y, size_t n);
void axpy(double a, const double* x, double* y, size_t n);
// y = a x
void scale(float a, const float* x, float* y, size_t n);
void scale(double a, const double* x, double* y, size_t n);
// y += w (x - y)
void lerp(float w, const float* x, float* y, size_t n);
void lerp(double w, const double* x, double* y, size_t n);

// dst = the sum of `count` arrays of n values, added in a tree that depends on `count` alone: the first half
// (the largest power of two below `count`) plus the rest, each half alike. dst may be blocks[0]. REQUIRES:
// count >= 1.
void tree_sum(float* dst, const float* const* blocks, size_t count, size_t n);
void tree_sum(double* dst, const double* const* blocks, size_t count, size_t n);

// One AdamW step (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019) on n values.
struct AdamW {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double bias1 = 1;       // 1 - beta1^t, t = 1 for the first step
  double bias2 = 1;       // 1 - beta2^t
  double grad_scale = 1;  // factor of every gradient: clipping
};
// p, m, v are updated; g is read.
void adamw(const AdamW& step, float* p, float* m, float* v, const float* g, size_t n);
void adamw(const AdamW& step, double* p, double* m, double* v, const double* g, size_t n);

}  // namespace storytape
