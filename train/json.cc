#include "train/json.h"

#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include "tensor/error.h"
#include "train/files.h"

namespace storytape {
namespace {

using nlohmann::json;

// Walks the text and shows how far the parser has come, which its events do not say.
class Cursor {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor() = default;
  Cursor(const char* at, const char** reached) : at_(at), reached_(reached) {}

  const char& operator*() const { return *at_; }
  Cursor& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  Cursor operator++(int) {
    Cursor before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Cursor& other) const { return at_ == other.at_; }
  bool operator!=(const Cursor& other) const { return at_ != other.at_; }

 private:
  const char* at_ = nullptr;
  const char** reached_ = nullptr;
};

// Builds the value from the parser's events; what is refused throws.
class Builder {
 public:
  Builder(std::string_view text, const std::string& what, int max_depth)
      : text_(text), reached_(text.data()), what_(what), max_depth_(static_cast<size_t>(max_depth)) {}

  json parse() {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (text_.starts_with(kByteOrderMark)) fail_at(0, "a byte order mark stands before the value");
    // The parser takes a NUL for the end of the text. JSON has no place for one, inside or outside a string.
    if (const size_t nul = text_.find('\0'); nul != text_.npos) fail_at(nul, "a NUL byte");
    const char* begin = text_.data();
    const char* end = begin + text_.size();
    json::sax_parse(Cursor(begin, &reached_), Cursor(end, &reached_), this);
    return std::move(root_);
  }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(json::number_integer_t value) { return add(value); }
  bool number_unsigned(json::number_unsigned_t value) { return add(value); }
  bool number_float(json::number_float_t value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(json::binary_t&) { return false; }  // no such thing in a text

  bool start_object(size_t) { return open(json::object()); }
  bool start_array(size_t) { return open(json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    const auto [member, is_new] = open_.back()->get_ref<json::object_t&>().emplace(name, nullptr);
    if (!is_new) fail_here(fmt::format("member \"{}\" stands twice", printable(name, 60)));
    member_ = &member->second;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    std::string_view reason = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while parsing ...; last
    // read: ..."
    if (const size_t tag = reason.find("] "); tag != reason.npos) reason.remove_prefix(tag + 2);
    if (const size_t start = reason.find("syntax error"); start != reason.npos) reason.remove_prefix(start);
    reason = reason.substr(0, reason.find("; last read: "));
    fail_at(position == 0 ? 0 : position - 1, printable(reason));
  }

 private:
  template <class Value>
  json* place(Value&& value) {
    if (open_.empty()) {
      root_ = std::forward<Value>(value);
      return &root_;
    }
    json& parent = *open_.back();
    if (parent.is_array()) return &parent.get_ref<json::array_t&>().emplace_back(std::forward<Value>(value));
    *member_ = std::forward<Value>(value);
    return member_;
  }

  template <class Value>
  bool add(Value&& value) {
    place(std::forward<Value>(value));
    return true;
  }

  bool open(json container) {
    if (open_.size() >= max_depth_) fail_here(fmt::format("nested deeper than {} levels", max_depth_));
    open_.push_back(place(std::move(container)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  [[noreturn]] void fail_here(const std::string& reason) const {
    const auto read = static_cast<size_t>(reached_ - text_.data());
    fail_at(read == 0 ? 0 : read - 1, reason);
  }

  // `at`: index of the byte at fault.
  [[noreturn]] void fail_at(size_t at, const std::string& reason) const {
    const std::string_view before = text_.substr(0, at);
    size_t line = 1;
    size_t start = 0;
    for (size_t i = before.find('\n'); i != before.npos; i = before.find('\n', start)) {
      ++line;
      start = i + 1;
    }
    fail("{}: line {}, column {}: {}", what_, line, before.size() - start + 1, reason);
  }

  std::string_view text_;
  const char* reached_;
  const std::string& what_;
  size_t max_depth_;
  json root_;
  std::vector<json*> open_;  // containers around the place, outermost first
  json* member_ = nullptr;   // where the value of the last key goes
};

}  // namespace

json parse_json(std::string_view text, const std::string& what, int max_depth) {
  return Builder(text, what, max_depth).parse();
}

}  // namespace storytape
