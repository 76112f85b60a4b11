// Normalisations of a head's row: to unit length, as delta rules want their keys; to mean 0 and variance 1 within
// each head, as retention has it (Sun et al., "Retentive Network", 2023).
//
// A row x of n channels, r = 1 over its length:
//   (D1) y  = r x,   r = 1/√(Σ x² + ε)            kSqrtEps
//                    r = 1/max(√(Σ x²), ε)        kClamp
//   (D2) dx = r (dy - y ⟨y, dy⟩);                 dx = r dy where kClamp's ε is the larger
// A row of zeros gives zeros, and the finite gradient dy/√ε or dy/ε.
#pragma once

#include <cstddef>

#include "autograd/ops_norm.h"
#include "autograd/ops_shape.h"

namespace storytape {

enum class L2Mode {
  kSqrtEps,  // ε under the root
  kClamp,    // ε is the least length
};

// x [..., n] → the same shape, rows of the last axis of length 1 (shorter near 0). epsilon > 0, as a T, or an Error
// says so. Float rows whose squares overflow or vanish lose nothing.
template <class T>
Var<T> l2_normalize(Var<T> x, L2Mode mode = L2Mode::kSqrtEps, double epsilon = 1e-6);
// Values alone, for decoding.
template <class T>
Tensor<T> l2_normalize(const Tensor<T>& x, L2Mode mode = L2Mode::kSqrtEps, double epsilon = 1e-6);

// x [..., D] → the same shape: each of `groups` equal blocks of the last axis minus its mean, over √(variance + ε); no
// scale, no shift. It is layer_norm of [..., groups, D/groups], (N1) and (N2) of tensor/norm.h. For [B, T, H, d],
// one group per head's row: groups = 1.
template <class T>
Var<T> group_norm(Var<T> x, size_t groups, double epsilon = 1e-5) {
  const Shape shape = x.shape();
  if (shape.rank() == 0 || groups == 0 || shape.back() % groups != 0) {
    fail("group_norm: the last axis of {} can't be cut into {} equal groups", to_string(shape), groups);
  }
  Shape cut = shape;
  cut[cut.rank() - 1] = groups;
  cut.push_back(shape.back() / groups);
  return reshape(layer_norm(reshape(x, cut), Var<T>(), Var<T>(), epsilon), shape);
}

}  // namespace storytape
