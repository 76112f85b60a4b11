// The benchmarks of `storytape bench`: speeds as ratios to the FMA peak measured in the same run.
#pragma once

#include "cli/command.h"

namespace storytape::cli {

void add_bench_train(const Program& program, CLI::App* bench);
void add_bench_gemm(const Program& program, CLI::App* bench);
void add_bench_mixers(const Program& program, CLI::App* bench);

}  // namespace storytape::cli
