// Which known name somebody may have meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace storytape {

// The known name that the fewest single changes of a letter turn into `name`; "" if none is near: within a third of its
// letters, or two.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

}  // namespace storytape
