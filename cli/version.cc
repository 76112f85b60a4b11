#include "cli/version.h"

#include "tensor/gemm.h"
#include "tensor/simd.h"

namespace storytape::cli {

void print_version(const Global& global) {
#if defined(__clang__)
  const std::string compiler =
      fmt::format("Clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  const std::string compiler = fmt::format("GCC {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
  const nlohmann::json json = {{"version", STORYTAPE_VERSION},    {"compiler", compiler},
                               {"simd_target", simd_target()},    {"simd_targets", simd_targets()},
                               {"gemm_kernels", gemm_kernels()},  {"blis_kernels", blis_kernels()},
                               {"threads", global.thread_count()}};
  if (global.json) return print_json(json);
  print(
      fmt::format("storytape {}\ncompiler      {}\nsimd target   {} (of {})\ngemm kernels  {}\nblis kernels  "
                  "{}\nthreads       {}\n",
                  STORYTAPE_VERSION, compiler, simd_target(), fmt::join(simd_targets(), ", "), gemm_kernels(),
                  blis_kernels(), global.thread_count()));
}

}  // namespace storytape::cli
