#pragma once

#include <cstdint>

namespace storytape::cli {

// Allocations that the program has made so far: calls of operator new, and tensor blocks taken from the
// system.
uint64_t system_allocations();

}  // namespace storytape::cli
