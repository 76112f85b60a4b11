#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

#include "tensor/error.h"
#include "train/json.h"
#include "train/safetensors.h"
#include "train/safetensors_format.h"

namespace storytape {
namespace {

// A name or text as the header holds it.
std::string json_text(const std::string& text, std::string_view what) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    fail("cannot write the {} {}: it is no UTF-8", what, shown_name(text));
  }
}

// The length and the header of a file with these tensors, which are brought into the order of the data.
std::string encode_header(std::vector<TensorView>& tensors,
                          const std::map<std::string, std::string>& metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorView& a, const TensorView& b) {
    return std::tuple(dtype_size(b.dtype), std::string_view(a.name)) <
           std::tuple(dtype_size(a.dtype), std::string_view(b.name));
  });
  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"" + std::string(kSafetensorsMetadata) + "\":";
    char separator = '{';
    for (const auto& [key, value] : metadata) {
      header += std::exchange(separator, ',') + json_text(key, "metadata key");
      header += ':' + json_text(value, "metadata value");
    }
    header += '}';
  }
  std::set<std::string_view> seen;
  uint64_t begin = 0;
  for (const TensorView& tensor : tensors) {
    if (tensor.name == kSafetensorsMetadata)
      fail("cannot write a tensor named {}: the name is reserved", shown_name(kSafetensorsMetadata));
    if (!seen.insert(tensor.name).second) fail("cannot write two tensors named {}", shown_name(tensor.name));
    const std::optional<uint64_t> bytes = checked_tensor_bytes(tensor.shape, tensor.dtype);
    if (!bytes || *bytes > kMostTensorBytes - begin)
      fail("cannot write tensor {}: shape {} is too large", shown_name(tensor.name),
           shown_shape(tensor.shape));
    if (header.size() > 1) header += ',';
    header += json_text(tensor.name, "tensor name");
    header += fmt::format(":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          dtype_name(tensor.dtype), fmt::join(tensor.shape, ","), begin, begin + *bytes);
    begin += *bytes;
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > kMostSafetensorsHeaderBytes)
    fail("cannot write a safetensors header of {} bytes: the limit is {}", header.size(),
         kMostSafetensorsHeaderBytes);
  const uint64_t length = header.size();
  std::string encoded(kSafetensorsLengthBytes, '\0');
  std::memcpy(encoded.data(), &length, kSafetensorsLengthBytes);
  return encoded + header;
}

void encode_file(std::vector<TensorView>& tensors, const std::map<std::string, std::string>& metadata,
                 const WritePiece& write) {
  const std::string header = encode_header(tensors, metadata);
  write(header.data(), header.size());
  for (const TensorView& tensor : tensors) {
    const uint64_t bytes = checked_tensor_bytes(tensor.shape, tensor.dtype).value();
    if (bytes > 0) write(tensor.data, bytes);
  }
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::vector<TensorView> tensors,
                       const std::map<std::string, std::string>& metadata) {
  write_file_atomic(path, [&](const WritePiece& write) { encode_file(tensors, metadata, write); });
}

std::string safetensors_bytes(std::vector<TensorView> tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::string bytes;
  encode_file(tensors, metadata,
              [&](const void* data, size_t count) { bytes.append(static_cast<const char*>(data), count); });
  return bytes;
}

}  // namespace storytape
