#include "autograd/registry.h"

#include "tensor/random.h"

namespace storytape {
namespace {

struct Op {
  std::string name;
  std::vector<GradCase> cases;
};

std::vector<Op>& ops() {
  static auto* list = new std::vector<Op>;
  return *list;
}

void check_complete(const GradCase& c) {
  if (c.example.empty()) fail("op {}: an example has no name", c.op);
  bool differentiable = false;
  for (const NamedInput& input : c.inputs) {
    if (!input.value.defined()) fail("{}: input {} has no value", c.name(), input.name);
    differentiable = differentiable || input.differentiable;
  }
  if (!differentiable) fail("{}: no input is differentiable", c.name());
  if (c.outputs.empty()) fail("{}: no output", c.name());
  if (!c.run64 || !c.run32 || !c.reference) fail("{}: wants run64, run32 and a reference", c.name());
}

// * stands for any characters, ? for one.
bool matches(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*') {
    for (size_t skip = 0; skip <= text.size(); ++skip) {
      if (matches(pattern.substr(1), text.substr(skip))) return true;
    }
    return false;
  }
  return !text.empty() && (pattern[0] == '?' || pattern[0] == text[0]) &&
         matches(pattern.substr(1), text.substr(1));
}

template <class Draw>
Tensor<double> draw(const Shape& shape, Draw&& next) {
  Tensor<double> t(shape);
  for (double& x : t.values()) x = static_cast<float>(next());
  return t;
}

}  // namespace

Tensor<double> example_normal(const Shape& shape, uint64_t seed, double mean, double deviation) {
  Random random(seed);
  return draw(shape, [&] { return mean + deviation * random.normal(); });
}

Tensor<double> example_uniform(const Shape& shape, uint64_t seed, double low, double high) {
  Random random(seed);
  return draw(shape, [&] { return random.uniform(low, high); });
}

Tensor<double> example_values(const Shape& shape, const std::vector<double>& values) {
  Tensor<double> t(shape, std::span<const double>(values));
  for (double& x : t.values()) x = static_cast<float>(x);
  return t;
}

void register_op(const std::string& name, const std::function<std::vector<GradCase>()>& examples) {
  for (const Op& op : ops()) {
    if (op.name == name) fail("op {} is registered already", name);
  }
  Op op{name, examples ? examples() : std::vector<GradCase>()};
  if (op.cases.empty()) fail("op {} has no examples, so nothing can prove its gradient", name);
  for (GradCase& c : op.cases) {
    c.op = name;
    check_complete(c);
  }
  ops().push_back(std::move(op));
}

std::vector<std::string> registered_ops() {
  std::vector<std::string> names;
  for (const Op& op : ops()) names.push_back(op.name);
  return names;
}

std::vector<GradCase> gradient_cases(std::string_view pattern) {
  for (const Op& op : ops()) {
    if (op.name == pattern) return op.cases;
  }
  const bool wildcard = pattern.find_first_of("*?") != std::string_view::npos;
  std::vector<GradCase> found;
  for (const Op& op : ops()) {
    for (const GradCase& c : op.cases) {
      const bool fits = wildcard ? matches(pattern, c.name()) || matches(pattern, c.op)
                                 : c.name().find(pattern) != std::string::npos;
      if (fits) found.push_back(c);
    }
  }
  if (found.empty()) fail_usage("no op matches \"{}\"", pattern);
  return found;
}

}  // namespace storytape
