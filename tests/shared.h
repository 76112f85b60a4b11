// Where the golden data lie: $STORYTAPE_SHARED, or ../shared beside the checkout. Absent data skip a test,
// visibly.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "tests/catch.h"

namespace storytape::test {

inline std::optional<std::filesystem::path> shared_dir() {
  const char* set = std::getenv("STORYTAPE_SHARED");
  const std::filesystem::path path =
      set ? set : std::filesystem::path(STORYTAPE_SOURCE_DIR) / ".." / "shared";
  if (std::filesystem::is_directory(path)) return path;
  return std::nullopt;
}

}  // namespace storytape::test

// Leaves the test with a visible word when the golden data are absent.
#define STORYTAPE_NEED_SHARED(variable)                                               \
  const auto variable##_found = ::storytape::test::shared_dir();                      \
  if (!variable##_found) {                                                            \
    WARN("skipped: no golden data (set STORYTAPE_SHARED, or put them at ../shared)"); \
    return;                                                                           \
  }                                                                                   \
  const std::filesystem::path variable = *variable##_found
