#include "train/metrics.h"

#include "tensor/error.h"
#include "train/json.h"

namespace storytape {

MetricsLog::MetricsLog(const std::filesystem::path& path, size_t step,
                       const std::function<void(const std::string&)>& notice)
    : file_(path) {
  if (const uint64_t dropped = file_.drop_half_line(); dropped && notice) {
    notice(fmt::format("{}: dropped half a line of {} bytes that an interrupted run left", path.string(),
                       dropped));
  }
  const std::string text = read_file(path);
  size_t keep = 0;
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    const std::string what = fmt::format("{} line {}", path.string(), ++number);
    nlohmann::json row = parse_json(std::string_view(text).substr(begin, end - begin), what);
    if (!row.is_object() || !row.contains("step") || !row["step"].is_number_unsigned()) {
      fail("{}: wants an object with a \"step\"", what);
    }
    if (row["step"].get<size_t>() > step) break;
    if (!first_) first_ = row;
    last_ = std::move(row);
    begin = end + 1;
    keep = begin;
  }
  if (keep < text.size()) file_.truncate_to(keep);
}

}  // namespace storytape
