// The choice of a SIMD target.
#include "tensor/simd.h"

#include "tensor/elementwise.h"
#include "tests/kernel_testing.h"

namespace storytape::test {
namespace {

TEST_CASE("every SIMD target listed can be forced, and the best is taken again") {
  const std::string before = simd_target();
  const std::vector<std::string> targets = simd_targets();
  REQUIRE_FALSE(targets.empty());
  for (const std::string& name : targets) {
    force_simd_target(name);
    CHECK(simd_target() == name);
    CHECK(simd_targets() == targets);
    const float x[] = {1, 2, 3};
    float y[3];
    scale(2.0f, x, y, 3);
    CHECK((y[0] == 2 && y[1] == 4 && y[2] == 6));
  }
  force_simd_target("");
  CHECK(simd_target() == targets.front());
  force_simd_target(before);
}

TEST_CASE("an unknown SIMD target is refused, naming those there are") {
  const std::string before = simd_target();
  try {
    force_simd_target("AVX9");
    FAIL("AVX9 was taken");
  } catch (const UsageError& e) {
    const std::string message = e.what();
    CHECK(message.find("AVX9") != std::string::npos);
    CHECK(message.find(simd_targets().front()) != std::string::npos);
    CHECK(message.find('\n') == std::string::npos);
  }
  CHECK(simd_target() == before);
}

}  // namespace
}  // namespace storytape::test
