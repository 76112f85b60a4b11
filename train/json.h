// JSON as strict as the standard (RFC 8259) allows a reader to be.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace storytape {

// Parses one JSON value in UTF-8 and nothing after it. Beyond the grammar it refuses a member that stands
// twice (also when one of the names is written with an escape), nesting deeper than `max_depth` (a number has
// depth 0, [] depth 1), invalid UTF-8, half surrogate pairs, a byte order mark and numbers out of a double's
// range. Neither the stack nor the memory grows faster than the text. A number without fraction and exponent
// becomes an integer if it fits 64 bits. Errors: one line "WHAT: line L, column C: reason"; columns count
// bytes from 1.
nlohmann::json parse_json(std::string_view text, const std::string& what, int max_depth = 64);

}  // namespace storytape
