#include "models/pattern.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "tensor/error.h"
#include "tensor/names.h"

namespace storytape {
namespace {

constexpr size_t kMostLayers = 10000;

std::string lower(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c != ' ') result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

std::vector<std::string> names_of(const std::vector<LayerKind>& kinds) {
  std::vector<std::string> names;
  for (const LayerKind& kind : kinds) names.push_back(kind.name);
  return names;
}
std::vector<std::string> names_of(const std::vector<LayerOption>& options) {
  std::vector<std::string> names;
  for (const LayerOption& option : options) names.push_back(option.name);
  return names;
}

// "; did you mean "gla"? There are full, linear, ...".
std::string offer(std::string_view name, const std::vector<std::string>& known) {
  const std::string near = nearest_name(name, known);
  return fmt::format("{}there are {}", near.empty() ? "" : fmt::format("did you mean \"{}\"? ", near),
                     fmt::join(known, ", "));
}

const LayerKind& kind_named(std::string_view pattern, const std::string& name) {
  for (const LayerKind& kind : layer_kinds()) {
    if (kind.name == name) return kind;
  }
  fail_usage("pattern \"{}\": unknown mixer \"{}\"; {} (L and F for short)", pattern, name,
             offer(name, names_of(layer_kinds())));
}

bool read_number(const std::string& text, double& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && std::isfinite(value);
}

void check_value(std::string_view pattern, const LayerKind& kind, const LayerOption& option,
                 const std::string& value) {
  const auto refuse = [&](const std::string& wanted) {
    fail_usage("pattern \"{}\": {}:{} wants {}, got \"{}\"", pattern, kind.name, option.name, wanted, value);
  };
  double number = 0;
  switch (option.type) {
    case LayerOption::Type::kSize:
      if (!read_number(value, number) || number != std::floor(number) || number < option.low ||
          number > option.high) {
        refuse(fmt::format("a whole number in {:.0f}..{:.0f}", option.low, option.high));
      }
      break;
    case LayerOption::Type::kNumber:
      if (!read_number(value, number) || number < option.low || number > option.high) {
        refuse(fmt::format("a number in {:g}..{:g}", option.low, option.high));
      }
      break;
    case LayerOption::Type::kFlag:
      if (value != "true" && value != "false") refuse("true or false");
      break;
    case LayerOption::Type::kChoice:
      if (std::find(option.choices.begin(), option.choices.end(), value) == option.choices.end()) {
        refuse(fmt::format("one of {}", fmt::join(option.choices, ", ")));
      }
      break;
  }
}

void add_option(std::string_view pattern, LayerSpec& spec, const std::string& text) {
  const LayerKind& kind = kind_named(pattern, spec.kind);
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  if (equals == std::string::npos || name.empty()) {
    fail_usage("pattern \"{}\": \"{}\" is no option; an option is written name=value", pattern, text);
  }
  const auto option = std::find_if(kind.options.begin(), kind.options.end(),
                                   [&](const LayerOption& known) { return known.name == name; });
  if (option == kind.options.end()) {
    if (kind.options.empty())
      fail_usage("pattern \"{}\": {} has no options, got \"{}\"", pattern, kind.name, name);
    fail_usage("pattern \"{}\": {} has no option \"{}\"; {}", pattern, kind.name, name,
               offer(name, names_of(kind.options)));
  }
  if (spec.find(name))
    fail_usage("pattern \"{}\": option \"{}\" of {} is given twice", pattern, name, kind.name);
  check_value(pattern, kind, *option, text.substr(equals + 1));
  spec.options.emplace_back(name, text.substr(equals + 1));
}

void sort_options(LayerSpec& spec) {
  const std::vector<std::string> order = names_of(kind_named(spec.kind, spec.kind).options);
  const auto place = [&](const std::string& name) { return std::find(order.begin(), order.end(), name); };
  std::sort(spec.options.begin(), spec.options.end(),
            [&](const auto& a, const auto& b) { return place(a.first) < place(b.first); });
}

}  // namespace

std::string layer_names() {
  return fmt::format("{}", fmt::join(names_of(layer_kinds()), ", "));
}

std::string LayerSpec::text() const {
  std::string result = kind;
  for (size_t i = 0; i < options.size(); ++i) {
    result += (i == 0 ? ":" : ",") + options[i].first + "=" + options[i].second;
  }
  return result;
}

const std::string* LayerSpec::find(std::string_view option) const {
  for (const auto& [name, value] : options) {
    if (name == option) return &value;
  }
  return nullptr;
}

std::vector<LayerSpec> parse_layers(std::string_view pattern) {
  std::string text = lower(pattern);
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);

  struct Entry {
    size_t times = 1;
    LayerSpec spec;
  };
  std::vector<Entry> entries;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    if (part.find('=') != std::string::npos && part.find(':') == std::string::npos) {
      if (entries.empty()) fail_usage("pattern \"{}\": option \"{}\" belongs to no mixer", pattern, part);
      add_option(pattern, entries.back().spec, part);
      continue;
    }
    Entry entry;
    if (const size_t star = part.find('*'); star != std::string::npos) {
      const std::string count = part.substr(0, star);
      double times = 0;
      if (!read_number(count, times) || times != std::floor(times) || times < 1 || times > kMostLayers) {
        fail_usage("pattern \"{}\": \"{}*\" wants a whole number in 1..{}", pattern, count, kMostLayers);
      }
      entry.times = static_cast<size_t>(times);
      part = part.substr(star + 1);
    }
    const size_t colon = part.find(':');
    entry.spec.kind = part.substr(0, colon);
    if (entry.spec.kind == "l") entry.spec.kind = "linear";
    if (entry.spec.kind == "f") entry.spec.kind = "full";
    kind_named(pattern, entry.spec.kind);
    if (colon != std::string::npos) add_option(pattern, entry.spec, part.substr(colon + 1));
    entries.push_back(std::move(entry));
  }

  std::vector<LayerSpec> layers;
  for (Entry& entry : entries) {
    sort_options(entry.spec);
    if (layers.size() + entry.times > kMostLayers) {
      fail_usage("pattern \"{}\" has more than {} layers", pattern, kMostLayers);
    }
    layers.insert(layers.end(), entry.times, entry.spec);
  }
  return layers;
}

LayerSpec parse_layer(std::string_view text) {
  const std::vector<LayerSpec> layers = parse_layers(text);
  if (layers.size() != 1) fail_usage("\"{}\" names {} layers, wanted one", text, layers.size());
  return layers[0];
}

}  // namespace storytape
