// storytape faces
#include "nn/mixers/faces.h"

#include <cmath>
#include <limits>

#include "cli/command.h"
#include "nn/mixers/registry.h"

namespace storytape::cli {
namespace {

struct Options {
  std::string pattern;
  uint64_t seed = 1;
  bool extended = true;
};

// JSON has neither NaN nor infinity.
double finite(double x) {
  return std::isfinite(x) ? x : std::numeric_limits<double>::max();
}

int faces(const Options& o, const Global& global) {
  register_mixers();
  FaceCheckOptions options;
  options.seed = o.seed;
  options.extended = o.extended;
  const std::vector<FaceRow> rows = check_faces(o.pattern, options);
  size_t failed = 0;
  nlohmann::json results = nlohmann::json::array();
  std::vector<std::vector<std::string>> cells = {
      {"variant", "face", "type", "output", "state", "gradient", "verdict"}};
  std::string failures;
  for (const FaceRow& row : rows) {
    failed += !row.ok;
    cells.push_back({row.variant, row.face, row.dtype, fmt::format("{:.1e}", row.worst_output),
                     fmt::format("{:.1e}", row.worst_state), fmt::format("{:.1e}", row.worst_gradient),
                     row.ok ? "ok" : "FAILED"});
    if (!row.ok) failures += fmt::format("{} {} {}: {}\n", row.variant, row.face, row.dtype, row.why);
    results.push_back({{"variant", row.variant},
                       {"face", row.face},
                       {"dtype", row.dtype},
                       {"worst_output", finite(row.worst_output)},
                       {"worst_state", finite(row.worst_state)},
                       {"worst_gradient", finite(row.worst_gradient)},
                       {"ok", row.ok},
                       {"why", row.why}});
  }
  if (global.json) {
    print_json({{"passed", rows.size() - failed}, {"failed", failed}, {"results", results}});
  } else {
    print(fmt::format(
        "worst relative errors over lengths, chunks, cuts and initial states: double against the definition "
        "(allowed {:.0e}),\nfloat against double\n\n{}\n{}{} passed, {} failed\n",
        options.double_bound, table(cells), failures, rows.size() - failed, failed));
  }
  return failed ? 1 : 0;
}

}  // namespace

void add_faces(const Program& program) {
  CLI::App* command = program.command(
      "faces", "hold all faces of the mixers against each other: outputs, final states, gradients",
      "  storytape faces\n"
      "  storytape faces linear --short\n");
  auto o = std::make_shared<Options>();
  command
      ->add_option("pattern", o->pattern,
                   "a variant, or part of its name, or a pattern with * and ? (default: all)")
      ->type_name("PATTERN");
  whole_option(command, "--seed", o->seed, 0, UINT64_MAX, "of inputs, cuts and cotangents");
  command->add_flag("!--short", o->extended, "leave out the sequences of 1000 tokens");
  command->callback([o, &run = program.run, &global = program.global] {
    run = [o, &global] { return faces(*o, global); };
  });
}

}  // namespace storytape::cli
