// The gradient checker and its registry: right ops pass, every kind of wrong one is found.
#include "autograd/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "autograd/ops.h"
#include "autograd/reference.h"
#include "tests/catch.h"
#include "tests/error_message.h"

using namespace storytape;
using storytape::test::message_of;

namespace {

enum class Fault {
  kNone,
  kScaled,            // the gradient of a is 1% short
  kOverTokens,        // the gradient of b is divided by T
  kTermZeroed,        // one element of b's gradient is left out
  kSwapped,           // each input gets the other's gradient
  kLastTokenDropped,  // the last token gives nothing to a
  kOverwrites,        // a's gradient replaces what was there
  kUnwritten,         // one element of a's gradient is never written
  kNoGradient,        // b is taken for a constant
  kAllZero,           // b's gradient is zero
  kInfinite,          // one element of a's gradient is infinite
  kChangesInput,      // the op writes into b
  kWrongValue,        // the forward is off by 1e-9
  kFloatOnly,         // only the float kernel is wrong
  kOnlyOneOutput,     // the gradient from the second output is forgotten
  kThrows,
};

// y[t] = Σ_i tanh(a[t, i])·b[t, i], z[t] = Σ_{s ≤ t} y[s]; a, b [T, n].
template <class T>
std::vector<Var<T>> gated(Tape<T>& tape, Var<T> a, Var<T> b, Fault fault) {
  const size_t tokens = a.shape()[0], n = a.shape()[1];
  if (fault == Fault::kThrows) fail("gated: {} tokens are too many", tokens);
  Tensor<T> outputs[2] = {Tensor<T>({tokens}, T{0}), Tensor<T>({tokens}, T{0})};
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t i = 0; i < n; ++i) outputs[0][t] += std::tanh(a.value()[t * n + i]) * b.value()[t * n + i];
    outputs[1][t] = outputs[0][t] + (t ? outputs[1][t - 1] : T{0});
  }
  if (fault == Fault::kWrongValue) outputs[0][0] *= static_cast<T>(1 + 1e-9);
  if (fault == Fault::kChangesInput) const_cast<T*>(b.value().data())[0] += T{1};
  const Var<T> inputs[] = {a, fault == Fault::kNoGradient ? detach(b) : b};
  std::vector<Var<T>> outs(2);
  tape.record_many("gated", outputs, inputs, outs, [=](const Grads<T>& grads) {
    std::vector<T> dy(tokens, T{0}), da(tokens * n), db(tokens * n);
    T later = 0;
    for (size_t t = tokens; t-- > 0;) {
      if (grads[1].defined() && fault != Fault::kOnlyOneOutput) later += grads[1][t];
      dy[t] = (grads[0].defined() ? grads[0][t] : T{0}) + later;
    }
    if (fault == Fault::kFloatOnly && sizeof(T) == sizeof(float)) dy[0] *= static_cast<T>(1.001);
    for (size_t j = 0; j < tokens * n; ++j) {
      const T tanh = std::tanh(a.value()[j]);
      da[j] = dy[j / n] * (1 - tanh * tanh) * b.value()[j];
      db[j] = dy[j / n] * tanh;
      if (fault == Fault::kScaled) da[j] *= static_cast<T>(0.99);
      if (fault == Fault::kOverTokens) db[j] /= static_cast<T>(tokens);
      if (fault == Fault::kAllZero) db[j] = 0;
      if (fault == Fault::kLastTokenDropped && j / n == tokens - 1) da[j] = 0;
    }
    if (fault == Fault::kTermZeroed) db[1] = 0;
    if (fault == Fault::kInfinite) da[2] = std::numeric_limits<T>::infinity();
    if (fault == Fault::kSwapped) std::swap(da, db);
    const auto give = [&](Var<T> x, const std::vector<T>& d, bool is_a) {
      if (!x.requires_grad()) return;
      const GradSlot<T> slot = x.grad_slot();
      for (size_t j = 0; j < d.size(); ++j) {
        if (is_a && fault == Fault::kUnwritten && j == 1) continue;
        const bool replace = slot.fresh || (is_a && fault == Fault::kOverwrites);
        slot.data[j] = replace ? d[j] : slot.data[j] + d[j];
      }
    };
    give(a, da, true);
    if (fault != Fault::kNoGradient) give(b, db, false);
  });
  return outs;
}

GradCase gated_case(Fault fault) {
  GradCase c = make_case(
      "5 tokens of 3", {{"a", example_normal({5, 3}, 1)}, {"b", example_normal({5, 3}, 2)}}, {"y", "z"},
      [fault](auto& tape, const auto& in) { return gated(tape, in[0], in[1], fault); },
      [](const std::vector<ComplexTensor>& in) {
        std::vector<ComplexTensor> out(2, ComplexTensor(Shape{5}));
        for (size_t t = 0; t < 5; ++t) {
          for (size_t i = 0; i < 3; ++i) out[0][t] += std::tanh(in[0][t * 3 + i]) * in[1][t * 3 + i];
          out[1][t] = out[0][t] + (t ? out[1][t - 1] : 0.0);
        }
        return out;
      });
  c.op = "gated";
  return c;
}

// The rows that failed, as "input: why".
std::vector<std::string> failures(const std::vector<GradRow>& rows) {
  std::vector<std::string> result;
  for (const GradRow& row : rows) {
    if (!row.ok) result.push_back(row.input + ": " + row.why);
  }
  return result;
}

std::string failure_of(const std::vector<GradRow>& rows, const std::string& input) {
  for (const GradRow& row : rows) {
    if (row.input == input) return row.ok ? "" : row.why;
  }
  return "no row";
}

// y = relu(x), with a subgradient of `at_zero` at 0 and a slope of `slope` above.
GradCase relu_case(const std::vector<double>& points, double at_zero, double slope) {
  GradCase c = make_case(
      "kinks", {{"x", example_values({points.size()}, points)}}, {"y"},
      [=]<class T>(Tape<T>& tape, const std::vector<Var<T>>& in) {
        const Var<T> x = in[0];
        Tensor<T> y(x.shape());
        for (size_t i = 0; i < y.size(); ++i) y[i] = std::max(x.value()[i], T{0});
        return tape.record("relu", std::move(y), {x}, [=](const Grads<T>& dy) {
          Tensor<T> dx(x.shape());
          for (size_t i = 0; i < dx.size(); ++i) {
            const T v = x.value()[i];
            dx[i] = dy.one()[i] * static_cast<T>(v > 0 ? slope : v < 0 ? 0 : at_zero);
          }
          x.accumulate(std::move(dx));
        });
      },
      [](const std::vector<ComplexTensor>& in) {
        return map(in[0],
                   [](const std::complex<double>& x) { return x.real() > 0 ? x : std::complex<double>(0); });
      });
  c.op = "relu";
  return c;
}

}  // namespace

TEST_CASE("every basic op's gradient is proven: complex step, differences, float, poison") {
  register_basic_ops();
  const std::vector<GradRow> rows = gradcheck();
  CHECK(rows.size() > 300);
  for (const GradRow& row : rows) {
    INFO(row.op << " (" << row.example << ") " << row.input << ": " << row.why);
    CHECK(row.ok);
  }
}

TEST_CASE("B046 B048 every op of the headers is registered, and its gradients reach its inputs") {
  register_basic_ops();
  const std::vector<std::string> names = registered_ops();
  const std::set<std::string> registered(names.begin(), names.end());
  // No gradient by intent.
  const std::set<std::string> exempt = {"detach"};
  std::set<std::string> found;
  const std::regex declaration("^(?:extern template )?Var<T> ([a-z_0-9]+)\\(");
  for (const auto& file :
       std::filesystem::directory_iterator(std::filesystem::path(STORYTAPE_SOURCE_DIR) / "autograd")) {
    const std::string name = file.path().filename();
    if (name.rfind("ops_", 0) != 0 || file.path().extension() != ".h") continue;
    std::ifstream stream(file.path());
    bool internal = false;
    for (std::string line; std::getline(stream, line);) {
      if (line.rfind("namespace internal", 0) == 0) internal = true;
      if (line == "}  // namespace internal") internal = false;
      std::smatch match;
      if (!internal && std::regex_search(line, match, declaration)) found.insert(match[1]);
    }
  }
  CHECK(found.size() > 30);
  for (const std::string& op : found) {
    INFO("op " << op << " of the headers has no gradient check");
    CHECK((registered.count(op) == 1 || exempt.count(op) == 1));
  }
  for (const std::string& op : names) {
    INFO("op " << op);
    double largest = 0;
    for (const GradCase& c : gradient_cases(op)) {
      Tape<double> tape;
      std::vector<Var<double>> vars;
      for (const NamedInput& input : c.inputs) vars.push_back(tape.input(input.value));
      const std::vector<Var<double>> outputs = c.run64(tape, vars);
      std::vector<Tensor<double>> seeds;
      for (const Var<double>& y : outputs) {
        CHECK(y.requires_grad());
        seeds.push_back(example_normal(y.shape(), 9));
      }
      tape.backward(outputs, seeds);
      for (const Var<double>& x : vars) {
        REQUIRE(x.grad().defined());
        CHECK(x.grad().shape() == x.shape());
        for (const double d : x.grad().values()) largest = std::max(largest, std::abs(d));
      }
    }
    CHECK(largest > 0);
  }
}

TEST_CASE("B060 a right op passes for 100 of 100 seeds") {
  register_basic_ops();
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    GradCheckOptions options;
    options.seed = seed;
    INFO("seed " << seed);
    CHECK(failures(check_case(gated_case(Fault::kNone), options)).empty());
    for (const char* op : {"softmax", "layer_norm"}) {
      CHECK(failures(check_case(gradient_cases(op).front(), options)).empty());
    }
  }
}

TEST_CASE("B060 every injected fault is reported with its input") {
  struct Expected {
    Fault fault;
    std::string input;
    std::string why;
  };
  const Expected all[] = {
      {Fault::kScaled, "a", "differs from"},
      {Fault::kOverTokens, "b", "differs from"},
      {Fault::kTermZeroed, "b", "differs from"},
      {Fault::kLastTokenDropped, "a", "differs from"},
      {Fault::kOverwrites, "a", "added to a gradient that is there already"},
      {Fault::kUnwritten, "a", "never written"},
      {Fault::kNoGradient, "b", "differs from"},
      {Fault::kAllZero, "b", "differs from"},
      {Fault::kInfinite, "a", "not finite"},
      {Fault::kWrongValue, "-> y", "value differs from the reference"},
      {Fault::kOnlyOneOutput, "a", "from z"},
  };
  for (const Expected& e : all) {
    const std::vector<GradRow> rows = check_case(gated_case(e.fault));
    INFO("fault " << static_cast<int>(e.fault) << ": " << failure_of(rows, e.input));
    CHECK(failure_of(rows, e.input).find(e.why) != std::string::npos);
    if (e.fault != Fault::kOnlyOneOutput) CHECK(failure_of(rows, e.input == "a" ? "b" : "a").empty());
  }
  for (const std::string input : {"a", "b"}) {
    CHECK_FALSE(failure_of(check_case(gated_case(Fault::kSwapped)), input).empty());
    CHECK(failure_of(check_case(gated_case(Fault::kChangesInput)), input) == "changes its input b");
    CHECK(failure_of(check_case(gated_case(Fault::kThrows)), input) == "gated: 5 tokens are too many");
    CHECK(failure_of(check_case(gated_case(Fault::kFloatOnly)), input).find("float against double") == 0);
  }
}

TEST_CASE("B060 faults are found where only some elements are looked at") {
  GradCase right = gated_case(Fault::kNone), wrong = gated_case(Fault::kTermZeroed);
  right.samples = wrong.samples = 1;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    GradCheckOptions options;
    options.seed = seed;
    CHECK(failures(check_case(right, options)).empty());
    CHECK_FALSE(failures(check_case(wrong, options)).empty());
  }
}

TEST_CASE("a zero gradient that the reference doesn't have fails however small the reference is") {
  GradCase c = make_case(
      "tiny", {{"x", example_values({2}, {1, 2})}}, {"y"},
      [](auto&, const auto& in) { return add(scale(in[0], 1e-12), detach(in[0])); },
      [](const std::vector<ComplexTensor>& in) {
        return map(in[0], [](const std::complex<double>& x) { return x * 1e-12 + x.real(); });
      });
  CHECK(failure_of(check_case(c), "x").find("central differences") != std::string::npos);
  c.run64 = [](Tape<double>&, const std::vector<Var<double>>& in) { return std::vector{scale(in[0], 0.0)}; };
  c.reference = [](const std::vector<ComplexTensor>& in) {
    return std::vector{
        map(in[0], [](const std::complex<double>& x) { return std::complex<double>(0, x.imag() * 1e-12); })};
  };
  CHECK(failure_of(check_case(c), "x").find("all zero") != std::string::npos);
}

TEST_CASE("NaN passes no comparison") {
  GradCase c = gated_case(Fault::kNone);
  const OpReference right = c.reference;
  c.reference = [right](const std::vector<ComplexTensor>& in) {
    auto out = right(in);
    out[0][2] = {std::nan(""), std::nan("")};
    return out;
  };
  for (const std::string input : {"a", "b", "-> y"}) {
    CHECK(failure_of(check_case(c), input).find("not finite") != std::string::npos);
  }
}

TEST_CASE("B061 points at a kink and close to it are moved off, and the row says so") {
  const double h = 0x1p-16;  // the checker's step at 0
  const std::vector<double> points = {0.5, 0, h / 2, -h / 2, -0.75, 1.5 * h, 2};
  for (const double at_zero : {0.0, 0.5, 1.0}) {
    const std::vector<GradRow> rows = check_case(relu_case(points, at_zero, 1));
    INFO(failure_of(rows, "x"));
    CHECK(failures(rows).empty());
    CHECK(rows[0].moved == 4);
  }
  // A step that is larger because |x| is.
  const std::vector<GradRow> far = check_case(relu_case({1, 0.5, -2}, 0, 1));
  CHECK(failures(far).empty());
  CHECK(far[0].moved == 0);
}

TEST_CASE("B061 a wrong gradient is not taken for a kink") {
  const std::vector<GradRow> rows = check_case(relu_case({0.5, 0, -0.75, 2}, 0, 0.999));
  CHECK(failure_of(rows, "x").find("differs from") != std::string::npos);
  CHECK(rows[0].moved == 1);
}

TEST_CASE("B061 a kink that can't be left is reported as one") {
  // A sawtooth with a kink every 1e-6.
  const auto saw = [](double x) { return std::abs(std::remainder(x, 1e-6)); };
  GradCase c = make_case(
      "kinks everywhere", {{"x", example_values({2}, {0.3, 0.7})}}, {"y"},
      [saw]<class T>(Tape<T>& tape, const std::vector<Var<T>>& in) {
        const Var<T> x = in[0];
        Tensor<T> y(x.shape());
        for (size_t i = 0; i < y.size(); ++i) y[i] = static_cast<T>(saw(x.value()[i]));
        return tape.record("saw", std::move(y), {x}, [x](const Grads<T>& dy) { x.accumulate(dy.one()); });
      },
      [saw](const std::vector<ComplexTensor>& in) {
        return map(in[0], [&](const std::complex<double>& x) {
          return std::complex<double>(saw(x.real()), x.imag());
        });
      });
  c.floor = 1e-12;
  CHECK(failure_of(check_case(c), "x").find("kink") != std::string::npos);
}

TEST_CASE("differences stay inside an input's domain") {
  // sqrt(1 - x²) is real on [-1, 1] only.
  GradCase c = make_case(
      "at the ends", {{"x", example_values({3}, {0, 0.999, -0.999}), true, -1, 1}}, {"y"},
      []<class T>(Tape<T>&, const std::vector<Var<T>>& in) {
        for (const T x : in[0].value().values()) {
          if (!(std::abs(x) <= 1)) fail("{} lies outside [-1, 1]", x);
        }
        return in[0] * in[0];
      },
      [](const std::vector<ComplexTensor>& in) {
        return map(in[0], [](const std::complex<double>& x) { return x * x; });
      });
  CHECK(failures(check_case(c)).empty());
}

TEST_CASE("an op without examples, or with a name that is taken, can't be registered") {
  register_basic_ops();
  register_basic_ops();
  CHECK(message_of([] { register_op("mystery", {}); }).find("has no examples") != std::string::npos);
  CHECK(message_of([] { register_op("mystery", [] { return std::vector<GradCase>(); }); }).find("mystery") !=
        std::string::npos);
  CHECK(message_of([] { register_op("add", [] { return std::vector{gated_case(Fault::kNone)}; }); }) ==
        "op add is registered already");
  CHECK(message_of([] {
          register_op("mystery", [] {
            GradCase c = gated_case(Fault::kNone);
            c.reference = {};
            return std::vector{c};
          });
        }).find("wants run64, run32 and a reference") != std::string::npos);
  const std::vector<std::string> names = registered_ops();
  CHECK(std::count(names.begin(), names.end(), "mystery") == 0);
}

TEST_CASE("a pattern names an op, a part of a name, or a wildcard") {
  register_basic_ops();
  for (const GradCase& c : gradient_cases("add")) CHECK(c.op == "add");
  for (const GradCase& c : gradient_cases("gelu*")) CHECK(c.op.rfind("gelu", 0) == 0);
  const auto softmaxes = gradient_cases("softma");
  CHECK(std::any_of(softmaxes.begin(), softmaxes.end(),
                    [](const GradCase& c) { return c.op == "log_softmax"; }));
  CHECK(gradient_cases().size() > gradient_cases("*norm*").size());
  CHECK(message_of([] { gradient_cases("atention"); }) == "no op matches \"atention\"");
}
