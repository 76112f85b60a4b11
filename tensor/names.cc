#include "tensor/names.h"

#include <algorithm>

namespace storytape {
namespace {

// Changes, insertions and deletions of a letter between the two; one row of the table at a time.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  const auto nearest = std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) {
    return edit_distance(a, name) < edit_distance(b, name);
  });
  if (nearest == known.end() || edit_distance(*nearest, name) > std::max<size_t>(2, name.size() / 3))
    return "";
  return *nearest;
}

}  // namespace storytape
