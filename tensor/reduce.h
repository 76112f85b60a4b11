// Sums, maxima, softmax and log-sum-exp.
//
// The order of every sum is fixed. sum, dot, sum_axis, mean_axis and what builds on them add in one order on
// every SIMD target: 16 running sums over blocks, blocks in a balanced tree. Softmax and log_sum_exp add in
// an order that is fixed per target. Pointer forms allocate nothing.
#pragma once

#include <cstddef>

#include "tensor/tensor.h"

namespace storytape {

float sum(const float* x, size_t n);
double sum(const double* x, size_t n);
float dot(const float* a, const float* b, size_t n);
double dot(const double* a, const double* b, size_t n);
// Sum of squares in double: floats of any size don't overflow.
double sum_of_squares(const float* x, size_t n);
double sum_of_squares(const double* x, size_t n);
// No NaN and no infinity among the values. True for n = 0.
bool all_finite(const float* x, size_t n);
bool all_finite(const double* x, size_t n);

// x seen as [outer, m, inner], row-major; y [outer, inner] = the sums over the middle axis; zeros for m = 0.
void sum_middle(const float* x, float* y, size_t outer, size_t m, size_t inner, bool accumulate = false);
void sum_middle(const double* x, double* y, size_t outer, size_t m, size_t inner, bool accumulate = false);
// The same for maxima. NaN if there is one among the values; -inf for m = 0.
void max_middle(const float* x, float* y, size_t outer, size_t m, size_t inner);
void max_middle(const double* x, double* y, size_t outer, size_t m, size_t inner);
// The gradient of max_middle: dy goes to the first of the equal maxima (the lowest index of the axis), all
// others get 0, so that the gradients sum to dy. The first NaN counts as the maximum.
void max_middle_backward(const float* x, const float* dy, float* dx, size_t outer, size_t m, size_t inner,
                         bool accumulate);
void max_middle_backward(const double* x, const double* dy, double* dx, size_t outer, size_t m, size_t inner,
                         bool accumulate);
// The lowest index of the largest value; the first NaN if there is one. REQUIRES: n > 0.
size_t argmax(const float* x, size_t n);
size_t argmax(const double* x, size_t n);

// Over one axis; `keepdims` leaves it with size 1. Throws Error for an axis that isn't there, and for the
// maximum or the mean of an axis of size 0.
template <class T>
Tensor<T> sum_axis(const Tensor<T>& x, size_t axis, bool keepdims = false);
template <class T>
Tensor<T> mean_axis(const Tensor<T>& x, size_t axis, bool keepdims = false);
template <class T>
Tensor<T> max_axis(const Tensor<T>& x, size_t axis, bool keepdims = false);
// Over all values, to a tensor of shape []. The sum of no values is 0; their mean and maximum are an Error.
template <class T>
Tensor<T> sum_all(const Tensor<T>& x);
template <class T>
Tensor<T> mean_all(const Tensor<T>& x);
template <class T>
Tensor<T> max_all(const Tensor<T>& x);

// x, y, dy, dx: [rows, n]. The largest value is taken off first, so values of any size do.
// A row of -inf alone (everything masked) gives zeros, and zero gradient. A row with +inf gives the limit:
// its infinite entries share 1. A row with NaN is NaN. y may be x; dx may be dy.
void softmax(const float* x, float* y, size_t rows, size_t n);
void softmax(const double* x, double* y, size_t rows, size_t n);
void softmax_backward(const float* y, const float* dy, float* dx, size_t rows, size_t n, bool accumulate);
void softmax_backward(const double* y, const double* dy, double* dx, size_t rows, size_t n, bool accumulate);
// Over the last axis.
template <class T>
Tensor<T> softmax(const Tensor<T>& x);

// y [rows] = log sum_j exp(x[row][j]), x [rows, n]. -inf for a row of -inf alone or n = 0; +inf where x has
// +inf.
void log_sum_exp(const float* x, float* y, size_t rows, size_t n);
void log_sum_exp(const double* x, double* y, size_t rows, size_t n);
// dx[row][j] = dy[row] softmax(x[row])[j], from y = log_sum_exp(x).
void log_sum_exp_backward(const float* x, const float* y, const float* dy, float* dx, size_t rows, size_t n,
                          bool accumulate);
void log_sum_exp_backward(const double* x, const double* y, const double* dy, double* dx, size_t rows,
                          size_t n, bool accumulate);

}  // namespace storytape
