// storytape demo
#include "train/demos/demo.h"

#include <cmath>

#include "cli/command.h"

namespace storytape::cli {
namespace {

struct Options {
  std::string name;
  bool list = false;
  bool all = false;
  std::optional<double> beta, gate;
  std::optional<uint64_t> length;
};

// A number as one reads it, a list in brackets.
std::string text_of(const nlohmann::json& value) {
  if (value.is_null()) return "-";
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number_float()) return fmt::format("{:.4g}", value.get<double>());
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const nlohmann::json& item : value) text += (text.empty() ? "" : " ") + text_of(item);
  return "[" + text + "]";
}

std::string_view text_of(DemoNumber::Verdict verdict) {
  switch (verdict) {
    case DemoNumber::Verdict::kOk:
      return "ok";
    case DemoNumber::Verdict::kOff:
      return "OFF";
    case DemoNumber::Verdict::kNotCheckable:
      return "";
  }
  return "";
}

// {"demo", "ok", each number under its name, "seed": the chapter's, "remarks"}
nlohmann::json as_json(const Demo& demo, const DemoResult& result) {
  nlohmann::json json = {{"demo", demo.name}, {"ok", result.ok()}};
  nlohmann::json seed = nlohmann::json::object(), remarks = seed, off = nlohmann::json::array();
  for (const DemoNumber& number : result.numbers()) {
    json[number.name] = number.value;
    if (!number.seed.is_null()) seed[number.name] = number.seed;
    if (!number.remark.empty()) remarks[number.name] = number.remark;
    if (number.verdict == DemoNumber::Verdict::kOff) off.push_back(number.name);
  }
  json["seed"] = seed;
  json["remarks"] = remarks;
  json["off"] = off;
  return json;
}

std::string as_text(const Demo& demo, const DemoResult& result) {
  std::string text = fmt::format("{}: {}\n\n", demo.name, demo.shows);
  size_t width = 0;
  for (const DemoNumber& number : result.numbers()) width = std::max(width, number.name.size());
  for (const DemoNumber& number : result.numbers()) {
    text += fmt::format("  {:{}}  {}", number.name, width, text_of(number.value));
    if (!number.seed.is_null()) {
      const std::string ours = text_of(number.value), seed = text_of(number.seed);
      text += fmt::format("  (seed: {})", seed == ours && seed.size() > 40 ? "the same" : seed);
    }
    if (number.verdict != DemoNumber::Verdict::kNotCheckable)
      text += fmt::format("  {}", text_of(number.verdict));
    if (!number.remark.empty()) text += fmt::format("\n  {:{}}    {}", "", width, number.remark);
    text += '\n';
  }
  return text;
}

int list(const Global& global) {
  nlohmann::json names = nlohmann::json::array();
  std::vector<std::vector<std::string>> cells = {{"demonstration", "shows"}};
  for (const Demo& demo : demos()) {
    names.push_back({{"name", demo.name}, {"shows", demo.shows}});
    cells.push_back({std::string(demo.name), std::string(demo.shows)});
  }
  global.json ? print_json({{"demos", names}}) : print(table(cells));
  return 0;
}

// An option that the demonstration does not take is refused.
void check_options(const Options& o) {
  const auto only = [&](bool given, const char* option, std::string_view demo) {
    if (given && (o.all || o.name != demo))
      fail_usage("{} is an option of the demonstration {}", option, demo);
  };
  only(o.beta.has_value(), "--beta", "overwrite");
  only(o.gate.has_value(), "--gate", "gla-stability");
  only(o.length.has_value(), "--length", "gla-stability");
}

int demonstrate(const Options& o, const Global& global) {
  if (o.list + o.all + !o.name.empty() != 1) {
    fail_usage("demo wants one of: the name of a demonstration, --all, --list");
  }
  if (o.list) return list(global);
  const Demo* named = o.all ? nullptr : &find_demo(o.name);
  check_options(o);
  DemoOptions options;
  options.beta = o.beta;
  options.gate = o.gate;
  if (o.length) options.length = static_cast<size_t>(*o.length);
  if (named) {
    const DemoResult result = named->run(options);
    global.json ? print_json(as_json(*named, result)) : print(as_text(*named, result));
    return result.ok() ? 0 : 1;
  }
  size_t failed = 0;
  nlohmann::json all = nlohmann::json::array();
  for (const Demo& demo : demos()) {
    const DemoResult result = demo.run(options);
    failed += !result.ok();
    if (global.json) all.push_back(as_json(demo, result));
    if (!global.json) print(as_text(demo, result) + "\n");
  }
  const size_t passed = demos().size() - failed;
  global.json ? print_json({{"passed", passed}, {"failed", failed}, {"demos", all}})
              : print(fmt::format("{} passed, {} failed\n", passed, failed));
  return failed ? 1 : 0;
}

}  // namespace

void add_demo(const Program& program) {
  CLI::App* command = program.command(
      "demo", "the seed chapter's demonstrations, computed by our own ops, beside the numbers it prints",
      "  storytape demo --list\n"
      "  storytape demo overwrite --beta 0.5\n"
      "  storytape demo gla-stability --gate 0.8 --length 600\n"
      "  storytape demo --all --json\n");
  auto o = std::make_shared<Options>();
  command->add_option("name", o->name, "a demonstration of --list")->type_name("NAME");
  command->add_flag("--list", o->list, "list the demonstrations");
  command->add_flag("--all", o->all, "run all of them");
  real_option(command, "--beta", o->beta, 0, 2, "overwrite: strength of the last write (default 1)");
  real_option(command, "--gate", o->gate, 1e-6, 1,
              "gla-stability: gate of every token and channel (default 0.7)");
  whole_option(command, "--length", o->length, 1, 1024, "gla-stability: tokens (default 400)");
  command->callback([o, &run = program.run, &global = program.global] {
    run = [o, &global] { return demonstrate(*o, global); };
  });
}

}  // namespace storytape::cli
