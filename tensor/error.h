// Errors that a user can cause: one message that names the thing, what it got and what it wanted.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error \
    "build Storytape without -ffast-math and -ffinite-math-only: NaN guards and masks rest on IEEE arithmetic"
#endif

namespace storytape {

// A run that can't go on: a bad file, a bad shape, a non-finite loss. The program prints what() as one line
// on stderr and exits with 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A wrong call of the program: an unknown name, an option out of range. The program exits with 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void fail_usage(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace storytape
