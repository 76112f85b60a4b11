// storytape bench gemm
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "cli/bench.h"
#include "models/config.h"
#include "tensor/gemm.h"
#include "tensor/peak.h"
#include "train/json.h"

namespace storytape::cli {
namespace {

struct Options {
  std::string model = "storylm-1m";
  double seconds = 0.15;  // per product and engine
  bool blis_alone = false;
};

struct Product {
  const char* what;
  size_t m, n, k;
  Trans a, b;
};

// The products of a training pass of 256 rows, and the small ones inside attention and chunked mixers.
std::vector<Product> products(const ModelConfig& c) {
  constexpr Trans kNo = Trans::kNo;
  constexpr Trans kYes = Trans::kYes;
  const size_t d = c.dim, f = c.ffn, v = c.vocab, h = c.head_dim();
  return {
      {"projection", 256, d, d, kNo, kNo},
      {"projection, to weight", d, d, 256, kYes, kNo},
      {"MLP up", 256, f, d, kNo, kNo},
      {"MLP down", 256, d, f, kNo, kNo},
      {"MLP up, to weight", d, f, 256, kYes, kNo},
      {"MLP down, to weight", f, d, 256, kYes, kNo},
      {"head", 128, v, d, kNo, kYes},
      {"head, to hidden", 128, d, v, kNo, kNo},
      {"head, to table", v, d, 128, kYes, kNo},
      {"attention scores", 64, 64, h, kNo, kYes},
      {"attention values", 64, h, 64, kNo, kNo},
      {"chunk state", h, h, 64, kYes, kNo},
      {"one token", 1, d, d, kNo, kNo},
      {"square", 512, 512, 512, kNo, kNo},
  };
}

template <class F>
double gflops(const Product& p, double seconds, F&& run) {
  using Clock = std::chrono::steady_clock;
  const double flops = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  const auto repeats = std::max<size_t>(1, static_cast<size_t>(2e7 / flops));
  run();
  double best = 0;
  const auto begin = Clock::now();
  do {
    const auto start = Clock::now();
    for (size_t i = 0; i < repeats; ++i) run();
    best = std::max(best, flops * static_cast<double>(repeats) /
                              std::chrono::duration<double>(Clock::now() - start).count() / 1e9);
  } while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds);
  return best;
}

struct Speeds {
  double blis = 0, own = 0, packed = 0;
};

Speeds measure(const Product& p, double seconds, bool blis_alone) {
  const std::vector<float> a(p.m * p.k, 0.5f), b(p.k * p.n, 0.25f);
  std::vector<float> c(p.m * p.n);
  const size_t lda = p.a == Trans::kYes ? p.m : p.k;
  const size_t ldb = p.b == Trans::kYes ? p.k : p.n;
  Speeds s;
  s.blis = gflops(p, seconds, [&] {
    gemm_blis(p.a, p.b, p.m, p.n, p.k, 1.0f, a.data(), lda, b.data(), ldb, 0.0f, c.data(), p.n);
  });
  if (blis_alone) return s;
  s.own = gflops(p, seconds, [&] {
    gemm_own(p.a, p.b, p.m, p.n, p.k, 1.0f, a.data(), lda, b.data(), ldb, 0.0f, c.data(), p.n);
  });
  PackedB<float> packed;
  packed.pack(p.b, p.b == Trans::kYes ? p.n : p.k, p.b == Trans::kYes ? p.k : p.n, b.data());
  s.packed = gflops(p, seconds, [&] { gemm_packed(p.a, p.m, a.data(), lda, packed, 0.0f, c.data(), p.n); });
  return s;
}

// BLIS settles its kernels once per process, so "as found" is another process of this program.
nlohmann::json blis_as_found(const Options& o) {
  std::array<char, 4096> self{};
  const ssize_t length = readlink("/proc/self/exe", self.data(), self.size() - 1);
  int pipe_ends[2];
  if (length <= 0 || pipe(pipe_ends) != 0) return nullptr;
  const std::string seconds = fmt::format("{}", o.seconds);
  const pid_t child = fork();
  if (child < 0) return nullptr;
  if (child == 0) {
    setenv("STORYTAPE_BLIS_AS_FOUND", "1", 1);
    dup2(pipe_ends[1], STDOUT_FILENO);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    execl(self.data(), "storytape", "--json", "bench", "gemm", "--blis-alone", "--model", o.model.c_str(),
          "--seconds", seconds.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  close(pipe_ends[1]);
  std::string text;
  std::array<char, 4096> piece{};
  for (ssize_t n; (n = read(pipe_ends[0], piece.data(), piece.size())) > 0;)
    text.append(piece.data(), static_cast<size_t>(n));
  close(pipe_ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return nullptr;
  return parse_json(text, "bench gemm");
}

int bench_gemm(const Options& o, const Global& global) {
  const ModelConfig config = preset(o.model);
  // Asked for before BLIS settles here, so that the child starts from the user's environment.
  const nlohmann::json found = o.blis_alone ? nlohmann::json() : blis_as_found(o);
  double peak = measure_fma_peak(1);
  nlohmann::json json = {{"blis_kernels", blis_kernels()}, {"gemm_kernels", gemm_kernels()}};
  json["blis_kernels_as_found"] = found.is_null() ? nlohmann::json() : found["blis_kernels"];
  json["products"] = nlohmann::json::array();
  std::vector<std::vector<std::string>> rows = {
      {"product", "m", "n", "k", "op", "BLIS as found", "BLIS", "own", "own, packed B", "of peak", "chosen"}};
  size_t i = 0;
  for (const Product& p : products(config)) {
    const Speeds s = measure(p, o.seconds, o.blis_alone);
    peak = std::max({peak, s.own, s.packed});
    const std::string ops = std::string(p.a == Trans::kYes ? "T" : "N") + (p.b == Trans::kYes ? "T" : "N");
    const std::string chosen = gemm_choice(p.m, p.n, p.k);
    nlohmann::json speeds = {{"blis", s.blis}};
    if (!o.blis_alone) speeds.update({{"own", s.own}, {"own_packed", s.packed}});
    std::string as_found = "-";
    if (!found.is_null()) {
      const double g = found["products"][i]["gflops"]["blis"].get<double>();
      speeds["blis_as_found"] = g;
      as_found = fmt::format("{:.0f}", g);
    }
    json["products"].push_back({{"what", p.what},
                                {"m", p.m},
                                {"n", p.n},
                                {"k", p.k},
                                {"transposes", ops},
                                {"gflops", speeds},
                                {"chosen", chosen}});
    rows.push_back(
        {p.what, std::to_string(p.m), std::to_string(p.n), std::to_string(p.k), ops, as_found,
         fmt::format("{:.0f}", s.blis), fmt::format("{:.0f}", s.own), fmt::format("{:.0f}", s.packed),
         fmt::format("{:.0f}%", 100 * (chosen == "own" ? std::max(s.own, s.packed) : s.blis) / peak),
         chosen});
    ++i;
  }
  json["peak_gflops"] = peak;
  if (global.json) {
    print_json(json);
  } else {
    print(fmt::format(
        "one core, float, GFLOP/s; FMA peak {:.1f}; BLIS runs {} kernels ({} as found), own kernels {}\n{}",
        peak, blis_kernels(), found.is_null() ? "-" : found["blis_kernels"].get<std::string>(),
        gemm_kernels(), table(rows)));
  }
  return 0;
}

}  // namespace

void add_bench_gemm(const Program& program, CLI::App* bench) {
  CLI::App* command =
      bench->add_subcommand("gemm", "the model's matrix products: BLIS, our kernels, and the choice");
  command->fallthrough();
  auto o = std::make_shared<Options>();
  command->add_option("--model", o->model, "storylm-1m, storylm-5m or storylm-30m")->capture_default_str();
  real_option(command, "--seconds", o->seconds, 0, 60, "per product and engine");
  command->add_flag("--blis-alone", o->blis_alone, "measure BLIS alone");
  command->callback([o, &run = program.run, &global = program.global] {
    run = [o, &global] { return bench_gemm(*o, global); };
  });
}

}  // namespace storytape::cli
