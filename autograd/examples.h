// Registration of the basic ops by groups; register_basic_ops() calls them all. Each group lies in
// examples_*.cc with the inputs that drive the gradient checks: odd sizes, width 1, batches, broadcasting,
// extremes.
#pragma once

#include <vector>

#include "autograd/ops.h"
#include "autograd/reference.h"
#include "autograd/registry.h"

namespace storytape {

using ComplexInputs = std::vector<ComplexTensor>;

void register_arithmetic_ops();
void register_unary_ops();
void register_matmul_ops();
void register_reduce_ops();
void register_norm_ops();
void register_shape_ops();
void register_loss_ops();

}  // namespace storytape
