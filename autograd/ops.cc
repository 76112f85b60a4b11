#include "autograd/ops.h"

#include "autograd/examples.h"

namespace storytape {

void register_basic_ops() {
  static const bool once = [] {
    register_arithmetic_ops();
    register_unary_ops();
    register_matmul_ops();
    register_reduce_ops();
    register_norm_ops();
    register_shape_ops();
    register_loss_ops();
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace storytape
