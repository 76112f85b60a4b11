#include "tensor/tensor.h"

#include <atomic>
#include <cmath>
#include <thread>

#include "tensor/address_sanitizer.h"
#include "tensor/random.h"
#include "tensor/threads.h"
#include "tests/catch.h"

using namespace storytape;

TEST_CASE("B087 a write through a copy, a reshape or a row range never reaches the original") {
  Tensor<float> a({2, 3}, {1, 2, 3, 4, 5, 6});
  Tensor<float> copy = a;
  copy.data()[0] = 9;
  CHECK(std::as_const(a)[0] == 1);
  Tensor<float> reshaped = a.reshape({3, 2});
  reshaped[1] = 9;
  CHECK(std::as_const(a)[1] == 2);
  Tensor<float> row = a.rows(1, 2);
  CHECK(std::as_const(row)[0] == 4);
  row.fill(0);
  CHECK(a.to_vector() == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(row.to_vector() == std::vector<float>{0, 0, 0});
}

TEST_CASE("shapes that don't fit are refused by name") {
  const Tensor<float> a({2, 3}, 0.0f);
  CHECK_THROWS_WITH(a.reshape({7}), Catch::Matchers::Contains("[2, 3]") && Catch::Matchers::Contains("[7]"));
  CHECK_THROWS_WITH(a.rows(1, 3), Catch::Matchers::Contains("[1, 3)"));
  CHECK_THROWS_AS(a.item(), Error);
  CHECK_THROWS_AS(broadcast({2, 3}, {2}), Error);
  CHECK(broadcast({2, 1, 4}, {3, 1}) == Shape{2, 3, 4});
}

TEST_CASE("freed buffers are used again, so that a repeated computation allocates nothing") {
  const auto work = [] {
    for (size_t n = 1; n < 100000; n = n * 3 + 1) {
      Tensor<float> a({n}, 1.0f);
      Tensor<double> b({n, 2}, 1.0);
    }
  };
  work();
  const uint64_t before = allocation_count();
  work();
  CHECK(allocation_count() == before);
  CHECK(Tensor<float>({0, 3}).size() == 0);
  const Tensor<float> five({5}, 0.0f);
  CHECK(reinterpret_cast<uintptr_t>(five.data()) % 64 == 0);
#ifdef STORYTAPE_ADDRESS_SANITIZER
  // The sanitizer knows what is in the pool, and where a buffer ends within its block.
  const float* gone = Tensor<float>({5}, 0.0f).data();
  CHECK(__asan_address_is_poisoned(gone));
  CHECK(__asan_address_is_poisoned(five.data() + 5));
  CHECK_FALSE(__asan_address_is_poisoned(five.data() + 4));
#endif
}

TEST_CASE("B131 random numbers are the published Philox values, on every compiler") {
  // Known answers of Philox4x32-10 (the Random123 distribution's test vectors).
  CHECK(philox({0, 0, 0, 0}, {0, 0}) ==
        std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  Random a(7), b(7), other(7, 1);
  for (int i = 0; i < 100; ++i) {
    const uint64_t x = a.next();
    CHECK(x == b.next());
    CHECK(x == Random(7).at(static_cast<uint64_t>(i)));
    CHECK(x != other.next());
  }
  Random below(3);
  std::array<int, 5> counts{};
  for (int i = 0; i < 50000; ++i) ++counts[below.below(5)];
  for (const int count : counts) CHECK(std::abs(count - 10000) < 500);
  double mean = 0, squares = 0;
  for (int i = 0; i < 100000; ++i) {
    const double x = below.normal();
    mean += x / 1e5;
    squares += x * x / 1e5;
  }
  CHECK(std::abs(mean) < 0.02);
  CHECK(std::abs(squares - 1) < 0.03);
}

TEST_CASE(
    "B147 the thread pool runs each task once, hands on exceptions, and can be made and dropped often") {
  for (const size_t threads : {1u, 2u, 3u, 8u}) {
    ThreadPool pool(threads);
    std::vector<std::atomic<int>> seen(1000);
    pool.parallel_for(seen.size(), [&](size_t i) { ++seen[i]; });
    pool.parallel_for_static(seen.size(), [&](size_t i) { ++seen[i]; });
    for (const auto& count : seen) REQUIRE(count == 2);
    CHECK_THROWS_WITH(pool.parallel_for(100,
                                        [](size_t i) {
                                          if (i == 50) fail("task 50");
                                        }),
                      "task 50");
    // A call from within a task stays on its thread.
    std::atomic<int> nested{0};
    pool.parallel_for(4, [&](size_t) { pool.parallel_for(5, [&](size_t) { ++nested; }); });
    CHECK(nested == 20);
  }
  for (int i = 0; i < 1000; ++i) ThreadPool pool(3);
  CHECK_THROWS_AS(ThreadPool(0), Error);
}

TEST_CASE("B134 the default number of threads lies within the CPUs of the process") {
  CHECK(default_threads() >= 1);
  CHECK(default_threads() <= std::max(1u, std::thread::hardware_concurrency()));
}
