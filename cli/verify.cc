// storytape verify
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "cli/command.h"
#include "cli/progress.h"
#include "train/files.h"
#include "train/json.h"
#include "train/verify_operations.h"
#include "train/verify_safetensors.h"
#include "train/verify_tokenizer.h"

namespace storytape::cli {
namespace {

constexpr const char* kOperations = "safetensors";
constexpr const char* kTokenizers = "golden-tokenizer 1";
constexpr const char* kFiles = "golden-safetensors 1";

struct Options {
  std::string folder;
  std::vector<std::string> only;
};

// What all kinds of golden data come to.
struct Result {
  uint64_t passed = 0, failed = 0, unknown = 0;
  nlohmann::json rows = nlohmann::json::array();
  std::string text;  // the table

  void count(bool ok, bool is_unknown) { ++(is_unknown ? unknown : ok ? passed : failed); }
};

std::string format_of(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder))
    fail("{} is no folder; wanted one with golden data", folder.string());
  const std::string path = (folder / "index.json").string();
  const nlohmann::json index = parse_json(read_file(path), path);
  if (!index.is_object() || !index.contains("format") || !index["format"].is_string()) {
    fail("{}: wants a text \"format\"", path);
  }
  const std::string format = index["format"].get<std::string>();
  if (format != kOperations && format != kTokenizers && format != kFiles) {
    fail("{}: format \"{}\" is not known; there are \"{}\", \"{}\" and \"{}\"", path, printable(format),
         kOperations, kTokenizers, kFiles);
  }
  return format;
}

std::string ratio_text(double ratio) {
  return std::isfinite(ratio) ? fmt::format("{:.1e}", ratio) : "not finite";
}

// One line per variant: its worst ratios in both types.
std::string operations_table(const std::vector<OperationRow>& rows) {
  struct Summary {
    std::vector<std::string> faces;
    size_t runs = 0, failed = 0, unknown = 0;
    double worst32 = 0, worst64 = 0;
  };
  std::vector<std::string> order;
  std::map<std::string, Summary> summaries;
  for (const OperationRow& row : rows) {
    if (!summaries.contains(row.variant)) order.push_back(row.variant);
    Summary& s = summaries[row.variant];
    ++s.runs;
    s.unknown += row.unknown;
    s.failed += !row.ok && !row.unknown;
    if (!row.face.empty() && std::find(s.faces.begin(), s.faces.end(), row.face) == s.faces.end()) {
      s.faces.push_back(row.face);
    }
    double& worst = row.dtype == "float64" ? s.worst64 : s.worst32;
    worst = std::max(worst, row.worst_ratio);
  }
  std::vector<std::vector<std::string>> cells = {
      {"variant", "runs", "float", "double", "verdict", "computed by"}};
  for (const std::string& variant : order) {
    const Summary& s = summaries[variant];
    const bool unknown = s.unknown == s.runs;
    cells.push_back({variant, std::to_string(s.runs), unknown ? "" : ratio_text(s.worst32),
                     unknown ? "" : ratio_text(s.worst64),
                     unknown    ? "unknown"
                     : s.failed ? fmt::format("{} FAILED", s.failed)
                                : "ok",
                     fmt::format("{}", fmt::join(s.faces, "; "))});
  }
  return "worst error / allowed error of all outputs and gradients\n\n" + table(cells);
}

Result run_operations(const Options& o) {
  OperationOptions options;
  options.only = o.only;
  ProgressBar bar("verify");
  options.progress = [&](size_t done, size_t all) { bar.update(done, all); };
  const std::vector<OperationRow> rows = verify_operations(o.folder, options);
  bar.finish();
  Result result;
  for (const OperationRow& row : rows) {
    result.count(row.ok, row.unknown);
    // JSON has no infinity.
    const double ratio = std::min(row.worst_ratio, std::numeric_limits<double>::max());
    result.rows.push_back({{"variant", row.variant},
                           {"case", row.case_name},
                           {"face", row.face},
                           {"dtype", row.dtype},
                           {"worst_ratio", row.unknown ? nlohmann::json() : nlohmann::json(ratio)},
                           {"ok", row.ok},
                           {"unknown", row.unknown},
                           {"detail", row.detail}});
  }
  result.text = operations_table(rows);
  for (const OperationRow& row : rows) {
    if (row.ok || row.unknown) continue;
    result.text +=
        fmt::format("\n{} {} {} {}: {}", row.variant, row.case_name, row.face, row.dtype, row.detail);
  }
  return result;
}

Result run_files(const Options& o, const std::string& format) {
  std::vector<VerifyRow> rows =
      format == kTokenizers ? verify_tokenizer(o.folder) : verify_safetensors(o.folder);
  for (const std::string& pattern : o.only) {
    const auto fits = [&](const VerifyRow& row) { return name_matches(pattern, row.section); };
    if (std::none_of(rows.begin(), rows.end(), fits)) {
      fail_usage("no section in {} matches \"{}\"", o.folder, printable(pattern));
    }
  }
  if (!o.only.empty()) {
    std::erase_if(rows, [&](const VerifyRow& row) {
      return std::none_of(o.only.begin(), o.only.end(),
                          [&](const std::string& pattern) { return name_matches(pattern, row.section); });
    });
  }
  Result result;
  std::vector<std::string> order;
  std::map<std::string, std::array<size_t, 3>> sections;  // passed, failed, unknown
  std::string failures;
  for (const VerifyRow& row : rows) {
    result.count(row.ok, row.unknown);
    if (!sections.contains(row.section)) order.push_back(row.section);
    ++sections[row.section][row.unknown ? 2 : row.ok ? 0 : 1];
    if (!row.ok) failures += fmt::format("\n{} {}: {}", row.section, row.case_name, row.detail);
    result.rows.push_back({{"section", row.section},
                           {"case", row.case_name},
                           {"ok", row.ok},
                           {"unknown", row.unknown},
                           {"detail", row.detail}});
  }
  std::vector<std::vector<std::string>> cells = {{"section", "passed", "failed", "unknown"}};
  for (const std::string& section : order) {
    const auto& [passed, failed, unknown] = sections[section];
    cells.push_back({section, std::to_string(passed), std::to_string(failed), std::to_string(unknown)});
  }
  result.text = table(cells) + failures;
  return result;
}

int verify(const Options& o, const Global& global) {
  const std::string format = format_of(o.folder);
  const Result result = format == kOperations ? run_operations(o) : run_files(o, format);
  if (global.json) {
    print_json({{"passed", result.passed},
                {"failed", result.failed},
                {"unknown", result.unknown},
                {"format", format},
                {"results", result.rows}});
  } else {
    print(fmt::format("{}\n{} passed, {} failed, {} unknown\n", result.text, result.passed, result.failed,
                      result.unknown));
  }
  return result.failed || result.unknown ? 1 : 0;
}

}  // namespace

void add_verify(const Program& program) {
  CLI::App* command =
      program.command("verify", "hold operations, tokenizer and files against golden data",
                      "  storytape verify ../shared/golden\n"
                      "  storytape verify ../shared/golden --only softmax_attention --only \"linear_*\"\n"
                      "  storytape verify ../shared/golden-tokenizer --json\n");
  auto o = std::make_shared<Options>();
  command->add_option("folder", o->folder, "folder with an index.json, whose \"format\" says what it holds")
      ->required()
      ->type_name("DIR");
  command
      ->add_option(
          "--only", o->only,
          "only these variants (or sections, of tokenizers and files); * and ? stand for any characters")
      ->allow_extra_args(false)
      ->type_name("PATTERN");
  command->callback([o, &run = program.run, &global = program.global] {
    run = [o, &global] { return verify(*o, global); };
  });
}

}  // namespace storytape::cli
