// Strict JSON.
#include "train/json.h"

#include <string>
#include <vector>

#include "tensor/error.h"
#include "tests/catch.h"
#include "tests/error_message.h"
#include "train/files.h"

namespace storytape {
namespace {

using test::message_of;

TEST_CASE("JSON values come out as they stand") {
  const nlohmann::json value = parse_json(
      " { \"a\" : [ 1, -2, 2.5, 18446744073709551615, -9223372036854775808, true, false, null ],\r\n\t\"\" : "
      "\"\\u00e9"
      "\\ud83d\\ude00\\/\\u0000\", \"b\" : { }, \"c\" : [ [ ] , { \"d\" : 1E2 } ] } ",
      "text");
  CHECK(value["a"].dump() == "[1,-2,2.5,18446744073709551615,-9223372036854775808,true,false,null]");
  CHECK(value[""].get<std::string>() == std::string("\u00e9\U0001f600/\0", 8));
  CHECK(value["b"] == nlohmann::json::object());
  CHECK(value["c"] == nlohmann::json::parse("[[],{\"d\":100.0}]"));
  CHECK(parse_json("7", "text") == 7);
  CHECK(parse_json("18446744073709551616", "text").is_number_float());
}

TEST_CASE("JSON that breaks a rule is refused with the place") {
  struct Refused {
    std::string text, place_and_reason;
  };
  const std::vector<Refused> cases = {
      {"", "line 1, column 1: syntax error"},
      {"  ", "line 1, column 3: syntax error"},
      {R"({"a":1,"a":2})", "line 1, column 10: member \"a\" stands twice"},
      {"{\"b\":{\n\"a\":1,\n \"\\u0061\":1}}", "line 3, column 9: member \"a\" stands twice"},
      {R"({"a":[{"x":1},{"x":1,"x":1}]})", "member \"x\" stands twice"},
      {"[1,]", "line 1, column 4: syntax error"},
      {"[1\n 2]", "line 2, column 2: syntax error"},
      {"{\"a\":1,}", "line 1, column 8: syntax error"},
      {"1 2", "line 1, column 3: syntax error"},
      {"{}x", "line 1, column 3: syntax error"},
      {"// c\n1", "line 1, column 1: syntax error"},
      {"[01]", "syntax error"},
      {"[+1]", "syntax error"},
      {"[1.]", "syntax error"},
      {"[.5]", "syntax error"},
      {"[NaN]", "syntax error"},
      {"[Infinity]", "syntax error"},
      {"[True]", "syntax error"},
      {"['a']", "syntax error"},
      {"[1e400]", "number overflow"},
      {"\"\x01\"", "control character"},
      {"\"\\x\"", "forbidden character after backslash"},
      {"\"\\u12\"", "4 hex digits"},
      {R"("\ud800")", "surrogate"},
      {R"("\ud800\u0041")", "surrogate"},
      {R"("\udc00\ud800")", "surrogate"},
      {"\"\xff\"", "ill-formed UTF-8"},
      {"\"\xc0\x80\"", "ill-formed UTF-8"},
      {"\"\xed\xa0\x80\"", "ill-formed UTF-8"},
      {"\"\xf4\x90\x80\x80\"", "ill-formed UTF-8"},
      {"\"\xe4\xb8\"", "ill-formed UTF-8"},
      {"\xef\xbb\xbf{}", "line 1, column 1: a byte order mark"},
      {std::string("{}\0", 3), "line 1, column 3: a NUL byte"},
      {std::string("[1\0]", 4), "line 1, column 3: a NUL byte"},
      {std::string("\"\0\"", 3), "line 1, column 2: a NUL byte"},
      {"\"open", "syntax error"},
      {"{\"a\"", "syntax error"},
      {"[", "syntax error"},
  };
  for (const Refused& refused : cases) {
    const std::string message = message_of([&] { parse_json(refused.text, "the text"); });
    INFO(printable(refused.text) << " -> " << message);
    CHECK(message.rfind("the text: line ", 0) == 0);
    CHECK(message.find(refused.place_and_reason) != std::string::npos);
    CHECK(message.find_first_of("\r\n") == std::string::npos);
    CHECK(message.size() < 300);
  }
  const std::string long_name(10'000, 'n');
  const std::string twice = "{\"" + long_name + "\":1,\"" + long_name + "\":1}";
  CHECK(message_of([&] { parse_json(twice, "text"); }).size() < 300);
  CHECK(message_of([&] { parse_json("\"" + long_name + "\n", "text"); }).size() < 300);
}

TEST_CASE("JSON nested too deep is refused without recursion") {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  CHECK_NOTHROW(parse_json(nested(64), "text"));
  CHECK(message_of([&] { parse_json(nested(65), "text"); }) ==
        "text: line 1, column 65: nested deeper than 64 levels");
  CHECK_NOTHROW(parse_json("1", "text", 0));
  CHECK_THROWS_AS(parse_json("{}", "text", 0), Error);
  CHECK_NOTHROW(parse_json("[{}]", "text", 2));
  CHECK_THROWS_AS(parse_json("[{\"a\":[]}]", "text", 2), Error);
  CHECK_THROWS_AS(parse_json(std::string(10'000'000, '['), "text"), Error);
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  CHECK_THROWS_AS(parse_json(objects, "text"), Error);
  CHECK_NOTHROW(parse_json(nested(100'000), "text", 100'000));
}

}  // namespace
}  // namespace storytape
