#include "nn/mixers/registry.h"

#include "nn/mixers/gated_recurrence.h"
#include "nn/mixers/linear_attention.h"
#include "nn/mixers/softmax_attention.h"
#include "nn/mixers/wkv.h"

namespace storytape {

void register_mixers() {
  static const bool once = [] {
    register_softmax_attention();
    register_softmax_faces();
    register_linear_attention();
    register_gated_recurrence();
    register_wkv();
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace storytape
