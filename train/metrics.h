// metrics.jsonl of a run: one JSON object per logged step, steps strictly rising, appended only.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "train/files.h"

namespace storytape {

class MetricsLog {
 public:
  // Opens the log and drops the rows after `step` (and half a line that a kill left), telling `notice` of the
  // latter.
  MetricsLog(const std::filesystem::path& path, size_t step,
             const std::function<void(const std::string&)>& notice);

  void write(const nlohmann::json& row) { file_.write_line(row.dump()); }
  // The first row that was kept, if any.
  const std::optional<nlohmann::json>& first() const { return first_; }
  const std::optional<nlohmann::json>& last() const { return last_; }

 private:
  AppendFile file_;
  std::optional<nlohmann::json> first_, last_;
};

}  // namespace storytape
