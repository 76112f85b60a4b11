// The short causal convolution in front of a recurrent mixer: every channel by itself, over its own last K tokens.
// Fu et al., "Hungry Hungry Hippos", 2023; as Mamba and Gated DeltaNet have it, with SiLU on top.
//
// X = [state; x] is one sequence's T + K-1 rows: the state's K-1, the latest last, then x. Rows are [C]:
//   (C1) z_t      = b + Σ_{j<K} w_j ⊙ X_{t+j}             w_{K-1} meets the token itself
//   (C2) y_t      = silu(z_t), or z_t
//   (C3) state'_r = X_{T+r}, r < K-1                       the last K-1 rows
// reverse, given dy and dstate':
//   (C4) dz_t     = dy_t ⊙ silu'(z_t), or dy_t             z is computed again, not kept
//   (C5) dX_e     = Σ_j w_j ⊙ dz_{e-j} over 0 ≤ e-j < T, plus dstate'_{e-T} where e ≥ T;   [dstate; dx] = dX
//   (C6) dw_j     = Σ_t dz_t ⊙ X_{t+j},  summed over the sequences too
//   (C7) db       = Σ_t dz_t
#pragma once

#include <cstddef>

#include "autograd/tape.h"
#include "nn/mixers/state.h"

namespace storytape {

struct ShortConvolutionOptions {
  bool silu = true;
};

template <class T>
struct ShortConvolutionResult {
  Var<T> y;      // [B, T, C]
  Var<T> state;  // [B, K-1, C]
};

// x [B, T, C], w [C, K], K ≥ 1; b [C] and state [B, K-1, C] may be undefined: zeros. An Error names what doesn't
// fit.
template <class T>
ShortConvolutionResult<T> short_convolution(Var<T> x, Var<T> w, Var<T> b = {}, Var<T> state = {},
                                            const ShortConvolutionOptions& options = {});

// What is carried before the first token: "rows" [B, K-1, C], zeros.
template <class T>
State<T> short_convolution_state(size_t batch, size_t channels, size_t width);

// y [B, T, C] of T further tokens, without gradients; the state moves on. Any cut of a sequence into calls gives what
// one call gives. An Error leaves the state as it was.
template <class T>
Tensor<T> short_convolution_extend(State<T>& state, const Tensor<T>& x, const Tensor<T>& w,
                                   const Tensor<T>& b = {}, const ShortConvolutionOptions& options = {});

}  // namespace storytape
