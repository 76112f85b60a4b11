// WKV and the token shift, scalar by scalar: the witness for their faces and gradients. S is double or
// std::complex<double>; see autograd/reference.h for what the complex ones are for.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <limits>

#include "autograd/reference.h"

namespace storytape::reference {

// o_t = (num + e^(u+k_t) v_t) / (den + e^(u+k_t)),  then  num ← e^-w num + e^k_t v_t,  den ← e^-w den + e^k_t;
// num and den in units of e^top, top the largest exponent so far. w, u [C], k, v and o [B, T, C]; mean = num/den
// and logden = log den, [B, C], are read and left as after the last token; logden of -∞ stands for no token.
template <class S>
void wkv(size_t batch, size_t tokens, size_t channels, const S* w, const S* u, const S* k, const S* v,
         S* mean, S* logden, S* o) {
  using std::exp;
  using std::log;
  for (size_t b = 0; b < batch; ++b) {
    for (size_t c = 0; c < channels; ++c) {
      const size_t state = b * channels + c;
      double top = real(logden[state]);
      const auto in_units = [&](const S& x, double unit) { return std::isinf(top) ? S{0} : exp(x - unit); };
      S den = in_units(logden[state], top);
      S num = std::isinf(top) ? S{0} : mean[state] * den;
      for (size_t t = 0; t < tokens; ++t) {
        const size_t at = (b * tokens + t) * channels + c;
        double unit = std::max(top, real(u[c] + k[at]));
        S before = in_units(S{top}, unit);
        const S now = exp(u[c] + k[at] - unit);
        o[at] = (before * num + now * v[at]) / (before * den + now);
        unit = std::max(top - real(w[c]), real(k[at]));
        before = in_units(S{top} - w[c], unit);
        num = before * num + exp(k[at] - unit) * v[at];
        den = before * den + exp(k[at] - unit);
        top = unit;
      }
      mean[state] = num / den;
      logden[state] = top + log(den);
    }
  }
}

// y_t = μ x_t + (1 - μ) x_{t-1}; x_{-1} is x_prev [B, C], or 0 where that is null. x and y [B, T, C], mu [C].
template <class S>
void token_shift(size_t batch, size_t tokens, size_t channels, const S* x, const S* mu, const S* x_prev,
                 S* y) {
  for (size_t b = 0; b < batch; ++b) {
    for (size_t t = 0; t < tokens; ++t) {
      for (size_t c = 0; c < channels; ++c) {
        const size_t at = (b * tokens + t) * channels + c;
        S before{0};
        if (t > 0) before = x[at - channels];
        if (t == 0 && x_prev) before = x_prev[b * channels + c];
        y[at] = mu[c] * x[at] + (1.0 - mu[c]) * before;
      }
    }
  }
}

}  // namespace storytape::reference
