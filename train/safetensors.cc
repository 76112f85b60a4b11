#include "train/safetensors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstring>
#include <functional>
#include <utility>

#include "tensor/error.h"
#include "train/json.h"
#include "train/safetensors_format.h"

namespace storytape {
namespace {

static_assert(std::endian::native == std::endian::little, "values are copied as they lie in the file");

constexpr size_t kPiece = size_t{1} << 20;

// Reads the header's JSON into metadata and tensors. `what`: the beginning of every message.
class HeaderReader {
 public:
  explicit HeaderReader(const std::string& what) : what_(what) {}

  void read(std::string_view text) {
    if (!text.starts_with('{')) fail("{}: the header does not begin with '{{'", what_);
    const size_t last = text.find_last_not_of(' ');
    if (text[last] != '}') fail("{}: the header does not end with '}}' and spaces", what_);
    const nlohmann::json header = parse_json(text.substr(0, last + 1), what_ + ": header");
    for (const auto& [name, value] : header.items()) {
      if (name == kSafetensorsMetadata) {
        read_metadata(value);
      } else {
        read_tensor(name, value);
      }
    }
  }

  std::map<std::string, std::string> metadata;
  std::vector<TensorInfo> tensors;  // by name

 private:
  void read_metadata(const nlohmann::json& members) {
    if (!members.is_object())
      fail("{}: {} is of type {}, not an object of strings", what_, kSafetensorsMetadata,
           members.type_name());
    for (const auto& [key, value] : members.items()) {
      if (!value.is_string())
        fail("{}: {} member {} is of type {}, not a string", what_, kSafetensorsMetadata, shown_name(key),
             value.type_name());
      metadata.emplace(key, value.get_ref<const std::string&>());
    }
  }

  void read_tensor(const std::string& name, const nlohmann::json& members) {
    const std::string tensor = fmt::format("{}: tensor {}", what_, shown_name(name));
    if (!members.is_object()) fail("{} is of type {}, not an object", tensor, members.type_name());
    for (const char* wanted : {"dtype", "shape", "data_offsets"})
      if (!members.contains(wanted)) fail("{} has no {}", tensor, wanted);
    for (const auto& [member, value] : members.items())
      if (member != "dtype" && member != "shape" && member != "data_offsets")
        fail("{} has an unknown member {}", tensor, shown_name(member));

    const nlohmann::json& dtype_value = members["dtype"];
    if (!dtype_value.is_string())
      fail("{}: dtype is of type {}, not a string", tensor, dtype_value.type_name());
    const auto& dtype_text = dtype_value.get_ref<const std::string&>();
    const std::optional<Dtype> dtype = dtype_from_name(dtype_text);
    if (!dtype) fail("{}: dtype {} is none of {}", tensor, shown_name(dtype_text), dtype_list());

    std::vector<uint64_t> shape = whole_numbers(tensor + ": shape", members["shape"]);
    const std::vector<uint64_t> offsets = whole_numbers(tensor + ": data_offsets", members["data_offsets"]);
    if (offsets.size() != 2) fail("{}: data_offsets holds {} numbers, expected 2", tensor, offsets.size());
    const auto [begin, end] = std::pair(offsets[0], offsets[1]);
    if (end > kMostTensorBytes) fail("{}: data_offsets [{}, {}] lie beyond any file", tensor, begin, end);
    if (begin > end) fail("{}: data_offsets [{}, {}] end before they begin", tensor, begin, end);
    const std::optional<uint64_t> bytes = checked_tensor_bytes(shape, *dtype);
    if (!bytes) fail("{}: shape {} of {} is too large", tensor, shown_shape(shape), dtype_text);
    if (end - begin != *bytes)
      fail("{}: shape {} of {} takes {} bytes, but data_offsets [{}, {}] hold {}", tensor, shown_shape(shape),
           dtype_text, *bytes, begin, end, end - begin);
    tensors.push_back({name, *dtype, std::move(shape), begin, end});
  }

  static std::vector<uint64_t> whole_numbers(const std::string& what, const nlohmann::json& values) {
    if (!values.is_array()) fail("{} is of type {}, not an array", what, values.type_name());
    std::vector<uint64_t> numbers;
    numbers.reserve(values.size());
    for (const nlohmann::json& value : values) {
      if (!value.is_number_unsigned())
        fail("{} holds {}, not a whole number below 2^64", what, printable(value.dump(-1, ' ', true), 40));
      numbers.push_back(value.get<uint64_t>());
    }
    return numbers;
  }

  const std::string& what_;
};

// Sorts the tensors by place and checks that neither gap nor overlap is between them. Returns where they end.
uint64_t check_cover(std::vector<TensorInfo>& tensors, const std::string& what) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t covered = 0;
  const TensorInfo* before = nullptr;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.begin > covered)
      fail("{}: bytes {} to {} of the data, before tensor {}, belong to no tensor", what, covered,
           tensor.begin, shown_name(tensor.name));
    if (tensor.begin < covered)
      fail("{}: tensor {} begins at byte {}, inside tensor {}, which ends at {}", what,
           shown_name(tensor.name), tensor.begin, shown_name(before->name), covered);
    covered = tensor.end;
    before = &tensor;
  }
  return covered;
}

// IEEE 754 half precision: 1 sign, 5 exponent, 10 fraction bits.
float float_from_half(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t exponent = half >> 10 & 0x1Fu;
  const uint32_t fraction = half & 0x3FFu;
  if (exponent == 0) return std::copysign(std::ldexp(static_cast<float>(fraction), -24), sign ? -1.0f : 1.0f);
  constexpr uint32_t kBiasDifference = 127 - 15;
  const uint32_t wide = exponent == 0x1F ? 0xFF : exponent + kBiasDifference;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

float float_from_bfloat16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

// Converts elements from the bytes of a file, where they need not be aligned, to type T.
template <class T>
struct Converter {
  const std::string& what;  // begins every message

  void operator()(Dtype dtype, const char* bytes, size_t count, T* out) const {
    if constexpr (std::floating_point<T>) {
      switch (dtype) {
        case Dtype::F64:
          return each<double>(bytes, count, out, std::identity());
        case Dtype::F32:
          return each<float>(bytes, count, out, std::identity());
        case Dtype::F16:
          return each<uint16_t>(bytes, count, out, float_from_half);
        case Dtype::BF16:
          return each<uint16_t>(bytes, count, out, float_from_bfloat16);
        default:
          fail("{} has dtype {}, expected F64, F32, F16 or BF16", what, dtype_name(dtype));
      }
    } else {
      switch (dtype) {
        case Dtype::I64:
          return each<int64_t>(bytes, count, out, std::identity());
        case Dtype::I32:
          return each<int32_t>(bytes, count, out, std::identity());
        case Dtype::I16:
          return each<int16_t>(bytes, count, out, std::identity());
        case Dtype::I8:
          return each<int8_t>(bytes, count, out, std::identity());
        case Dtype::U64:
          return each<uint64_t>(bytes, count, out, std::identity());
        case Dtype::U32:
          return each<uint32_t>(bytes, count, out, std::identity());
        case Dtype::U16:
          return each<uint16_t>(bytes, count, out, std::identity());
        case Dtype::U8:
          return each<uint8_t>(bytes, count, out, std::identity());
        case Dtype::BOOL:
          return each<uint8_t>(bytes, count, out, [this](uint8_t byte) {
            if (byte > 1) fail("{} holds the BOOL byte {}, which is neither 0 nor 1", what, byte);
            return byte;
          });
        default:
          fail("{} has dtype {}, expected whole numbers", what, dtype_name(dtype));
      }
    }
  }

  template <class Source, class Convert>
  void each(const char* bytes, size_t count, T* out, Convert convert) const {
    for (size_t i = 0; i < count; ++i) {
      Source element;
      std::memcpy(&element, bytes + i * sizeof(Source), sizeof(Source));
      const auto value = convert(element);
      if constexpr (std::integral<T>) {
        if (!std::in_range<T>(value)) fail("{} holds {}, which is out of range", what, value);
      }
      out[i] = static_cast<T>(value);
    }
  }
};

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : name_(printable(path.native(), 4096)), file_(path) {
  load();
}

SafetensorsFile SafetensorsFile::from_bytes(std::string bytes, const std::string& name) {
  SafetensorsFile file;
  file.name_ = name;
  file.in_memory_ = std::move(bytes);
  file.load();
  return file;
}

void SafetensorsFile::load() {
  const std::string what = fmt::format("cannot read {} as safetensors", name_);
  if (size() < kSafetensorsLengthBytes)
    fail("{}: expected at least {} bytes for the header's length, found {}", what, kSafetensorsLengthBytes,
         size());
  read_at(0, &header_bytes_, kSafetensorsLengthBytes);
  if (header_bytes_ > kMostSafetensorsHeaderBytes)
    fail("{}: the first 8 bytes announce a header of {} bytes; the limit is {}", what, header_bytes_,
         kMostSafetensorsHeaderBytes);
  if (header_bytes_ > size() - kSafetensorsLengthBytes)
    fail("{}: expected at least {} bytes for length and header, found {}", what,
         kSafetensorsLengthBytes + header_bytes_, size());
  std::string text(header_bytes_, '\0');
  read_at(kSafetensorsLengthBytes, text.data(), text.size());

  HeaderReader header(what);
  header.read(text);
  const uint64_t data_bytes = check_cover(header.tensors, what);
  if (const uint64_t expected = kSafetensorsLengthBytes + header_bytes_ + data_bytes; expected != size())
    fail("{}: expected {} bytes, found {}", what, expected, size());
  metadata_ = std::move(header.metadata);
  tensors_ = std::move(header.tensors);
  for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

const TensorInfo* SafetensorsFile::find(std::string_view tensor) const {
  const auto found = index_.find(tensor);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const TensorInfo& SafetensorsFile::at(std::string_view tensor) const {
  const TensorInfo* info = find(tensor);
  if (!info) fail("{} has no tensor {}", name_, shown_name(tensor));
  return *info;
}

void SafetensorsFile::read_at(uint64_t offset, void* out, size_t bytes) const {
  if (!in_memory_) return file_.read_at(offset, out, bytes);
  if (bytes > 0) std::memcpy(out, in_memory_->data() + offset, bytes);
}

void SafetensorsFile::read(std::string_view tensor, void* out, size_t bytes) const {
  const TensorInfo& info = at(tensor);
  if (bytes != info.bytes())
    fail("{}: tensor {} has {} bytes, expected {}", name_, shown_name(tensor), info.bytes(), bytes);
  read_at(kSafetensorsLengthBytes + header_bytes_ + info.begin, out, bytes);
}

void SafetensorsFile::read_pieces(std::string_view tensor,
                                  const std::function<void(const void* data, size_t bytes)>& take) const {
  const TensorInfo& info = at(tensor);
  std::vector<char> piece(std::min<uint64_t>(kPiece, info.bytes()));
  for (uint64_t done = 0; done < info.bytes();) {
    const size_t bytes = std::min<uint64_t>(piece.size(), info.bytes() - done);
    read_at(kSafetensorsLengthBytes + header_bytes_ + info.begin + done, piece.data(), bytes);
    take(piece.data(), bytes);
    done += bytes;
  }
}

template <class T>
void SafetensorsFile::read_values(std::string_view tensor, std::span<T> out) const {
  const TensorInfo& info = at(tensor);
  if (out.size() != info.elements())
    fail("{}: tensor {} has {} elements, expected {}", name_, shown_name(tensor), info.elements(),
         out.size());
  const std::string what = fmt::format("{}: tensor {}", name_, shown_name(tensor));
  const Converter<T> convert{what};
  convert(info.dtype, nullptr, 0, nullptr);  // a dtype that doesn't fit is refused without elements too
  T* next = out.data();
  read_pieces(tensor,
              [&](const void* data, size_t bytes) {  // pieces hold whole elements: sizes are powers of 2
                const size_t count = bytes / dtype_size(info.dtype);
                convert(info.dtype, static_cast<const char*>(data), count, next);
                next += count;
              });
}

template <class T>
std::vector<T> SafetensorsFile::read_values(std::string_view tensor) const {
  std::vector<T> values(at(tensor).elements());
  read_values(tensor, std::span<T>(values));
  return values;
}

template void SafetensorsFile::read_values(std::string_view, std::span<float>) const;
template void SafetensorsFile::read_values(std::string_view, std::span<double>) const;
template void SafetensorsFile::read_values(std::string_view, std::span<int64_t>) const;
template void SafetensorsFile::read_values(std::string_view, std::span<uint64_t>) const;
template std::vector<float> SafetensorsFile::read_values(std::string_view) const;
template std::vector<double> SafetensorsFile::read_values(std::string_view) const;
template std::vector<int64_t> SafetensorsFile::read_values(std::string_view) const;
template std::vector<uint64_t> SafetensorsFile::read_values(std::string_view) const;

}  // namespace storytape
