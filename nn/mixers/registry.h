// The mixers' examples for the list that gradients are proven by, and their variants for the face checks.
#pragma once

namespace storytape {

// Registers every mixer; a second call does nothing.
void register_mixers();

// The variants of softmax attention for the face checks alone; register_mixers() calls it.
void register_softmax_faces();

}  // namespace storytape
