// Safetensors files: named tensors in a format that other tools open.
//
//   u64 N | header: N bytes of JSON | data           numbers little-endian, tensors row-major
//
// The header is one object: tensor name -> {"dtype", "shape", "data_offsets": [begin, end]}, and
// "__metadata__" -> an object of strings. It begins with '{' and may be filled up with spaces; N is at most
// 100,000,000. Offsets count from the end of the header. The tensors cover the data without gap or overlap up
// to the last byte of the file. Shape [] is one element; an axis of 0 leaves none, and begin = end. A tensor
// may start at any byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/files.h"

namespace storytape {

enum class Dtype { F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL };

std::string_view dtype_name(Dtype dtype);
size_t dtype_size(Dtype dtype);  // bytes of one element
std::optional<Dtype> dtype_from_name(std::string_view name);

struct TensorInfo {
  std::string name;
  Dtype dtype;
  std::vector<uint64_t> shape;
  uint64_t begin, end;  // bytes, from the end of the header

  uint64_t bytes() const { return end - begin; }
  uint64_t elements() const { return bytes() / dtype_size(dtype); }
};

// A file whose header and size have been checked whole; the data are read when asked for. Every error names
// the file, and the tensor where there is one. Reading is safe from several threads.
class SafetensorsFile {
 public:
  // Throws if the file is missing or breaks any rule of the format: unknown dtype, sizes that disagree or
  // overflow, gaps, overlaps, names that stand twice, bytes too few or too many ("expected N bytes, found
  // M"). Nothing larger than the header is allocated before its length has been held against the size of the
  // file.
  explicit SafetensorsFile(const std::filesystem::path& path);
  // The same for bytes in memory; `name` stands for the path in messages.
  static SafetensorsFile from_bytes(std::string bytes, const std::string& name);

  // As messages show it.
  const std::string& name() const { return name_; }
  // Bytes of the header without its length.
  uint64_t header_bytes() const { return header_bytes_; }
  // Empty if the file has none.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // In the order of the data.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  // Null if the file has no such tensor.
  const TensorInfo* find(std::string_view tensor) const;
  // Throws if the file has no such tensor.
  const TensorInfo& at(std::string_view tensor) const;

  // The bytes as they are. `bytes` must be the tensor's size.
  void read(std::string_view tensor, void* out, size_t bytes) const;
  // Hands the bytes over in pieces of at most 1 MiB, in order.
  void read_pieces(std::string_view tensor,
                   const std::function<void(const void* data, size_t bytes)>& take) const;

  // The values in row-major order; `out` must have the tensor's number of elements.
  // T = float, double: from F64 (rounded for float), F32, F16, BF16.
  // T = int64_t, uint64_t: from the I and U dtypes and BOOL; throws at a value out of range, and at a BOOL
  // byte that is neither 0 nor 1.
  template <class T>
  void read_values(std::string_view tensor, std::span<T> out) const;
  template <class T>
  std::vector<T> read_values(std::string_view tensor) const;

 private:
  SafetensorsFile() = default;
  void load();
  uint64_t size() const { return in_memory_ ? in_memory_->size() : file_.size(); }
  void read_at(uint64_t offset, void* out, size_t bytes) const;

  std::string name_;
  InputFile file_;
  std::optional<std::string> in_memory_;
  uint64_t header_bytes_ = 0;
  std::map<std::string, std::string> metadata_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t, std::less<>> index_;  // name -> place in tensors_
};

// A tensor to be written: contiguous, row-major. `data` may be null where there is no element.
struct TensorView {
  std::string name;
  Dtype dtype;
  std::vector<uint64_t> shape;
  const void* data;
};

// Writes the file through write_file_atomic. Wider dtypes come first and equal ones by name, and the header
// is filled up to a multiple of 8, so that every tensor is aligned to its elements and the same content gives
// the same bytes. Throws if a name stands twice, is "__metadata__" or no UTF-8, if a shape overflows, or if
// the header would exceed 100,000,000 bytes.
void write_safetensors(const std::filesystem::path& path, std::vector<TensorView> tensors,
                       const std::map<std::string, std::string>& metadata = {});

// The bytes that write_safetensors would write.
std::string safetensors_bytes(std::vector<TensorView> tensors,
                              const std::map<std::string, std::string>& metadata = {});

}  // namespace storytape
