#include "train/verify_safetensors.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tensor/error.h"
#include "train/files.h"
#include "train/json.h"
#include "train/safetensors.h"
#include "train/sha256.h"

namespace storytape {
namespace {

using nlohmann::json;

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

template <class Value>
void expect_equal(std::string_view what, const Value& found, const Value& expected) {
  if (found != expected)
    fail("{}: {} where {} is expected", what, printable(json(found).dump()),
         printable(json(expected).dump()));
}

// Runs `open`, which has to refuse; returns its message.
std::string expect_refusal(std::string_view what, const std::function<void()>& open) {
  std::string message;
  try {
    open();
  } catch (const Error& error) {
    message = error.what();
  }
  if (message.empty()) fail("{} is read, not refused", what);
  constexpr size_t kLongestMessage = 1000;
  if (message.size() > kLongestMessage || message.find_first_of("\r\n") != message.npos)
    fail("{} is refused with more than one line: {}", what, printable(message));
  return message;
}

// The file of a case, held against the catalogue's size and digest.
std::string case_bytes(const std::filesystem::path& path, const json& entry) {
  std::string bytes = read_file(path);
  expect_equal<uint64_t>("the golden file's size", bytes.size(), entry.at("bytes").get<uint64_t>());
  expect_equal("the golden file's digest", sha256_hex(bytes), entry.at("sha256").get<std::string>());
  return bytes;
}

std::string tensor_bytes(const SafetensorsFile& file, const TensorInfo& tensor) {
  std::string bytes(tensor.bytes(), '\0');
  file.read(tensor.name, bytes.data(), bytes.size());
  return bytes;
}

std::map<std::string, std::string> expected_metadata(const json& value) {
  return value.is_null() ? std::map<std::string, std::string>()
                         : value.get<std::map<std::string, std::string>>();
}

// The tensor of a catalogue entry, with dtype and shape compared.
const TensorInfo& expect_tensor(const SafetensorsFile& file, const json& entry) {
  const TensorInfo& tensor = file.at(entry.at("name").get_ref<const std::string&>());
  const std::string what = "tensor \"" + printable(tensor.name) + "\"";
  expect_equal(what + " dtype", std::string(dtype_name(tensor.dtype)), entry.at("dtype").get<std::string>());
  expect_equal(what + " shape", tensor.shape, entry.at("shape").get<std::vector<uint64_t>>());
  return tensor;
}

bool same_value(double found, const json& expected) {
  double value = 0;
  if (expected == "nan") return std::isnan(found);
  if (expected == "inf" || expected == "-inf") {
    value = std::numeric_limits<double>::infinity() * (expected == "inf" ? 1 : -1);
  } else {
    value = expected.get<double>();
  }
  return found == value && std::signbit(found) == std::signbit(value);
}

template <class T>
void expect_first(const SafetensorsFile& file, const TensorInfo& tensor, const json& expected) {
  const std::vector<T> values = file.read_values<T>(tensor.name);
  for (size_t i = 0; i < expected.size(); ++i) {
    bool same = false;
    if constexpr (std::is_floating_point_v<T>) {
      same = same_value(values.at(i), expected[i]);
    } else {
      same = values.at(i) == expected[i].get<T>();
    }
    if (!same)
      fail("tensor \"{}\" value {}: {} where {} is expected", printable(tensor.name), i, values[i],
           expected[i].dump());
  }
}

void expect_content(const SafetensorsFile& file, const TensorInfo& tensor, const json& entry) {
  constexpr size_t kFirst = 8;  // values that the catalogue quotes
  const std::string what = "tensor \"" + printable(tensor.name) + "\"";
  expect_equal(what + " data_offsets", std::vector<uint64_t>{tensor.begin, tensor.end},
               entry.at("data_offsets").get<std::vector<uint64_t>>());
  const std::string bytes = tensor_bytes(file, tensor);
  Sha256 pieces;
  file.read_pieces(tensor.name, [&](const void* data, size_t count) { pieces.update(data, count); });
  expect_equal(what + " digest", sha256_hex(bytes), entry.at("sha256").get<std::string>());
  expect_equal(what + " digest in pieces", pieces.hex(), entry.at("sha256").get<std::string>());

  const size_t first = std::min<uint64_t>(kFirst, tensor.elements());
  expect_equal(what + " first_hex", hex(std::string_view(bytes).substr(0, first * dtype_size(tensor.dtype))),
               entry.at("first_hex").get<std::string>());
  const json& values = entry.at("first");
  if (values.is_null()) return;
  expect_equal(what + " count of first values", values.size(), first);
  switch (tensor.dtype) {
    case Dtype::F64:
    case Dtype::F32:
    case Dtype::F16:
    case Dtype::BF16:
      return expect_first<double>(file, tensor, values);
    case Dtype::U64:
      return expect_first<uint64_t>(file, tensor, values);
    default:
      return expect_first<int64_t>(file, tensor, values);
  }
}

// Writes what was read, and reads that: the same content, aligned, and the same bytes when written once more.
void expect_round_trip(const SafetensorsFile& file) {
  std::vector<std::string> data;
  for (const TensorInfo& tensor : file.tensors()) data.push_back(tensor_bytes(file, tensor));
  std::vector<TensorView> views;
  for (size_t i = 0; i < data.size(); ++i) {
    const TensorInfo& tensor = file.tensors()[i];
    views.push_back({tensor.name, tensor.dtype, tensor.shape, data[i].data()});
  }
  const std::string written = safetensors_bytes(views, file.metadata());
  const SafetensorsFile again = SafetensorsFile::from_bytes(written, "what was written");

  expect_equal("written metadata", again.metadata(), file.metadata());
  expect_equal("written number of tensors", again.tensors().size(), file.tensors().size());
  expect_equal<uint64_t>("written header, bytes beyond a multiple of 8", again.header_bytes() % 8, 0);
  for (size_t i = 0; i < data.size(); ++i) {
    const TensorInfo& before = file.tensors()[i];
    const TensorInfo& after = again.at(before.name);
    const std::string what = "written tensor \"" + printable(before.name) + "\"";
    expect_equal(what + " dtype", std::string(dtype_name(after.dtype)),
                 std::string(dtype_name(before.dtype)));
    expect_equal(what + " shape", after.shape, before.shape);
    expect_equal(what + " bytes", hex(tensor_bytes(again, after)), hex(data[i]));
    expect_equal<uint64_t>(what + " misalignment", after.begin % dtype_size(after.dtype), 0);
  }
  std::reverse(views.begin(), views.end());
  expect_equal("digest when written from another order",
               sha256_hex(safetensors_bytes(views, file.metadata())), sha256_hex(written));
}

std::string check_valid(const std::filesystem::path& path, const json& entry) {
  const std::string bytes = case_bytes(path, entry);
  std::optional<SafetensorsFile> opened;
  try {
    opened.emplace(path);
  } catch (const Error& error) {
    if (!entry.at("optional").get<bool>()) throw;
    // Refusing an optional dtype is right if the message names it.
    for (const json& tensor : entry.at("tensors")) {
      const auto& dtype = tensor.at("dtype").get_ref<const std::string&>();
      const bool named =
          std::string_view(error.what()).find("dtype \"" + dtype + "\"") != std::string_view::npos;
      if (!dtype_from_name(dtype) && named)
        return fmt::format("an optional dtype, refused by name: {}", error.what());
    }
    throw;
  }
  const SafetensorsFile& file = *opened;
  expect_equal("header bytes", file.header_bytes(), entry.at("header_bytes").get<uint64_t>());
  expect_equal("metadata", file.metadata(), expected_metadata(entry.at("metadata")));
  const json& tensors = entry.at("tensors");
  expect_equal("number of tensors", file.tensors().size(), tensors.size());
  for (const json& tensor : tensors) expect_content(file, expect_tensor(file, tensor), tensor);
  for (size_t i = 1; i < file.tensors().size(); ++i)
    expect_equal("a tensor's begin, against the end before it", file.tensors()[i].begin,
                 file.tensors()[i - 1].end);
  expect_round_trip(file);

  constexpr size_t kCutEverywhere = 3000;  // bytes; cutting larger files at each byte takes long
  if (bytes.size() >= kCutEverywhere) return "content, written again";
  for (size_t cut = 0; cut < bytes.size(); ++cut)
    expect_refusal(fmt::format("the file cut to {} bytes", cut),
                   [&] { SafetensorsFile::from_bytes(bytes.substr(0, cut), "a cut file"); });
  expect_refusal("the file with one more byte",
                 [&] { SafetensorsFile::from_bytes(bytes + '\0', "a longer file"); });
  return fmt::format("content, written again, {} cuts and one byte more refused", bytes.size());
}

std::string check_invalid(const std::filesystem::path& path, const json& entry) {
  case_bytes(path, entry);
  return expect_refusal("the file", [&] { SafetensorsFile file(path); });
}

void expect_as_library(const SafetensorsFile& file, const json& entry) {
  const json& reads = entry.at("library_reads");
  expect_equal("number of tensors", file.tensors().size(), reads.size());
  for (const json& read : reads) {
    const TensorInfo& tensor = expect_tensor(file, read);
    expect_equal("tensor \"" + printable(tensor.name) + "\" bytes", hex(tensor_bytes(file, tensor)),
                 read.at("hex").get<std::string>());
  }
  expect_equal("metadata", file.metadata(), expected_metadata(entry.at("library_metadata")));
}

std::string check_odd(const std::filesystem::path& path, const json& entry) {
  case_bytes(path, entry);
  const auto& reader = entry.at("reader").get_ref<const std::string&>();
  std::optional<SafetensorsFile> file;
  const auto open = [&] { file.emplace(path); };
  if (reader == "refuse") return expect_refusal("the file", open);
  if (reader == "accept") {
    open();
  } else {
    try {
      open();
    } catch (const Error&) {
      return expect_refusal("the file", open);
    }
  }
  expect_as_library(*file, entry);
  return "read as the library reads it";
}

using Check = std::string (*)(const std::filesystem::path& path, const json& entry);

VerifyRow run_case(const std::filesystem::path& folder, const std::string& section, Check check,
                   const json& entry) {
  VerifyRow row{section, "without a name", "", false, false};
  try {
    row.case_name = entry.at("name").get<std::string>();
    const std::string reader = section == "odd" ? entry.at("reader").get<std::string>() : "";
    row.unknown = check == nullptr ||
                  (section == "odd" && reader != "refuse" && reader != "accept" && reader != "either");
    if (row.unknown) {
      row.detail = "a case of a kind that this program does not know";
    } else {
      row.detail = check(folder / entry.at("file").get<std::string>(), entry);
      row.ok = true;
    }
  } catch (const std::exception& error) {  // Error, or a member of the catalogue that isn't as described
    row.detail = printable(error.what(), 1000);
  }
  return row;
}

}  // namespace

std::vector<VerifyRow> verify_safetensors(const std::filesystem::path& folder) {
  const std::filesystem::path catalogue = folder / "index.json";
  const std::string name = printable(catalogue.native(), 4096);
  const json index = parse_json(read_file(catalogue), name);
  constexpr std::string_view kFormat = "golden-safetensors 1";
  if (!index.is_object() || index.value("format", json()) != kFormat)
    fail("{}: not of the format {}", name, kFormat);

  const std::map<std::string, Check> checks = {
      {"invalid", check_invalid}, {"odd", check_odd}, {"valid", check_valid}};
  std::vector<VerifyRow> rows;
  for (const auto& [section, entries] : index.items()) {
    if (!entries.is_array()) continue;
    const auto check = checks.find(section);
    for (const json& entry : entries)
      rows.push_back(run_case(folder, section, check == checks.end() ? nullptr : check->second, entry));
  }
  if (rows.empty()) fail("{} lists no cases", name);
  return rows;
}

}  // namespace storytape
