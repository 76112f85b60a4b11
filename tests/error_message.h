// What an error says to its user.
#pragma once

#include <string>

#include "tensor/error.h"

namespace storytape::test {

// The message of the Error that the call throws; empty if it throws none.
template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace storytape::test
