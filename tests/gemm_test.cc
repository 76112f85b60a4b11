#include "tensor/gemm.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tensor/random.h"
#include "tensor/simd.h"
#include "tests/catch.h"

using namespace storytape;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Case {
  Trans ta, tb;
  size_t m, n, k;
  double alpha = 1, beta = 0;
};

// c = alpha·op(a)·op(b) + beta·c in long double; c is not read where beta is 0.
template <class T>
std::vector<T> plain_product(const Case& p, const std::vector<T>& a, const std::vector<T>& b,
                             std::vector<T> c) {
  for (size_t i = 0; i < p.m; ++i) {
    for (size_t j = 0; j < p.n; ++j) {
      long double sum = 0;
      for (size_t q = 0; q < p.k; ++q) {
        const T x = p.ta == Trans::kYes ? a[q * p.m + i] : a[i * p.k + q];
        const T y = p.tb == Trans::kYes ? b[j * p.k + q] : b[q * p.n + j];
        sum += static_cast<long double>(x) * static_cast<long double>(y);
      }
      T& to = c[i * p.n + j];
      to =
          static_cast<T>(static_cast<long double>(p.alpha) * sum +
                         (p.beta == 0 ? 0 : static_cast<long double>(p.beta) * static_cast<long double>(to)));
    }
  }
  return c;
}

template <class T>
std::vector<T> random_values(size_t n, uint64_t seed) {
  Random random(seed);
  std::vector<T> v(n);
  for (T& x : v) x = static_cast<T>(random.uniform(-1, 1));
  return v;
}

// The worst difference, NaN counting as infinite.
template <class T>
double worst(const std::vector<T>& a, const std::vector<T>& b) {
  double w = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(d <= w)) w = std::isnan(d) ? INFINITY : d;
  }
  return w;
}

template <class T, class Engine>
void check(const Case& p, Engine&& engine) {
  CAPTURE(p.m, p.n, p.k, p.ta == Trans::kYes, p.tb == Trans::kYes, p.alpha, p.beta, simd_target());
  const auto a = random_values<T>(p.m * p.k, 1);
  const auto b = random_values<T>(p.k * p.n, 2);
  // beta = 0 must not read C.
  std::vector<T> c =
      p.beta == 0 ? std::vector<T>(p.m * p.n, static_cast<T>(kNaN)) : random_values<T>(p.m * p.n, 3);
  const auto want = plain_product(p, a, b, c);
  const size_t lda = std::max<size_t>(1, p.ta == Trans::kYes ? p.m : p.k);
  const size_t ldb = std::max<size_t>(1, p.tb == Trans::kYes ? p.k : p.n);
  engine(p.ta, p.tb, p.m, p.n, p.k, static_cast<T>(p.alpha), a.data(), lda, b.data(), ldb,
         static_cast<T>(p.beta), c.data(), std::max<size_t>(1, p.n));
  const double unit = std::is_same_v<T, float> ? 6e-8 : 1.2e-16;
  // k roundings of partial sums that grow like sqrt(k)/3: about unit·k/3 in the mean square, six times that
  // at worst, and each product once more where there is no fused multiply-add.
  REQUIRE(worst(c, want) <= unit * (8 + 4 * static_cast<double>(p.k) / 3) * std::max(1.0, std::abs(p.alpha)));
}

template <class T>
void check_all(const Case& p) {
  check<T>(p, [](auto... args) { gemm(args...); });
  check<T>(p, [](auto... args) { gemm_own(args...); });
  check<T>(p, [](auto... args) { gemm_blis(args...); });
}

template <class F>
void on_every_target(F&& f) {
  for (const std::string& target : simd_targets()) {
    force_simd_target(target);
    f();
  }
  force_simd_target("");
}

}  // namespace

TEST_CASE("products of all transposes and odd sizes equal the plain sum, on every target") {
  on_every_target([] {
    for (const Trans ta : {Trans::kNo, Trans::kYes}) {
      for (const Trans tb : {Trans::kNo, Trans::kYes}) {
        for (const size_t m : {1u, 2u, 5u, 6u, 7u, 13u, 37u}) {
          for (const size_t n : {1u, 3u, 16u, 17u, 64u, 65u, 130u}) {
            for (const size_t k : {1u, 2u, 33u}) {
              check_all<float>({ta, tb, m, n, k});
              check_all<double>({ta, tb, m, n, k});
            }
          }
        }
        check_all<float>({ta, tb, 67, 131, 1100, 1, 1});
        check_all<double>({ta, tb, 67, 131, 1100, -0.5, 1});
      }
    }
  });
}

TEST_CASE("B127 beta = 0 does not read C, and alpha = 0 reads neither A nor B") {
  on_every_target([] {
    for (size_t size = 1; size <= 40; size += 3) {
      check_all<float>({Trans::kNo, Trans::kNo, size, size + 1, size + 2, 1, 0});
      check_all<float>({Trans::kYes, Trans::kYes, size, size + 1, size + 2, 2, 0.5});
      check_all<double>({Trans::kNo, Trans::kYes, size, size + 1, size + 2, 1, 2});
    }
    std::vector<float> a(12, static_cast<float>(kNaN)), b(12, 1.0f), c(9, 2.0f);
    gemm(Trans::kNo, Trans::kNo, 3, 3, 4, 0.0f, a.data(), 4, b.data(), 3, 1.0f, c.data(), 3);
    REQUIRE(c == std::vector<float>(9, 2.0f));
  });
}

TEST_CASE("B128 empty and 1x1 products") {
  on_every_target([] {
    for (const size_t m : {0u, 1u, 2u}) {
      for (const size_t n : {0u, 1u, 2u}) {
        for (const size_t k : {0u, 1u, 2u}) {
          for (const double beta : {0.0, 1.0, 2.0}) {
            check_all<float>({Trans::kNo, Trans::kNo, m, n, k, 1, beta});
            check_all<double>({Trans::kYes, Trans::kNo, m, n, k, 1, beta});
          }
        }
      }
    }
    gemm<float>(Trans::kNo, Trans::kNo, 0, 0, 0, 1, nullptr, 1, nullptr, 1, 0, nullptr, 1);
  });
}

TEST_CASE("B126 no load or store goes past an operand's end") {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  // An array whose last byte is the last of a page that a protected one follows.
  struct Guarded {
    Guarded(size_t n, size_t page_size)
        : bytes((n * sizeof(float) + page_size - 1) / page_size * page_size + page_size) {
      memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      REQUIRE(memory != MAP_FAILED);
      mprotect(static_cast<char*>(memory) + bytes - page_size, page_size, PROT_NONE);
      data = reinterpret_cast<float*>(static_cast<char*>(memory) + bytes - page_size) - n;
      std::fill_n(data, n, 1.0f);
    }
    ~Guarded() { munmap(memory, bytes); }
    size_t bytes;
    void* memory;
    float* data;
  };
  on_every_target([&] {
    for (size_t m = 1; m <= 17; m += 4) {
      for (size_t n = 1; n <= 35; n += 2) {
        for (size_t k = 1; k <= 17; k += 8) {
          const Guarded a(m * k, page), b(k * n, page), c(m * n, page);
          for (const Trans t : {Trans::kNo, Trans::kYes}) {
            gemm_own(t, t, m, n, k, 1.0f, a.data, t == Trans::kYes ? m : k, b.data, t == Trans::kYes ? k : n,
                     0.0f, c.data, n);
            REQUIRE(c.data[m * n - 1] == static_cast<float>(k));
          }
        }
      }
    }
  });
}

TEST_CASE("the epilogue adds bias and residual, applies GELU and its reverse") {
  on_every_target([] {
    const size_t m = 53, n = 67, k = 31;
    const auto a = random_values<double>(m * k, 1);
    const auto b = random_values<double>(k * n, 2);
    const auto bias = random_values<double>(n, 3);
    const auto residual = random_values<double>(m * n, 4);
    const auto sum =
        plain_product<double>({Trans::kNo, Trans::kNo, m, n, k}, a, b, std::vector<double>(m * n));
    PackedB<double> packed;
    packed.pack(Trans::kNo, k, n, b.data());

    std::vector<double> c(m * n, kNaN), pre(m * n, kNaN);
    Epilogue<double> e;
    e.bias = bias.data();
    e.residual = residual.data();
    e.ld_residual = n;
    e.gelu_pre = pre.data();
    gemm_packed(Trans::kNo, m, a.data(), k, packed, 0.0, c.data(), n, e);
    const auto gelu = [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); };
    for (size_t i = 0; i < m * n; ++i) {
      const double x = sum[i] + bias[i % n] + residual[i];
      REQUIRE(std::abs(pre[i] - x) <= 1e-13);
      REQUIRE(std::abs(c[i] - gelu(x)) <= 1e-13);
    }

    Epilogue<double> reverse;
    reverse.gelu_grad_pre = pre.data();
    gemm_packed(Trans::kNo, m, a.data(), k, packed, 0.0, c.data(), n, reverse);
    for (size_t i = 0; i < m * n; ++i) {
      const double x = pre[i];
      const double slope = 0.5 * std::erfc(-x / std::sqrt(2.0)) +
                           x * std::exp(-x * x / 2) / std::sqrt(2 * 3.14159265358979323846);
      REQUIRE(std::abs(c[i] - sum[i] * slope) <= 1e-12);
    }
  });
}

TEST_CASE("column sums add to what is there or replace it") {
  on_every_target([] {
    for (const size_t n : {1u, 7u, 64u, 131u}) {
      const auto x = random_values<float>(9 * n, 1);
      std::vector<float> out(n, static_cast<float>(kNaN));
      column_sums(9, n, x.data(), 0.0f, out.data());
      std::vector<float> twice = out;
      column_sums(9, n, x.data(), 1.0f, twice.data());
      for (size_t j = 0; j < n; ++j) {
        double sum = 0;
        for (size_t i = 0; i < 9; ++i) sum += static_cast<double>(x[i * n + j]);
        REQUIRE(std::abs(static_cast<double>(out[j]) - sum) <= 1e-5);
        REQUIRE(std::abs(static_cast<double>(twice[j]) - 2 * sum) <= 2e-5);
      }
    }
  });
}

TEST_CASE("B135 BLIS runs no generic kernels on a CPU with AVX2, and stays on the calling thread") {
  const auto targets = simd_targets();
  const bool wide = targets.front() == "AVX3" || targets.front() == "AVX2";
  if (wide && !std::getenv("BLIS_ARCH_TYPE")) CHECK(blis_kernels() != "generic");
  CHECK_FALSE(blis_kernels().empty());
}
