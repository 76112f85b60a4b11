// The fused ops of nn/ on the list that gradients are proven by.
#pragma once

namespace storytape {

// linear, gelu_mlp, embed, head_loss, the ops around the mixers and the layers with their examples; a second
// call does nothing.
void register_nn_ops();
// Of them, those around the sequence mixers; register_nn_ops() calls it.
void register_sequence_ops();

}  // namespace storytape
