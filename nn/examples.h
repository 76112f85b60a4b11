// The fused ops of nn/ on the list that gradients are proven by.
#pragma once

namespace storytape {

// linear, gelu_mlp, embed and head_loss with their examples; a second call does nothing.
void register_nn_ops();

}  // namespace storytape
