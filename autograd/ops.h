// All basic differentiable ops.
#pragma once

#include "autograd/ops_arithmetic.h"
#include "autograd/ops_dropout.h"
#include "autograd/ops_loss.h"
#include "autograd/ops_matmul.h"
#include "autograd/ops_norm.h"
#include "autograd/ops_reduce.h"
#include "autograd/ops_shape.h"
#include "autograd/ops_unary.h"

namespace storytape {

// Puts them on the registry's list, with their examples; a second call does nothing.
void register_basic_ops();

}  // namespace storytape
