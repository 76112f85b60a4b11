// Shared by the readers of tokenizer files.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "tensor/error.h"
#include "train/files.h"

namespace storytape {

// Throws "WHAT: ..." for the file named `what`.
template <class... Args>
[[noreturn]] void refuse_file(const std::string& what, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(what + ": " + fmt::format(format, std::forward<Args>(args)...));
}

inline bool is_empty_text(const nlohmann::json& value) {
  return value.is_string() && value.get_ref<const std::string&>().empty();
}

// A value as it may stand in a message: JSON in ASCII, cut if it is long.
inline std::string shown(const nlohmann::json& value) {
  return printable(value.dump(-1, ' ', true), 60);
}

}  // namespace storytape
