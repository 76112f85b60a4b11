// The three ways to compute one mixer: same function, same gradients, different cost.
#pragma once

#include <string_view>

namespace storytape {

enum class Face {
  kRecurrent,  // token by token, the definition: O(1) state, what decoding uses
  kParallel,   // masked products over all tokens at once, composed of primitive ops: O(T²)
  kChunkwise,  // products within chunks, a state between them: O(T·chunk), what training uses
};

inline std::string_view to_string(Face face) {
  switch (face) {
    case Face::kRecurrent:
      return "recurrent";
    case Face::kParallel:
      return "parallel";
    case Face::kChunkwise:
      return "chunkwise";
  }
  return "";
}

}  // namespace storytape
