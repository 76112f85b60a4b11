// storytape bench
#include "cli/bench.h"

namespace storytape::cli {

void add_bench(const Program& program) {
  CLI::App* bench = program.command("bench", "speeds, as ratios to the machine's FMA peak in the same run",
                                    "  storytape bench train\n"
                                    "  storytape bench train --threads 1 --pattern linear\n"
                                    "  storytape bench gemm\n"
                                    "  storytape bench mixers --variant gla\n");
  bench->require_subcommand(1);
  add_bench_train(program, bench);
  add_bench_gemm(program, bench);
  add_bench_mixers(program, bench);
}

}  // namespace storytape::cli
