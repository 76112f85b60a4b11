// Safetensors files of our own.
#include <cstdint>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/error.h"
#include "tests/catch.h"
#include "tests/error_message.h"
#include "tests/temporary_folder.h"
#include "train/safetensors.h"

namespace storytape {
namespace {

using test::message_of;
using test::TemporaryFolder;

SafetensorsFile parsed(std::string bytes) {
  return SafetensorsFile::from_bytes(std::move(bytes), "the file");
}

std::string raw(const SafetensorsFile& file, std::string_view tensor) {
  std::string bytes(file.at(tensor).bytes(), '\0');
  file.read(tensor, bytes.data(), bytes.size());
  return bytes;
}

TEST_CASE("B085 scalars and zero-size tensors survive a round trip") {
  const std::vector<double> values = {1.25, -2, 3};
  const std::vector<std::vector<uint64_t>> shapes = {{}, {0}, {2, 0}, {1, 1, 1}, {0, 1'000'000'000'000}, {0}};
  std::vector<TensorView> views;
  for (size_t i = 0; i < shapes.size(); ++i)
    views.push_back({"t" + std::to_string(i), Dtype::F64, shapes[i], values.data()});
  views.push_back({"flag", Dtype::BOOL, {1}, "\1"});
  const SafetensorsFile file = parsed(safetensors_bytes(views));
  REQUIRE(file.tensors().size() == views.size());
  for (size_t i = 0; i < shapes.size(); ++i) {
    const TensorInfo& tensor = file.at(views[i].name);
    CHECK(tensor.shape == shapes[i]);
    const bool empty = i != 0 && i != 3;
    CHECK(tensor.elements() == (empty ? 0u : 1u));
    CHECK(file.read_values<double>(tensor.name) ==
          (empty ? std::vector<double>{} : std::vector<double>{1.25}));
  }
  CHECK(file.read_values<int64_t>("flag") == std::vector<int64_t>{1});
  CHECK(parsed(safetensors_bytes({})).tensors().empty());
}

TEST_CASE("B086 written tensors are aligned to their elements") {
  for (size_t length = 0; length < 20; ++length) {
    const SafetensorsFile written =
        parsed(safetensors_bytes({{"a", Dtype::U8, {3}, "abc"},
                                  {"b", Dtype::F64, {1}, "12345678"},
                                  {std::string(length, 'n'), Dtype::I16, {1}, "xy"},
                                  {"~", Dtype::F32, {1}, "1234"}}));
    CHECK(written.header_bytes() % 8 == 0);
    std::vector<std::string> order;
    for (const TensorInfo& tensor : written.tensors()) {
      CHECK(tensor.begin % dtype_size(tensor.dtype) == 0);
      order.push_back(tensor.name);
    }
    CHECK(order == std::vector<std::string>{"b", "~", std::string(length, 'n'), "a"});
  }
}

TEST_CASE("what is written reads back, whatever the names and the order") {
  std::vector<uint8_t> bytes(3'000'001);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  const std::vector<std::string> names = {"",    "a\"b\\\n\t",         "\u00e9\u4e2d\U0001f600", "__metadata",
                                          "a/b", std::string("\0", 1), std::string(5000, 'n')};
  std::vector<TensorView> views;
  for (size_t i = 0; i < names.size(); ++i) views.push_back({names[i], Dtype::U8, {i, 3}, bytes.data() + i});
  views.push_back({"large", Dtype::U8, {bytes.size()}, bytes.data()});
  const std::map<std::string, std::string> metadata = {{"", ""}, {"k\u0001", "line\nline"}, {"z", "\u00fc"}};
  const TemporaryFolder folder;
  write_safetensors(folder / "f", views, metadata);
  CHECK(read_file(folder / "f") == safetensors_bytes({views.rbegin(), views.rend()}, metadata));

  const SafetensorsFile file(folder / "f");
  CHECK(file.metadata() == metadata);
  for (const TensorView& view : views) {
    const std::string found = raw(file, view.name);
    CHECK(std::memcmp(found.data(), view.data, found.size()) == 0);
    std::string pieces;
    file.read_pieces(view.name, [&](const void* data, size_t count) {
      CHECK(count <= size_t{1} << 20);
      pieces.append(static_cast<const char*>(data), count);
    });
    CHECK(pieces == found);
  }
  CHECK(raw(file, "large").size() == bytes.size());
}

TEST_CASE("the writer refuses what no reader would take") {
  const auto refusal = [](std::vector<TensorView> views,
                          const std::map<std::string, std::string>& metadata = {}) {
    return message_of([&] { safetensors_bytes(views, metadata); });
  };
  const TensorView a{"a", Dtype::U8, {1}, "x"};
  CHECK(refusal({a, {"b", Dtype::F32, {1}, "1234"}, a}) == "cannot write two tensors named \"a\"");
  CHECK(refusal({{"__metadata__", Dtype::U8, {1}, "x"}}) ==
        "cannot write a tensor named \"__metadata__\": the name is reserved");
  CHECK(refusal({{"\xff", Dtype::U8, {1}, "x"}}) == "cannot write the tensor name \"\\xff\": it is no UTF-8");
  CHECK(refusal({a}, {{"k", "\xc0\x80"}}) ==
        "cannot write the metadata value \"\\xc0\\x80\": it is no UTF-8");
  CHECK(refusal({{"a", Dtype::F64, {uint64_t{1} << 32, uint64_t{1} << 32}, "x"}}) ==
        "cannot write tensor \"a\": shape [4294967296, 4294967296] is too large");
  CHECK(refusal({{std::string(100'000'000, 'n'), Dtype::U8, {1}, "x"}}).find("the limit is 100000000") !=
        std::string::npos);
}

TEST_CASE("B090 a safetensors file that can't be written leaves the old one") {
  const TemporaryFolder folder;
  write_safetensors(folder / "f", {{"a", Dtype::U8, {3}, "old"}});
  CHECK_THROWS_AS(
      write_safetensors(folder / "f", {{"a", Dtype::U8, {3}, "new"}, {"a", Dtype::U8, {3}, "new"}}), Error);
  CHECK(raw(SafetensorsFile(folder / "f"), "a") == "old");
  CHECK(message_of([] {
          write_safetensors("/dev/full", {{"a", Dtype::U8, {3}, "new"}});
        }) == "cannot write /dev/full: No space left on device");
  CHECK(message_of([&] { SafetensorsFile file(folder.path()); }) ==
        "cannot read " + folder.path().string() + ": Is a directory");
}

}  // namespace
}  // namespace storytape
