#include "tensor/shape.h"

#include <algorithm>

namespace storytape {

Shape broadcast(const Shape& a, const Shape& b) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  Shape result = longer;
  const size_t shift = longer.rank() - shorter.rank();
  for (size_t i = 0; i < shorter.rank(); ++i) {
    const size_t l = longer[shift + i];
    const size_t s = shorter[i];
    if (l != s && l != 1 && s != 1) fail("shapes {} and {} don't broadcast", to_string(a), to_string(b));
    result[shift + i] = l == 1 ? s : l;
  }
  return result;
}

}  // namespace storytape
