// Golden data of other makers, case by case.
#pragma once

#include <string>

namespace storytape {

struct VerifyRow {
  std::string section;
  std::string case_name;
  std::string detail;  // what was held against the golden data, or what failed
  bool ok = false;
  bool unknown = false;  // a case of a kind that this program doesn't know; it counts as failed
};

}  // namespace storytape
