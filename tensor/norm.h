// Layer norm (Ba, Kiros and Hinton, 2016) and RMS norm (Zhang and Sennrich, 2019) over rows.
//
// Arrays: x, y, dy, dx [rows, n]; gamma, beta, dgamma, dbeta [n]; mean, rstd [rows]. Nothing is allocated.
// The order of every sum is fixed per SIMD target. y may be x; dx may be dy.
#pragma once

#include <cstddef>

namespace storytape {

//   (N1) y = (x - mean) rstd gamma + beta,   rstd = 1 / sqrt(variance + eps), the population variance (over
//   n)
// Two passes, the mean corrected by the mean of the deviations: a large common offset costs nothing, and
// equal values give y = beta up to rounding (exactly where n = 1). gamma and beta may be null (1 and 0).
// Float rows whose squares overflow or vanish are summed in double. mean and rstd may be null.
void layer_norm(const float* x, const float* gamma, const float* beta, float eps, float* y, float* mean,
                float* rstd, size_t rows, size_t n);
void layer_norm(const double* x, const double* gamma, const double* beta, double eps, double* y, double* mean,
                double* rstd, size_t rows, size_t n);

// From the forward's x, mean and rstd; with g = dy gamma and h = (x - mean) rstd:
//   (N2) dx     = rstd (g - mean_n(g) - h mean_n(g h))      dx = or, with `accumulate`, dx +=
//   (N3) dgamma += sum_rows dy h,  dbeta += sum_rows dy     always added; either may be null
// dx may be null.
void layer_norm_backward(const float* x, const float* gamma, const float* mean, const float* rstd,
                         const float* dy, float* dx, bool accumulate, float* dgamma, float* dbeta,
                         size_t rows, size_t n);
void layer_norm_backward(const double* x, const double* gamma, const double* mean, const double* rstd,
                         const double* dy, double* dx, bool accumulate, double* dgamma, double* dbeta,
                         size_t rows, size_t n);

//   (R1) y = x rstd gamma,   rstd = 1 / sqrt(mean_n(x^2) + eps)
// gamma may be null (1), rstd may be null.
void rms_norm(const float* x, const float* gamma, float eps, float* y, float* rstd, size_t rows, size_t n);
void rms_norm(const double* x, const double* gamma, double eps, double* y, double* rstd, size_t rows,
              size_t n);

// With g = dy gamma and h = x rstd:
//   (R2) dx     = rstd (g - h mean_n(g h))
//   (R3) dgamma += sum_rows dy h
void rms_norm_backward(const float* x, const float* gamma, const float* rstd, const float* dy, float* dx,
                       bool accumulate, float* dgamma, size_t rows, size_t n);
void rms_norm_backward(const double* x, const double* gamma, const double* rstd, const double* dy, double* dx,
                       bool accumulate, double* dgamma, size_t rows, size_t n);

}  // namespace storytape
