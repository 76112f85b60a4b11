#include "train/verify_operations_case.h"

#include <cmath>
#include <limits>

#include "tensor/error.h"
#include "train/files.h"

namespace storytape {
namespace {

const nlohmann::json& member(const nlohmann::json& object, std::string_view name, const std::string& where) {
  const std::string key(name);
  if (!object.is_object() || !object.contains(key)) fail("{}: the catalogue states no \"{}\"", where, key);
  return object[key];
}

double number_of(const nlohmann::json& value, const std::string& where) {
  if (!value.is_number()) fail("{}: wants a number, got {}", where, value.dump());
  return value.get<double>();
}

std::string file_name(const nlohmann::json& entry) {
  const nlohmann::json& file = member(entry, "file", "case");
  if (!file.is_string()) fail("case: \"file\" wants a name, got {}", file.dump());
  return file.get<std::string>();
}

std::string index_text(size_t i, const Shape& shape) {
  std::string text;
  for (size_t axis = shape.rank(); axis-- > 0;) {
    text = std::to_string(i % shape[axis]) + (text.empty() ? "" : ", ") + text;
    i /= shape[axis];
  }
  return "[" + text + "]";
}

}  // namespace

GoldenCase::GoldenCase(const nlohmann::json& entry, const std::filesystem::path& folder)
    : entry_(entry), file_(folder / file_name(entry)) {}

std::vector<std::string> GoldenCase::tensors() const {
  std::vector<std::string> names;
  for (const TensorInfo& info : file_.tensors()) names.push_back(info.name);
  return names;
}

Shape GoldenCase::shape(std::string_view tensor) const {
  Shape shape;
  for (const uint64_t size : file_.at(tensor).shape) shape.push_back(size);
  return shape;
}

template <class T>
Tensor<T> GoldenCase::tensor(std::string_view name) const {
  const std::vector<T> values = file_.read_values<T>(name);
  return Tensor<T>(shape(name), std::span<const T>(values));
}

std::vector<int32_t> GoldenCase::ids(std::string_view name) const {
  std::vector<int32_t> ids;
  for (const int64_t id : file_.read_values<int64_t>(name)) {
    if (id < std::numeric_limits<int32_t>::min() || id > std::numeric_limits<int32_t>::max()) {
      fail("{}: {} holds {}, beyond 32 bits", file_.name(), name, id);
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

double GoldenCase::number(const std::string& attribute) const {
  return number_of(member(member(entry_, "attrs", file_.name()), attribute, file_.name()),
                   file_.name() + ": attribute " + attribute);
}

std::string GoldenCase::text(const std::string& attribute) const {
  const nlohmann::json& value = member(member(entry_, "attrs", file_.name()), attribute, file_.name());
  if (!value.is_string())
    fail("{}: attribute {} wants a text, got {}", file_.name(), attribute, value.dump());
  return value.get<std::string>();
}

double GoldenCase::allowed(std::string_view tensor, bool single, double reference, double largest) const {
  const nlohmann::json& limits = member(entry_, single ? "f32" : "f64", file_.name());
  const auto limit = [&](const nlohmann::json& object, std::string_view name) {
    return number_of(member(object, name, file_.name()), fmt::format("{}: tolerance {}", file_.name(), name));
  };
  const double relative = limit(limits, "rtol") * std::abs(reference);
  if (single) return limit(member(limits, "atol", file_.name()), tensor) + relative;
  return limit(limits, "atol_abs") + limit(limits, "atol_rel_to_max") * largest + relative;
}

template <class T>
GoldenError golden_error(const GoldenCase& golden, const std::string& tensor, const Tensor<T>& computed) {
  const Tensor<double> reference = golden.tensor<double>(tensor);
  if (!(computed.shape() == reference.shape())) {
    return {std::numeric_limits<double>::infinity(),
            fmt::format("{} has shape {}, wanted {}", tensor, to_string(computed.shape()),
                        to_string(reference.shape()))};
  }
  double largest = 0;
  for (const double x : reference.values()) largest = std::max(largest, std::abs(x));
  // Affine in |reference|, so two calls tell it all.
  const double at_zero = golden.allowed(tensor, sizeof(T) == sizeof(float), 0, largest);
  const double slope = golden.allowed(tensor, sizeof(T) == sizeof(float), 1, largest) - at_zero;
  if (!(at_zero > 0 && slope >= 0)) fail("the tolerance of {} is {} + {}·|x|", tensor, at_zero, slope);
  GoldenError worst;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double wanted = reference[i];
    const double got = static_cast<double>(computed[i]);
    const double allowed = at_zero + slope * std::abs(wanted);
    double ratio = std::abs(got - wanted) / allowed;
    if (!std::isfinite(ratio)) ratio = std::numeric_limits<double>::infinity();
    if (ratio <= worst.ratio) continue;
    worst.ratio = ratio;
    if (ratio > 1) {
      worst.detail = fmt::format("{}{} is {:.9g}, wanted {:.9g} within {:.2g}", tensor,
                                 index_text(i, reference.shape()), got, wanted, allowed);
    }
  }
  return worst;
}

template Tensor<float> GoldenCase::tensor(std::string_view) const;
template Tensor<double> GoldenCase::tensor(std::string_view) const;
template GoldenError golden_error(const GoldenCase&, const std::string&, const Tensor<float>&);
template GoldenError golden_error(const GoldenCase&, const std::string&, const Tensor<double>&);

}  // namespace storytape
