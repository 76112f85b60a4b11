// storytape gradcheck
#include "autograd/gradcheck.h"

#include <cmath>
#include <limits>

#include "autograd/ops.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "nn/examples.h"
#include "nn/mixers/registry.h"

namespace storytape::cli {
namespace {

struct Options {
  std::string pattern;
  uint64_t seed = 1;
  bool examples = false;
};

// One input of one op over its examples, or one example's.
struct Line {
  std::string op, face, input;
  std::vector<std::string> examples;
  double complex = 0, difference = 0, single = 0;
  size_t moved = 0;
  std::string why = {};  // of the first that failed
  bool ok = true;
};

// The larger one; NaN stays.
void take(double& worst, double x) {
  if (!(x <= worst)) worst = x;
}

void add(std::vector<Line>& lines, const GradRow& row, bool each_example) {
  Line* line = nullptr;
  for (Line& candidate : lines) {
    if (candidate.op == row.op && candidate.face == row.face && candidate.input == row.input &&
        (!each_example || candidate.examples.front() == row.example)) {
      line = &candidate;
    }
  }
  if (!line) line = &lines.emplace_back(Line{row.op, row.face, row.input, {}});
  line->examples.push_back(row.example);
  take(line->complex, row.worst_complex);
  take(line->difference, row.worst_difference);
  take(line->single, row.worst_float);
  line->moved += row.moved;
  if (!row.ok && line->ok) line->why = fmt::format("{}: {}", row.example, row.why);
  line->ok = line->ok && row.ok;
}

// JSON has neither NaN nor infinity.
double finite(double x) {
  return std::isfinite(x) ? x : std::numeric_limits<double>::max();
}

int gradcheck(const Options& o, const Global& global) {
  register_basic_ops();
  register_nn_ops();
  register_mixers();
  GradCheckOptions options;
  options.seed = o.seed;
  const std::vector<GradCase> cases = gradient_cases(o.pattern);
  std::vector<Line> lines;
  ProgressBar bar("gradcheck");
  for (size_t i = 0; i < cases.size(); ++i) {
    bar.update(i, cases.size());
    for (const GradRow& row : check_case(cases[i], options)) add(lines, row, o.examples);
  }
  bar.finish();

  size_t failed = 0;
  nlohmann::json ops = nlohmann::json::array();
  std::vector<std::vector<std::string>> cells = {{"op", o.examples ? "example" : "examples", "input",
                                                  "complex step", "differences", "float", "verdict"}};
  std::string failures;
  for (const Line& line : lines) {
    const std::string name = line.op + (line.face.empty() ? "" : "." + line.face);
    failed += !line.ok;
    cells.push_back({name, o.examples ? line.examples.front() : std::to_string(line.examples.size()),
                     line.input, fmt::format("{:.1e}", line.complex), fmt::format("{:.1e}", line.difference),
                     fmt::format("{:.1f}", line.single), line.ok ? "ok" : "FAILED"});
    if (!line.ok) failures += fmt::format("{} {}: {}\n", name, line.input, line.why);
    ops.push_back({{"op", line.op},
                   {"face", line.face},
                   {"input", line.input},
                   {"examples", line.examples},
                   {"worst", finite(line.complex)},
                   {"worst_difference", finite(line.difference)},
                   {"worst_float", finite(line.single)},
                   {"moved", line.moved},
                   {"ok", line.ok},
                   {"why", line.why}});
  }
  const size_t passed = lines.size() - failed;
  if (global.json) {
    print_json({{"passed", passed}, {"failed", failed}, {"cases", cases.size()}, {"ops", ops}});
  } else {
    print(
        fmt::format("worst relative errors: against the complex step of the definition (allowed {:.0e}), "
                    "against central differences\n"
                    "(allowed {:.0e}), and of float against double, in units of float rounding; \"-> y\" is "
                    "an output's value\n\n"
                    "{}\n{}{} passed, {} failed\n",
                    options.complex_bound, options.difference_bound, table(cells), failures, passed, failed));
  }
  return failed ? 1 : 0;
}

}  // namespace

void add_gradcheck(const Program& program) {
  CLI::App* command = program.command("gradcheck", "prove the gradients of all ops, input by input",
                                      "  storytape gradcheck\n"
                                      "  storytape gradcheck linear_attention\n"
                                      "  storytape gradcheck \"*norm*\" --examples\n");
  auto o = std::make_shared<Options>();
  command
      ->add_option("pattern", o->pattern,
                   "an op, or part of its name, or a pattern with * and ? (default: all)")
      ->type_name("PATTERN");
  whole_option(command, "--seed", o->seed, 0, UINT64_MAX, "of the random cotangents");
  command->add_flag("--examples", o->examples, "a line for each example");
  command->callback([o, &run = program.run, &global = program.global] {
    run = [o, &global] { return gradcheck(*o, global); };
  });
}

}  // namespace storytape::cli
