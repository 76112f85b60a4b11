// RWKV's token shift: each channel of a token mixed with the same channel of the token before. Seed chapter
// "Token Shift: One Look Back, for Free".
//
//   (T1) y_t = μ x_t + (1-μ) x_{t-1}                    x_0, the token before the first, is given or 0
//   (T2) the state handed on is x_T
//
//   reverse, given dy and ds, the gradient of the state handed on; dy_{T+1} = 0
//   (T3) dx_t = μ dy_t + (1-μ) dy_{t+1},   dx_T += ds
//   (T4) dx_0 = (1-μ) dy_1
//   (T5) dμ = Σ dy_t (x_t - x_{t-1})                    over tokens and sequences
#pragma once

#include "autograd/tape.h"

namespace storytape {

template <class T>
struct TokenShiftResult {
  Var<T> y;     // [B, T, C]
  Var<T> last;  // [B, C], x of the last token
};

// x [B, T, C], T ≥ 1; mu [C], any values, 1 is the identity and 0 a delay by one token, both exactly; x_prev
// [B, C], undefined for 0. All of it differentiable. An Error names what doesn't fit.
template <class T>
TokenShiftResult<T> token_shift(Var<T> x, Var<T> mu, Var<T> x_prev = {});

// Adds its examples to the list that gradients are proven by.
void register_token_shift();

}  // namespace storytape
