// Safetensors files made by hand and by others.
#include "train/safetensors.h"

#include <fmt/format.h>

#include <sys/resource.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/error.h"
#include "tests/catch.h"
#include "tests/error_message.h"
#include "tests/shared.h"
#include "tests/temporary_folder.h"
#include "train/sha256.h"
#include "train/verify_safetensors.h"

namespace storytape {
namespace {

using test::message_of;
using test::TemporaryFolder;

std::string number_bytes(uint64_t value, size_t bytes = 8) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xFF);
  return text;
}

std::string file_of(const std::string& header, const std::string& data) {
  return number_bytes(header.size()) + header + data;
}

SafetensorsFile parsed(std::string bytes) {
  return SafetensorsFile::from_bytes(std::move(bytes), "the file");
}

void check_refused(const std::string& bytes, const std::string& reason) {
  const std::string message = message_of([&] { parsed(bytes); });
  INFO("message: " << message << ", expected in it: " << reason);
  CHECK(message.rfind("cannot read the file as safetensors: ", 0) == 0);
  CHECK(message.find(reason) != std::string::npos);
  CHECK(message.find_first_of("\r\n") == std::string::npos);
  CHECK(message.size() < 500);
}

std::string raw(const SafetensorsFile& file, std::string_view tensor) {
  std::string bytes(file.at(tensor).bytes(), '\0');
  file.read(tensor, bytes.data(), bytes.size());
  return bytes;
}

// Some tensors of all kinds, with metadata.
std::string sample() {
  static const float weights[6] = {1, 2, 3, -4.5f, 0, 6};
  static const int64_t step = 1'234'567'890'123;
  static const uint8_t state[3] = {0, 127, 255};
  return safetensors_bytes({{"state", Dtype::U8, {3}, state},
                            {"weights", Dtype::F32, {2, 3}, weights},
                            {"step", Dtype::I64, {}, &step},
                            {"nothing", Dtype::F32, {0}, nullptr}},
                           {{"format", "a test"}, {"note", "braces } and \"quotes\""}});
}

TEST_CASE("a safetensors file made by hand reads as it stands") {
  const std::string header =
      R"({ "b":{"dtype":"I16","shape":[2],"data_offsets":[4,8]}, "__metadata__":{"k":"v","":"{}"},)"
      R"("a\u0031":{"shape":[1,1],"data_offsets":[0,4],"dtype":"F32"}}   )";
  const SafetensorsFile file =
      parsed(file_of(header, number_bytes(0x40490fdb, 4) + number_bytes(0xfffe0001, 4)));
  CHECK(file.header_bytes() == header.size());
  CHECK(file.metadata() == std::map<std::string, std::string>{{"k", "v"}, {"", "{}"}});
  REQUIRE(file.tensors().size() == 2);
  const TensorInfo& a = file.tensors()[0];
  CHECK(a.name == "a1");
  CHECK(a.dtype == Dtype::F32);
  CHECK(a.shape == std::vector<uint64_t>{1, 1});
  CHECK(a.elements() == 1);
  CHECK(a.bytes() == 4);
  CHECK(file.read_values<float>("a1") == std::vector<float>{0x1.921fb6p+1f});
  CHECK(file.read_values<int64_t>("b") == std::vector<int64_t>{1, -2});
  CHECK(file.find("c") == nullptr);
  CHECK(message_of([&] { file.at("c"); }) == "the file has no tensor \"c\"");
  char bytes[8];
  CHECK(message_of([&] { file.read("b", bytes, 8); }) == "the file: tensor \"b\" has 4 bytes, expected 8");
  CHECK_THROWS_AS(file.read_values("b", std::span<int64_t>()), Error);
}

TEST_CASE("B079 a header length is held against the file before it is used") {
  const std::string good = sample();
  const uint64_t size = good.size();
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  for (const uint64_t length : {uint64_t{0}, uint64_t{1}, uint64_t{7}, size, size - 7, uint64_t{100'000'000},
                                uint64_t{100'000'001}, uint64_t{1} << 31, (uint64_t{1} << 32) + size - 8,
                                uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 4, ~uint64_t{0} - 7}) {
    INFO("length " << length);
    check_refused(number_bytes(length) + good.substr(8), "");
  }
  check_refused(number_bytes(size - 8) + good.substr(8), "does not end with '}'");
  check_refused(number_bytes(100'000'000) + good.substr(8),
                "expected at least 100000008 bytes for length and header, found " + std::to_string(size));
  for (size_t bytes = 0; bytes <= 16; ++bytes) {
    check_refused(std::string(bytes, '\0'), "");
    check_refused(std::string(bytes, '\xff'), "");
  }
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  CHECK(after.ru_maxrss - before.ru_maxrss < 32 * 1024);  // kilobytes
}

TEST_CASE("B080 shape, dtype and byte span must agree") {
  struct Refused {
    std::string info, reason;
  };
  const auto info = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return "{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
  };
  const std::string f32 = "\"F32\"";
  const std::vector<Refused> cases = {
      {info(f32, "[1000,1000]", "[0,4]"), "shape [1000, 1000] of F32 takes 4000000 bytes"},
      {info(f32, "[]", "[0,0]"), "takes 4 bytes, but data_offsets [0, 0] hold 0"},
      {info(f32, "[0]", "[0,4]"), "takes 0 bytes, but data_offsets [0, 4] hold 4"},
      {info(f32, "[4294967296,4294967296]", "[0,4]"), "too large"},
      {info(f32, "[4611686018427387905]", "[0,4]"), "too large"},
      {info(f32, "[4294967296,4294967296,0]", "[0,0]"), "too large"},
      {info(f32, "[0,4294967296,4294967296]", "[0,0]"), "too large"},
      {info(f32, "[1]", "[4,0]"), "end before they begin"},
      {info(f32, "[1]", "[0]"), "holds 1 numbers, expected 2"},
      {info(f32, "[1]", "[0,4,4]"), "holds 3 numbers, expected 2"},
      {info(f32, "[1]", "[0.0,4.0]"), "data_offsets holds 0.0, not a whole number"},
      {info(f32, "[1]", "[\"0\",\"4\"]"), "data_offsets holds \"0\", not a whole number"},
      {info(f32, "[1]", "[-4,0]"), "data_offsets holds -4, not a whole number"},
      {info(f32, "[1]", "[0,18446744073709551615]"), "lie beyond any file"},
      {info(f32, "[1]", "4"), "data_offsets is of type number"},
      {info(f32, "[-1]", "[0,4]"), "shape holds -1"},
      {info(f32, "[-0]", "[0,0]"), "shape holds 0, not a whole number"},
      {info(f32, "[1e0]", "[0,4]"), "shape holds 1.0"},
      {info(f32, "[true]", "[0,4]"), "shape holds true"},
      {info(f32, "[[1]]", "[0,4]"), "shape holds [1]"},
      {info(f32, "\"[1]\"", "[0,4]"), "shape is of type string"},
      {info("\"f32\"", "[1]", "[0,4]"), "dtype \"f32\" is none of F64, F32"},
      {info("32", "[1]", "[0,4]"), "dtype is of type number"},
      {"{\"shape\":[1],\"data_offsets\":[0,4]}", "has no dtype"},
      {"{\"dtype\":\"F32\",\"data_offsets\":[0,4]}", "has no shape"},
      {"{\"dtype\":\"F32\",\"shape\":[1]}", "has no data_offsets"},
      {"{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\\n\":1}", "unknown member \"x\\x0a\""},
      {"[\"F32\",[1],[0,4]]", "is of type array, not an object"},
      {"null", "is of type null, not an object"},
  };
  for (const Refused& refused : cases) {
    check_refused(file_of("{\"a\":" + refused.info + "}", "1234"), refused.reason);
    check_refused(file_of("{\"a\":" + refused.info + "}", "1234"), "tensor \"a\"");
  }
  check_refused(file_of("{\"a\":" + info(f32, "[32,8]", "[0,65536]") + "}", std::string(65'536, '\0')),
                "shape [32, 8] of F32 takes 1024 bytes, but data_offsets [0, 65536] hold 65536");
}

std::string u8(const std::string& name, uint64_t begin, uint64_t end) {
  return "\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[" + std::to_string(end - begin) +
         "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

TEST_CASE("B082 overlaps, gaps and duplicate names are refused, any order of names is read") {
  const auto of = [](const std::string& members) { return file_of("{" + members + "}", "12345678"); };
  CHECK(parsed(of(u8("b", 3, 8) + "," + u8("a", 0, 3))).tensors()[0].name == "a");
  CHECK(raw(parsed(of(u8("b", 0, 3) + "," + u8("e", 3, 3) + "," + u8("a", 3, 8))), "a") == "45678");
  check_refused(of(u8("a", 0, 8) + "," + u8("b", 0, 8)),
                "tensor \"b\" begins at byte 0, inside tensor \"a\"");
  check_refused(of(u8("a", 0, 5) + "," + u8("b", 4, 8)),
                "tensor \"b\" begins at byte 4, inside tensor \"a\"");
  check_refused(of(u8("a", 0, 8) + "," + u8("b", 4, 4)),
                "tensor \"b\" begins at byte 4, inside tensor \"a\"");
  check_refused(of(u8("a", 0, 3) + "," + u8("b", 4, 8)), "bytes 3 to 4 of the data, before tensor \"b\"");
  check_refused(of(u8("a", 1, 8)), "bytes 0 to 1 of the data, before tensor \"a\"");
  check_refused(of(u8("a", 0, 7)), "bytes, found ");
  check_refused(of(u8("a", 0, 8) + "," + u8("z", 9, 9)), "bytes 8 to 9 of the data, before tensor \"z\"");
  check_refused(of(""), "bytes, found ");
  check_refused(of(u8("a", 0, 8) + "," + u8("a", 0, 8)), "member \"a\" stands twice");
  check_refused(of(u8("a", 0, 4) + "," + u8("\\u0061", 4, 8)), "member \"a\" stands twice");
  check_refused(of("\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"shape\":[8],\"data_offsets\":[0,8]}"),
                "member \"shape\" stands twice");
}

TEST_CASE("B083 a file cut at any byte is refused with both sizes") {
  const TemporaryFolder folder;
  const std::string bytes = sample();
  write_file_atomic(folder / "f", bytes);
  CHECK_NOTHROW(SafetensorsFile(folder / "f"));
  for (size_t size = bytes.size(); size-- > 0;) {
    REQUIRE(truncate((folder / "f").c_str(), static_cast<off_t>(size)) == 0);
    const std::string message = message_of([&] { SafetensorsFile file(folder / "f"); });
    INFO(message);
    REQUIRE(message.rfind("cannot read " + (folder / "f").string() + " as safetensors: expected ", 0) == 0);
    REQUIRE(message.find(", found " + std::to_string(size)) != std::string::npos);
  }
  check_refused(bytes + '\0', "expected " + std::to_string(bytes.size()) + " bytes, found ");
}

TEST_CASE("B083 a file that is cut while it is open gives an error") {
  const TemporaryFolder folder;
  std::vector<float> values(1'000'000, 1.5f);
  write_safetensors(folder / "f", {{"x", Dtype::F32, {values.size()}, values.data()}});
  const SafetensorsFile file(folder / "f");
  CHECK(file.read_values<float>("x") == values);
  REQUIRE(truncate((folder / "f").c_str(), 2'000'000) == 0);
  CHECK(message_of([&] { file.read_values<float>("x"); }).find("the file was cut after it was opened") !=
        std::string::npos);
  CHECK_THROWS_AS(file.read("x", values.data(), values.size() * sizeof(float)), Error);
}

TEST_CASE("B084 padding and metadata of other writers") {
  const std::string tensor = u8("a", 0, 1);
  CHECK(parsed(file_of("{" + tensor + "}" + std::string(1000, ' '), "x")).tensors().size() == 1);
  CHECK(parsed(file_of("{}", "")).tensors().empty());
  CHECK(parsed(file_of("{\"__metadata__\":{}}", "")).metadata().empty());
  CHECK(parsed(file_of("{" + tensor + ",\"__metadata__\":{\"{\\\"}\":\"}\\\\\\u00e9\"}}", "x"))
            .metadata()
            .at("{\"}") == "}\\\u00e9");
  check_refused(file_of("{" + tensor + "}" + std::string(6, '\0'), "x"), "does not end with '}' and spaces");
  check_refused(file_of("{" + tensor + "}\n", "x"), "does not end with '}' and spaces");
  check_refused(file_of(" {" + tensor + "}", "x"), "does not begin with '{'");
  check_refused(file_of("[]", ""), "does not begin with '{'");
  check_refused(file_of("{\"__metadata__\":{\"a\":{}}}", ""), "__metadata__ member \"a\" is of type object");
  check_refused(file_of("{\"__metadata__\":[\"a\"]}", ""), "__metadata__ is of type array");
  check_refused(file_of("{\"__metadata__\":null}", ""), "__metadata__ is of type null");
  check_refused(file_of("{" + tensor + "}}", "x"), "header: line 1, column 54: syntax error");
  check_refused(file_of("{\"\xff\":1}", ""), "ill-formed UTF-8");
}

TEST_CASE("B086 tensors at odd addresses are read") {
  const std::string data = "abc" + number_bytes(std::bit_cast<uint64_t>(2.5)) + number_bytes(7, 2);
  const SafetensorsFile file =
      parsed(file_of("{" + u8("a", 0, 3) +
                         R"(,"b":{"dtype":"F64","shape":[1],"data_offsets":[3,11]})"
                         R"(,"c":{"dtype":"U16","shape":[1],"data_offsets":[11,13]}} )",
                     data));
  CHECK(file.header_bytes() % 2 == 1);
  CHECK(file.read_values<double>("b") == std::vector<double>{2.5});
  CHECK(file.read_values<uint64_t>("c") == std::vector<uint64_t>{7});
}

TEST_CASE("half precision converts exactly") {
  std::string halves, brains;
  for (uint32_t bits = 0; bits < 65'536; ++bits) halves += number_bytes(bits, 2);
  const SafetensorsFile file = parsed(safetensors_bytes(
      {{"f16", Dtype::F16, {65'536}, halves.data()}, {"bf16", Dtype::BF16, {65'536}, halves.data()}}));
  const std::vector<float> f16 = file.read_values<float>("f16");
  const std::vector<double> bf16 = file.read_values<double>("bf16");
  std::string wrong;
  for (uint32_t bits = 0; bits < 65'536; ++bits) {
    const double sign = bits & 0x8000 ? -1 : 1;
    const auto value = [&](uint32_t exponent_bits, uint32_t fraction_bits, int bias) {
      const auto exponent = static_cast<int>(bits >> fraction_bits & ((1u << exponent_bits) - 1));
      const double fraction = bits & ((1u << fraction_bits) - 1);
      const double one = std::ldexp(1.0, static_cast<int>(fraction_bits));
      if (exponent == (1 << exponent_bits) - 1)
        return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * HUGE_VAL;
      if (exponent == 0) return sign * std::ldexp(fraction / one, 1 - bias);
      return sign * std::ldexp(1 + fraction / one, exponent - bias);
    };
    const auto same = [&](double found, double expected) {
      if (std::isnan(expected)) return std::isnan(found);
      return found == expected && std::signbit(found) == std::signbit(expected);
    };
    if (!same(f16[bits], value(5, 10, 15))) wrong += fmt::format(" F16 {:04x}: {}", bits, f16[bits]);
    if (!same(bf16[bits], value(8, 7, 127))) wrong += fmt::format(" BF16 {:04x}: {}", bits, bf16[bits]);
  }
  CHECK(wrong == "");
}

TEST_CASE("numbers convert within their kind and their range only") {
  const double large = 1e300;
  const int64_t negative = -1;
  const uint64_t all_ones = ~uint64_t{0};
  const SafetensorsFile file = parsed(safetensors_bytes({{"f64", Dtype::F64, {1}, &large},
                                                         {"i64", Dtype::I64, {1}, &negative},
                                                         {"u64", Dtype::U64, {1}, &all_ones},
                                                         {"i8", Dtype::I8, {2}, "\x80\x7f"},
                                                         {"bool", Dtype::BOOL, {3}, "\0\1\2"},
                                                         {"empty", Dtype::I8, {0}, nullptr}}));
  CHECK(file.read_values<double>("f64") == std::vector<double>{1e300});
  CHECK(file.read_values<float>("f64") == std::vector<float>{HUGE_VALF});
  CHECK(file.read_values<int64_t>("i64") == std::vector<int64_t>{-1});
  CHECK(file.read_values<uint64_t>("u64") == std::vector<uint64_t>{all_ones});
  CHECK(file.read_values<int64_t>("i8") == std::vector<int64_t>{-128, 127});
  CHECK(message_of([&] { file.read_values<uint64_t>("i64"); }) ==
        "the file: tensor \"i64\" holds -1, which is out of range");
  CHECK(message_of([&] { file.read_values<int64_t>("u64"); }) ==
        "the file: tensor \"u64\" holds 18446744073709551615, which is out of range");
  CHECK(message_of([&] { file.read_values<int64_t>("bool"); }) ==
        "the file: tensor \"bool\" holds the BOOL byte 2, which is neither 0 nor 1");
  CHECK(message_of([&] { file.read_values<int64_t>("f64"); }) ==
        "the file: tensor \"f64\" has dtype F64, expected whole numbers");
  CHECK(message_of([&] { file.read_values<float>("empty"); }) ==
        "the file: tensor \"empty\" has dtype I8, expected F64, F32, F16 or BF16");
}

TEST_CASE("a damaged file is refused or read within its bytes") {
  const std::string good = sample();
  uint64_t random = 1;
  const auto draw = [&](size_t below) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>((random >> 33) % below);
  };
  constexpr std::string_view kLikely = "{}[]\",:0123456789 \\u-.eE\0\xff";
  size_t refused = 0;
  constexpr int kRounds = 20'000;
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes = good;
    for (size_t changes = 1 + draw(3); changes > 0; --changes) {
      const size_t at = draw(bytes.size());
      switch (draw(4)) {
        case 0:
          bytes[at] = static_cast<char>(draw(256));
          break;
        case 1:
          bytes[at] = kLikely[draw(kLikely.size())];
          break;
        case 2:
          bytes.erase(at, 1 + draw(8));
          break;
        default:
          bytes.insert(at, bytes.substr(draw(bytes.size()), 1 + draw(8)));
          break;
      }
    }
    try {
      const SafetensorsFile file = parsed(bytes);
      uint64_t covered = 0;
      for (const TensorInfo& tensor : file.tensors()) covered += raw(file, tensor.name).size();
      REQUIRE(8 + file.header_bytes() + covered == bytes.size());
    } catch (const Error& error) {
      ++refused;
      REQUIRE(std::string_view(error.what()).find('\n') == std::string_view::npos);
    }
  }
  CHECK(refused > kRounds / 2);
}

TEST_CASE("every golden safetensors file gets its verdict") {
  STORYTAPE_NEED_SHARED(shared);
  const std::vector<VerifyRow> rows = verify_safetensors(shared / "golden-safetensors");
  CHECK(rows.size() > 200);
  for (const VerifyRow& row : rows) {
    INFO(row.section << "/" << row.case_name << ": " << row.detail);
    CHECK(row.ok);
    CHECK_FALSE(row.unknown);
  }
}

TEST_CASE("verify_safetensors fails what does not match the catalogue") {
  const TemporaryFolder folder;
  const auto verdicts = [&](const std::string& index) {
    write_file_atomic(folder / "index.json", index);
    return verify_safetensors(folder.path());
  };
  const std::string good = file_of("{" + u8("a", 0, 1) + "}", "x");
  write_file_atomic(folder / "good", good);
  CHECK(message_of([&] { verdicts("{}"); }).find("not of the format golden-safetensors 1") !=
        std::string::npos);
  CHECK(message_of([&] { verdicts(R"({"format":"golden-safetensors 1"})"); }).find("lists no cases") !=
        std::string::npos);
  const std::string right =
      "\"bytes\":" + std::to_string(good.size()) + ",\"sha256\":\"" + sha256_hex(good) + "\"";
  const std::vector<VerifyRow> rows = verdicts(
      R"({"format":"golden-safetensors 1","judges":{},"set":"x",
          "invalid":[{"name":"i","file":"good",)" +
      right + R"(},{"name":"gone","file":"gone",)" + right + R"(},7],
          "odd":[{"name":"o","file":"good","reader":"perhaps",)" +
      right + R"(}],
          "later":[{"name":"l","file":"good",)" +
      right + R"(}]})");
  REQUIRE(rows.size() == 5);
  for (const VerifyRow& row : rows) {
    INFO(row.section << "/" << row.case_name << ": " << row.detail);
    CHECK_FALSE(row.ok);
    CHECK(row.unknown == (row.section == "later" || row.section == "odd"));
  }
  CHECK(rows[0].detail == "the file is read, not refused");
  CHECK(rows[1].detail.find("No such file or directory") != std::string::npos);
}

}  // namespace
}  // namespace storytape
