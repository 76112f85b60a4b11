#include "train/safetensors_format.h"

#include <algorithm>
#include <array>

#include "tensor/error.h"
#include "train/files.h"

namespace storytape {
namespace {

struct DtypeEntry {
  Dtype dtype;
  std::string_view name;
  size_t size;
};

constexpr std::array<DtypeEntry, 13> kDtypes = {{
    {Dtype::F64, "F64", 8},
    {Dtype::F32, "F32", 4},
    {Dtype::F16, "F16", 2},
    {Dtype::BF16, "BF16", 2},
    {Dtype::I64, "I64", 8},
    {Dtype::I32, "I32", 4},
    {Dtype::I16, "I16", 2},
    {Dtype::I8, "I8", 1},
    {Dtype::U64, "U64", 8},
    {Dtype::U32, "U32", 4},
    {Dtype::U16, "U16", 2},
    {Dtype::U8, "U8", 1},
    {Dtype::BOOL, "BOOL", 1},
}};

const DtypeEntry& entry(Dtype dtype) {
  return *std::find_if(kDtypes.begin(), kDtypes.end(), [&](const DtypeEntry& e) { return e.dtype == dtype; });
}

}  // namespace

std::string_view dtype_name(Dtype dtype) {
  return entry(dtype).name;
}

size_t dtype_size(Dtype dtype) {
  return entry(dtype).size;
}

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (const DtypeEntry& e : kDtypes)
    if (e.name == name) return e.dtype;
  return std::nullopt;
}

std::optional<uint64_t> checked_tensor_bytes(const std::vector<uint64_t>& shape, Dtype dtype) {
  uint64_t bytes = dtype_size(dtype);
  bool empty = false;
  for (const uint64_t axis : shape) {
    empty = empty || axis == 0;
    if (axis == 0) continue;
    if (bytes > kMostTensorBytes / axis) return std::nullopt;
    bytes *= axis;
  }
  return empty ? 0 : bytes;
}

std::string dtype_list() {
  std::string list;
  for (const DtypeEntry& e : kDtypes) list += (list.empty() ? "" : ", ") + std::string(e.name);
  return list;
}

std::string shown_name(std::string_view name) {
  return "\"" + printable(name, 100) + "\"";
}

std::string shown_shape(const std::vector<uint64_t>& shape) {
  constexpr size_t kMostAxes = 16;
  const auto first = shape.begin();
  if (shape.size() <= kMostAxes) return fmt::format("[{}]", fmt::join(shape, ", "));
  return fmt::format("[{}, ... {} axes]", fmt::join(first, first + kMostAxes, ", "), shape.size());
}

}  // namespace storytape
