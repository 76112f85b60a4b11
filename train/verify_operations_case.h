// One case of golden operations: its tensors, attributes and tolerances.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/tensor.h"
#include "train/safetensors.h"

namespace storytape {

class GoldenCase {
 public:
  // `entry` is the case's in the catalogue. Throws if the file can't be read.
  GoldenCase(const nlohmann::json& entry, const std::filesystem::path& folder);

  // "in.q", "out.o", ... in the order of the file.
  std::vector<std::string> tensors() const;
  bool has(std::string_view tensor) const { return file_.find(tensor) != nullptr; }
  Shape shape(std::string_view tensor) const;
  template <class T>
  Tensor<T> tensor(std::string_view name) const;
  std::vector<int32_t> ids(std::string_view name) const;

  // An attribute of the case; an Error if it is missing or of another kind.
  double number(const std::string& attribute) const;
  std::string text(const std::string& attribute) const;

  // Allowed error of an element whose reference is `reference`, in a tensor whose largest one is `largest`:
  // float   atol of the tensor + rtol·|reference|
  // double  atol_abs + atol_rel_to_max·|largest| + rtol·|reference|
  double allowed(std::string_view tensor, bool single, double reference, double largest) const;

 private:
  nlohmann::json entry_;
  SafetensorsFile file_;
};

// How far a computed tensor is from the reference.
struct GoldenError {
  double ratio = 0;    // largest error / allowed error; infinite where a value is not finite
  std::string detail;  // where that is, with its numbers; empty while ratio ≤ 1
};
template <class T>
GoldenError golden_error(const GoldenCase& golden, const std::string& tensor, const Tensor<T>& computed);

}  // namespace storytape
