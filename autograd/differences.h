// Derivatives of an op by finite differences of its own double kernel.
#pragma once

#include <vector>

#include "autograd/registry.h"

namespace storytape::internal {

struct Difference {
  double central = 0;  // fourth order: 4 points
  double right = 0,
         left = 0;  // second order, to one side; at a kink they differ. At the domain's end: central
};

// d<cotangents[set], outputs> / d x[i][e] at x, for each set of cotangents (undefined: zero). x is as before
// on return.
std::vector<Difference> differences(const GradCase& c,
                                    const std::vector<std::vector<Tensor<double>>>& cotangents,
                                    std::vector<Tensor<double>>& x, size_t i, size_t e, double step);

// A power of two near |x|/512, at most 1/512: x ± step is exact, and functions that change over a distance of
// 1, however large x, are resolved.
double step_for(double x);

// The op's outputs at x, nothing recorded.
std::vector<Tensor<double>> values(const GradCase& c, const std::vector<Tensor<double>>& x);

}  // namespace storytape::internal
