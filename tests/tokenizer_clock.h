// A clock for tests of how time grows: it stands still while the machine does other work.
#pragma once

#include <ctime>

namespace storytape::test {

inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace storytape::test
