#include "train/verify_operations.h"

#include <fnmatch.h>

#include <algorithm>
#include <limits>

#include "tensor/error.h"
#include "train/files.h"
#include "train/json.h"
#include "train/verify_operations_run.h"

namespace storytape {
namespace {

const GoldenFaces& known() {
  static const GoldenFaces faces = [] {
    GoldenFaces all;
    add_basic_operations(all);
    add_sequence_operations(all);
    add_training_operations(all);
    add_mixers(all);
    add_gated_mixers(all);
    add_wkv(all);
    add_models(all);
    add_recurrent_layers(all);
    add_attention_layers(all);
    add_hybrid_models(all);
    return all;
  }();
  return faces;
}

struct CatalogueCase {
  std::string variant, name;
  nlohmann::json entry;
};

std::vector<CatalogueCase> read_catalogue(const std::filesystem::path& folder) {
  const std::string path = (folder / "index.json").string();
  const nlohmann::json index = parse_json(read_file(path), path);
  if (!index.is_object() || !index.contains("format") || index["format"] != "safetensors") {
    fail("{}: wants \"format\": \"safetensors\"", path);
  }
  if (!index.contains("cases") || !index["cases"].is_array() || index["cases"].empty()) {
    fail("{}: wants a list \"cases\" with at least one case", path);
  }
  std::vector<CatalogueCase> cases;
  for (const nlohmann::json& entry : index["cases"]) {
    const auto text = [&](const char* name) {
      if (!entry.is_object() || !entry.contains(name) || !entry[name].is_string()) {
        fail("{}: case {} wants a text \"{}\"", path, cases.size(), name);
      }
      return entry[name].get<std::string>();
    };
    cases.push_back({text("variant"), text("case"), entry});
  }
  return cases;
}

template <class T>
OperationRow run_face(const CatalogueCase& c, const GoldenCase& golden, const GoldenFace& face,
                      const std::function<void(GoldenRun<T>&)>& run) {
  OperationRow row{c.variant, c.name, face.name, sizeof(T) == sizeof(float) ? "float32" : "float64"};
  try {
    GoldenRun<T> r(golden);
    run(r);
    const GoldenError worst = r.finish();
    row.worst_ratio = worst.ratio;
    row.detail = worst.detail;
    row.ok = worst.ratio <= 1;
  } catch (const std::exception& error) {
    row.worst_ratio = std::numeric_limits<double>::infinity();
    row.detail = error.what();
  }
  return row;
}

}  // namespace

bool name_matches(std::string_view pattern, std::string_view name) {
  return fnmatch(std::string(pattern).c_str(), std::string(name).c_str(), 0) == 0;
}

std::vector<OperationRow> verify_operations(const std::filesystem::path& folder,
                                            const OperationOptions& options) {
  std::vector<CatalogueCase> cases = read_catalogue(folder);
  for (const std::string& pattern : options.only) {
    const auto fits = [&](const CatalogueCase& c) { return name_matches(pattern, c.variant); };
    if (std::none_of(cases.begin(), cases.end(), fits)) {
      fail_usage("no variant in {} matches \"{}\"", folder.string(), printable(pattern));
    }
  }
  if (!options.only.empty()) {
    std::erase_if(cases, [&](const CatalogueCase& c) {
      return std::none_of(options.only.begin(), options.only.end(),
                          [&](const std::string& pattern) { return name_matches(pattern, c.variant); });
    });
  }
  std::vector<OperationRow> rows;
  for (size_t i = 0; i < cases.size(); ++i) {
    const CatalogueCase& c = cases[i];
    if (options.progress) options.progress(i, cases.size());
    const auto faces = known().find(c.variant);
    if (faces == known().end()) {
      OperationRow row{c.variant, c.name, "", ""};
      row.detail = "no such variant here";
      row.unknown = true;
      rows.push_back(std::move(row));
      continue;
    }
    try {
      const GoldenCase golden(c.entry, folder);
      for (const GoldenFace& face : faces->second) {
        if (face.run32) rows.push_back(run_face(c, golden, face, face.run32));
        if (face.run64) rows.push_back(run_face(c, golden, face, face.run64));
      }
    } catch (const std::exception& error) {
      OperationRow row{c.variant, c.name, "", ""};
      row.worst_ratio = std::numeric_limits<double>::infinity();
      row.detail = error.what();
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace storytape
