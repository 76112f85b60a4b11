// Runs the golden data for operations, layers and small models.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace storytape {

// One case of the catalogue, computed one way in one type; of a variant that this program doesn't know one
// row alone.
struct OperationRow {
  std::string variant;
  std::string case_name;
  std::string face;   // "recurrent", "parallel", "chunkwise", ... or "op"; empty if unknown
  std::string dtype;  // "float32", "float64"; empty if unknown
  double worst_ratio =
      0;  // largest error / allowed error over all outputs and gradients; infinite where not finite
  std::string detail = {};  // what failed first
  bool ok = false;
  bool unknown = false;
};

struct OperationOptions {
  // Variants to run, by name or with * and ?; empty: all.
  std::vector<std::string> only;
  // Called with the cases done and all cases.
  std::function<void(size_t done, size_t all)> progress;
};

// Rows for every case of FOLDER/index.json, whose format is "safetensors" (tensors named in.X, out.X, up.X,
// grad.X): every output, final states included, and every gradient there is must be within the tolerances
// that the catalogue states. A file that is missing or damaged, and whatever an operation throws, is in the
// row of its case. Throws if there is no readable catalogue of this format, and a UsageError if `only` names
// what is not in it.
std::vector<OperationRow> verify_operations(const std::filesystem::path& folder,
                                            const OperationOptions& options = {});

// "softmax_attention" or "softmax_*" against a name.
bool name_matches(std::string_view pattern, std::string_view name);

}  // namespace storytape
