// What the reader and the writer of safetensors files share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/safetensors.h"

namespace storytape {

inline constexpr uint64_t kSafetensorsLengthBytes = 8;
inline constexpr uint64_t kMostSafetensorsHeaderBytes = 100'000'000;
inline constexpr std::string_view kSafetensorsMetadata = "__metadata__";

inline constexpr uint64_t kMostTensorBytes = uint64_t{1} << 62;  // keeps every sum far from overflow

// Bytes that a tensor takes; nothing beyond kMostTensorBytes. Axes of 0 are left out of the bound: [2^40,
// 2^40, 0] holds no element, but whoever multiplies its axes in order overflows.
std::optional<uint64_t> checked_tensor_bytes(const std::vector<uint64_t>& shape, Dtype dtype);

// "F64, F32, ...": every dtype.
std::string dtype_list();

// A name or a shape as messages show it.
std::string shown_name(std::string_view name);
std::string shown_shape(const std::vector<uint64_t>& shape);

}  // namespace storytape
