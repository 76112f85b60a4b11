// storytape bench train
#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "cli/allocations.h"
#include "cli/bench.h"
#include "tensor/peak.h"
#include "tensor/random.h"
#include "tensor/simd.h"
#include "train/lanes.h"
#include "train/optimizer.h"

namespace storytape::cli {
namespace {

struct Options {
  std::string model = "storylm-1m";
  std::string pattern = "full";
  uint64_t batch = 32;
  uint64_t context = 256;
  double seconds = 5;
};

struct Speed {
  double tokens_per_second = 0;       // over all timed steps
  double best_tokens_per_second = 0;  // of the fastest step
  double allocations_per_step = 0;
};

Speed measure(const Options& o, const ModelConfig& config, size_t threads) {
  using Clock = std::chrono::steady_clock;
  ThreadPool pool(threads);
  HybridLM<float> model(config, 1);
  Recipe settings = recipe("default");
  settings.steps = 1000000;
  AdamWOptimizer optimizer(model.parameters(), settings);
  LaneTrainer lanes(model, pool);
  const size_t tokens = o.batch * o.context;
  Random random(1);
  std::vector<int32_t> x(tokens), y(tokens);
  for (auto& id : x) id = static_cast<int32_t>(random.below(config.vocab));
  for (auto& id : y) id = static_cast<int32_t>(random.below(config.vocab));
  const auto step = [&](size_t i) {
    lanes.run(x, y, o.batch, o.context);
    optimizer.step(i, lanes.gradients(), pool);
  };
  step(0);
  step(1);
  const uint64_t before = system_allocations();
  Speed speed;
  const auto start = Clock::now();
  size_t steps = 0;
  double elapsed = 0;
  while (steps < 3 || elapsed < o.seconds) {
    const double began = elapsed;
    step(2 + steps++);
    elapsed = std::chrono::duration<double>(Clock::now() - start).count();
    speed.best_tokens_per_second =
        std::max(speed.best_tokens_per_second, static_cast<double>(tokens) / (elapsed - began));
  }
  speed.tokens_per_second = static_cast<double>(steps * tokens) / elapsed;
  speed.allocations_per_step =
      static_cast<double>(system_allocations() - before) / static_cast<double>(steps);
  return speed;
}

int bench_train(const Options& o, const Global& global) {
  ModelConfig config = preset(o.model);
  config.pattern = parse_pattern(o.pattern, config.layers());
  config.max_seq = std::max<size_t>(config.max_seq, o.context);
  const size_t threads = global.thread_count();
  const double flops = training_flops_per_token(config, o.context);

  double peak = measure_fma_peak(threads);
  const Speed speed = measure(o, config, threads);
  peak = std::max(peak, measure_fma_peak(threads));
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto rss = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
  const double one = threads > 1 ? measure(o, config, 1).tokens_per_second : speed.tokens_per_second;

  const double of_peak = speed.tokens_per_second * flops / (peak * 1e9);
  const double best_of_peak = speed.best_tokens_per_second * flops / (peak * 1e9);
  if (global.json) {
    print_json({{"model", o.model},
                {"pattern", pattern_text(config.pattern)},
                {"batch", o.batch},
                {"context", o.context},
                {"simd_target", simd_target()},
                {"threads", threads},
                {"tokens_per_second", speed.tokens_per_second},
                {"flops_per_token", flops},
                {"peak_gflops", peak},
                {"of_peak", of_peak},
                {"best_step_of_peak", best_of_peak},
                {"one_thread_tokens_per_second", one},
                {"scaling", speed.tokens_per_second / one},
                {"peak_rss_bytes", rss},
                {"allocations_per_step", speed.allocations_per_step}});
    return 0;
  }
  print(fmt::format(
      "{} {}, {}x{} tokens a step, {} threads, {}\n"
      "tokens/s               {} ({:.2f} MFLOP each)\n"
      "FMA peak               {:.1f} GFLOP/s\n"
      "of peak                {:.1f}% (fastest step {:.1f}%)\n"
      "against one thread     {:.2f}x\n"
      "peak memory            {}\n"
      "allocations per step   {:g}\n",
      o.model, pattern_text(config.pattern), o.batch, o.context, threads, simd_target(),
      grouped(static_cast<uint64_t>(speed.tokens_per_second)), flops / 1e6, peak, 100 * of_peak,
      100 * best_of_peak, speed.tokens_per_second / one, bytes_text(rss), speed.allocations_per_step));
  return 0;
}

}  // namespace

void add_bench_train(const Program& program, CLI::App* bench) {
  CLI::App* command = bench->add_subcommand("train", "whole training steps, clipping and AdamW included");
  command->fallthrough();
  auto o = std::make_shared<Options>();
  command->add_option("--model", o->model, "storylm-1m, storylm-5m or storylm-30m")->capture_default_str();
  command->add_option("--pattern", o->pattern, "mixers of the layers")->capture_default_str();
  whole_option(command, "--batch", o->batch, 1, 1u << 16, "sequences per step");
  whole_option(command, "--context", o->context, 1, 1u << 20, "tokens per sequence");
  real_option(command, "--seconds", o->seconds, 0, 3600, "least time to measure");
  command->callback([o, &run = program.run, &global = program.global] {
    run = [o, &global] { return bench_train(*o, global); };
  });
}

}  // namespace storytape::cli
