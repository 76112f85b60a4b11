// storytape bench mixers
#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>

#include "cli/bench.h"
#include "nn/mixers/workload.h"
#include "tensor/peak.h"
#include "tensor/simd.h"

namespace storytape::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string variant;
  std::vector<uint64_t> contexts = {512, 1024, 4096};
  uint64_t heads = 4;
  uint64_t dim = 64;
  uint64_t chunk = 0;
  double seconds = 0.3;
  uint64_t parallel_limit = 512;
  bool chunkwise_only = false;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Times {
  double forward = 0, backward = 0;  // seconds of the fastest call
};

// The fastest of at least three forward and backward passes.
Times measure(const Workload& work, Face face, double seconds) {
  Tape<float> tape;
  Times best;
  double spent = 0;
  for (int i = 0; i < 3 || spent < seconds; ++i) {
    tape.reset();
    const auto start = Clock::now();
    const Var<float> o = work.run(tape, face);
    const double forward = seconds_since(start);
    const Var<float> outputs[] = {o};
    const Tensor<float> gradients[] = {Tensor<float>(o.shape(), 1.0f)};
    const auto middle = Clock::now();
    tape.backward(std::span<const Var<float>>(outputs), std::span<const Tensor<float>>(gradients));
    const double backward = seconds_since(middle);
    spent += forward + backward;
    if (i == 0) continue;  // fills the pools
    best.forward = i == 1 ? forward : std::min(best.forward, forward);
    best.backward = i == 1 ? backward : std::min(best.backward, backward);
  }
  return best;
}

// Bytes per second of reading and writing a buffer of this size over and over, on one core.
double update_speed(size_t bytes) {
  std::vector<float> x(std::max<size_t>(bytes / sizeof(float), 16), 1.0f);
  double best = 0;
  for (int round = 0; round < 20; ++round) {
    const auto start = Clock::now();
    const int passes = static_cast<int>(std::max<size_t>(1, (1u << 22) / bytes));
    for (int pass = 0; pass < passes; ++pass) {
      const float factor = pass % 2 ? 0.5f : 2.0f;
      for (float& value : x) value *= factor;
    }
    best = std::max(best, 2.0 * static_cast<double>(bytes) * passes / seconds_since(start));
  }
  return best;
}

double step_seconds(const Workload& work, size_t history) {
  State<float> state = work.state_after(history);
  for (int i = 0; i < 20; ++i) work.step(state);
  std::vector<double> times(41);
  for (double& time : times) {
    const auto start = Clock::now();
    for (int i = 0; i < 16; ++i) work.step(state);
    time = seconds_since(start) / 16;
  }
  std::nth_element(times.begin(), times.begin() + 20, times.end());
  return times[20];
}

int bench_mixers(const Options& o, const Global& global) {
  const double peak = measure_fma_peak(1);
  const auto wanted = [&](const std::string& name) {
    return o.variant.empty() || name.find(o.variant) != std::string::npos;
  };
  std::string names;
  bool any = false;
  for (const WorkloadKind& kind : workload_kinds()) {
    names += (names.empty() ? "" : ", ") + kind.name;
    any = any || wanted(kind.name);
  }
  if (!any) fail_usage("no mixer matches \"{}\", there are: {}", o.variant, names);

  nlohmann::json points = nlohmann::json::array(), steps = nlohmann::json::array();
  if (!global.json) {
    print(fmt::format(
        "one core, {}, FMA peak {:.1f} GFLOP/s, float, {} heads of {}\n\n{:<20} {:<10} {:>7} {:>12} "
        "{:>12} {:>8}\n",
        simd_target(), peak, o.heads, o.dim, "mixer", "face", "context", "forward ns", "backward ns",
        "of peak"));
  }
  for (const WorkloadKind& kind : workload_kinds()) {
    if (!wanted(kind.name)) continue;
    for (const Face face : kind.faces) {
      if (o.chunkwise_only && face != Face::kChunkwise) continue;
      for (const uint64_t context : o.contexts) {
        if (face == Face::kParallel && context > o.parallel_limit) continue;
        const WorkloadSize size{1, context, o.heads, o.dim, o.chunk};
        const auto work = kind.make(size, 1);
        const Times times = measure(*work, face, o.seconds);
        const double tokens = static_cast<double>(context);
        const double flops = kind.flops_per_token(size) * tokens;
        const double of_peak = flops / (times.forward + times.backward) / (peak * 1e9);
        points.push_back({{"variant", kind.name},
                          {"face", to_string(face)},
                          {"dtype", "float32"},
                          {"heads", o.heads},
                          {"dim", o.dim},
                          {"context", context},
                          {"forward_ns_per_token", times.forward / tokens * 1e9},
                          {"backward_ns_per_token", times.backward / tokens * 1e9},
                          {"of_peak", flops > 0 ? nlohmann::json(of_peak) : nlohmann::json()}});
        if (global.json) continue;
        print(fmt::format("{:<20} {:<10} {:>7} {:>12.0f} {:>12.0f} {:>8}\n", kind.name, to_string(face),
                          context, times.forward / tokens * 1e9, times.backward / tokens * 1e9,
                          flops > 0 ? fmt::format("{:.1f}%", 100 * of_peak) : "-"));
      }
    }
  }

  if (!global.json) {
    print(fmt::format("\none decoding step\n{:<20} {:>7} {:>12} {:>14} {:>22}\n", "mixer", "history", "ns",
                      "state bytes", "x reading and writing it"));
  }
  for (const WorkloadKind& kind : workload_kinds()) {
    if (!wanted(kind.name)) continue;
    const uint64_t history = o.contexts.back();
    const auto work = kind.make({1, 8, o.heads, o.dim, o.chunk}, 1);
    const double time = step_seconds(*work, history);
    const size_t bytes = work->state_after(history).bytes();
    const double update = 2.0 * static_cast<double>(bytes) / update_speed(bytes);
    steps.push_back({{"variant", kind.name},
                     {"history", history},
                     {"nanoseconds", time * 1e9},
                     {"state_bytes", bytes},
                     {"of_update", time / update}});
    if (global.json) continue;
    print(fmt::format("{:<20} {:>7} {:>12.0f} {:>14} {:>22.2f}\n", kind.name, history, time * 1e9, bytes,
                      time / update));
  }
  if (global.json) {
    print_json(
        {{"peak_gflops", peak}, {"simd_target", simd_target()}, {"points", points}, {"decode_steps", steps}});
  }
  return 0;
}

}  // namespace

void add_bench_mixers(const Program& program, CLI::App* bench) {
  CLI::App* command = bench->add_subcommand(
      "mixers", "every mixer and face, forward and backward, and one decoding step; one core");
  command->fallthrough();
  auto o = std::make_shared<Options>();
  command->add_option("--variant", o->variant, "only mixers whose name contains this");
  command->add_option("--context", o->contexts, "tokens per sequence; several may be given")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  whole_option(command, "--heads", o->heads, 1, 1024, "heads");
  whole_option(command, "--dim", o->dim, 1, 1024, "channels of a head");
  whole_option(command, "--chunk", o->chunk, 0, 1u << 20, "tokens per chunk; 0: the mixer's own choice");
  whole_option(command, "--parallel-limit", o->parallel_limit, 0, 1u << 14,
               "longest context for the parallel faces, whose time and memory are quadratic");
  real_option(command, "--seconds", o->seconds, 0, 3600, "least time for one measurement");
  command->add_flag("--chunkwise", o->chunkwise_only, "the chunkwise faces alone");
  command->callback([o, &run = program.run, &global = program.global] {
    run = [o, &global] { return bench_mixers(*o, global); };
  });
}

}  // namespace storytape::cli
