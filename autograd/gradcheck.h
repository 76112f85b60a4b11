// Proof of gradients. Each registered op, at each of its examples, for every input and every output (one
// alone and all together), under random cotangents:
//
//   1. the double kernel against the complex step of the scalar reference: relative error ≤ 1e-10; values
//   too;
//   2. the same against central differences of the kernel's own values (4 points, step scaled to |x|): ≤
//   1e-7;
//   3. the float kernel against the double one: within a multiple of float rounding;
//   4. memory is filled with NaN beforehand, gradients are asked for fresh, on top of what is there, for each
//   input
//      alone and for one variable in two places: all must agree. NaN or Inf anywhere, a gradient that is zero
//      where the reference's isn't, and an input that the op has changed fail.
//
// An error is max|a-b| / max|b| over one tensor. Where a difference straddles a kink, the point is moved off
// it and the row says how many elements moved; a kink that can't be left fails, with that word.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/registry.h"

namespace storytape {

// The verdict on one input of one example, or, where `input` is "-> y", on the values of output y.
struct GradRow {
  std::string op;
  std::string face;
  std::string example;
  std::string input;
  double worst_complex = 0;     // relative error against the reference
  double worst_difference = 0;  // relative error against central differences
  double worst_float = 0;       // float against double, in units of 2^-24
  size_t moved = 0;             // elements that were moved off a kink
  bool ok = true;
  std::string why = {};  // what failed first, with its numbers; empty if ok
};

struct GradCheckOptions {
  uint64_t seed = 1;  // of cotangents, sampled elements and directions
  double complex_bound = 1e-10;
  double difference_bound = 1e-7;
};

// Runs gradient_cases(pattern). Deterministic for a seed. An op that throws gives a row that says what it
// threw.
std::vector<GradRow> gradcheck(std::string_view pattern = "", const GradCheckOptions& options = {});

// One case, registered or not.
std::vector<GradRow> check_case(const GradCase& c, const GradCheckOptions& options = {});

}  // namespace storytape
