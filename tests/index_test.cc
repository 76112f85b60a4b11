// Rows by number, slices, joins, transposes.
#include "tensor/index.h"

#include <numeric>
#include <thread>
#include <vector>

#include "tests/kernel_testing.h"

namespace storytape::test {
namespace {

template <class T>
Tensor<T> counted(const Shape& shape) {
  Tensor<T> x(shape);
  std::iota(x.data(), x.data() + x.size(), T{0});
  return x;
}

template <class F>
std::string message_of(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("gather_rows copies the rows named") {
  const Tensor<float> table = counted<float>({4, 3});
  const std::vector<int32_t> ids = {2, 0, 2};
  const Tensor<float> y = gather_rows(table, std::span<const int32_t>(ids));
  CHECK(y.shape() == Shape{3, 3});
  CHECK(y.to_vector() == std::vector<float>{6, 7, 8, 0, 1, 2, 6, 7, 8});
  CHECK(gather_rows(table, std::span<const int32_t>()).shape() == Shape{0, 3});
}

TEST_CASE("B032 an id outside the table is refused with its position and value, before anything is written") {
  constexpr int32_t kVocab = 5;
  const Tensor<float> table = counted<float>({kVocab, 2});
  for (const int32_t bad : {-4, -1, kVocab, kVocab + 1, std::numeric_limits<int32_t>::max()}) {
    const std::vector<int32_t> ids = {0, 4, bad, 1};
    const std::string gathered = message_of([&] { gather_rows(table, std::span<const int32_t>(ids)); });
    CHECK(contains(gathered, std::to_string(bad)));
    CHECK(contains(gathered, "position 2"));
    std::vector<float> sums(2 * kVocab, 1.0f);
    const std::vector<float> rows(2 * 4, 1.0f);
    CHECK_THROWS_AS(scatter_add_rows(sums.data(), kVocab, 2, std::span<const int32_t>(ids), rows.data()),
                    Error);
    CHECK(sums == std::vector<float>(2 * kVocab, 1.0f));
  }
}

TEST_CASE("B057 gradients of repeated tokens are summed, with the same bits each time") {
  constexpr size_t kVocab = 11, kDim = 19, kTokens = 512;
  const Guarded<float> rows = random_values<float>(kTokens * kDim, 3);
  std::vector<int32_t> same(kTokens, 7), ends(kTokens);
  for (size_t i = 0; i < kTokens; ++i) ends[i] = i % 3 ? 0 : static_cast<int32_t>(kVocab) - 1;
  for (const std::vector<int32_t>& ids : {same, ends}) {
    std::vector<long double> want(kVocab * kDim, 0);
    for (size_t i = 0; i < kTokens; ++i) {
      for (size_t j = 0; j < kDim; ++j) want[static_cast<size_t>(ids[i]) * kDim + j] += rows[i * kDim + j];
    }
    on_every_target([&] {
      std::vector<float> first(kVocab * kDim, 0.0f);
      scatter_add_rows(first.data(), kVocab, kDim, std::span<const int32_t>(ids), rows.data());
      CHECK(all_close(first.data(), want, 1e-5));
      bool other_rows_zero = true;
      for (size_t i = kDim; i < 6 * kDim; ++i) other_rows_zero = other_rows_zero && first[i] == 0.0f;
      CHECK(other_rows_zero);
      for (int repeat = 0; repeat < 20; ++repeat) {
        std::vector<float> again(kVocab * kDim, 0.0f);
        scatter_add_rows(again.data(), kVocab, kDim, std::span<const int32_t>(ids), rows.data());
        CHECK(again == first);
      }
    });
  }
}

// Element by element, by index arithmetic.
template <class T>
bool is_transpose(const Tensor<T>& x, const Tensor<T>& y, const std::vector<size_t>& permutation) {
  for (size_t i = 0; i < y.size(); ++i) {
    std::array<size_t, Shape::kMaxRank> at{};
    size_t rest = i;
    for (size_t axis = y.rank(); axis-- > 0;) {
      at[permutation[axis]] = rest % y.size(axis);
      rest /= y.size(axis);
    }
    size_t source = 0;
    for (size_t axis = 0; axis < x.rank(); ++axis) source = source * x.size(axis) + at[axis];
    if (y[i] != x[source]) return false;
  }
  return true;
}

TEST_CASE("transpose moves every element to its place, for every permutation") {
  for (const Shape& shape : {Shape{}, Shape{5}, Shape{3, 4}, Shape{33, 65}, Shape{2, 3, 5}, Shape{4, 1, 7, 2},
                             Shape{2, 3, 17, 33}, Shape{2, 0, 3}, Shape{2, 3, 1, 2, 5}}) {
    const Tensor<double> x = counted<double>(shape);
    std::vector<size_t> permutation(shape.rank());
    std::iota(permutation.begin(), permutation.end(), size_t{0});
    do {
      const Tensor<double> y = transpose(x, std::span<const size_t>(permutation));
      INFO(to_string(shape) << " by " << to_string(Shape(permutation)));
      bool shapes = y.rank() == x.rank();
      for (size_t i = 0; i < x.rank(); ++i) shapes = shapes && y.size(i) == x.size(permutation[i]);
      REQUIRE(shapes);
      CHECK(is_transpose(x, y, permutation));
    } while (std::next_permutation(permutation.begin(), permutation.end()));
  }
  const Tensor<float> x = counted<float>({2, 3});
  CHECK(transpose(x).to_vector() == std::vector<float>{0, 3, 1, 4, 2, 5});
}

TEST_CASE("transpose refuses what is no permutation") {
  const Tensor<float> x = counted<float>({2, 3});
  for (const std::vector<size_t>& permutation : {std::vector<size_t>{0}, {0, 0}, {0, 2}, {0, 1, 2}}) {
    CHECK_THROWS_AS(transpose(x, std::span<const size_t>(permutation)), Error);
  }
  CHECK_THROWS_AS(transpose(counted<float>({3})), Error);
}

TEST_CASE("slice, add_to_slice and concat") {
  const Tensor<float> x = counted<float>({2, 3, 2});
  const Tensor<float> middle = slice(x, 1, 1, 3);
  CHECK(middle.shape() == Shape{2, 2, 2});
  CHECK(middle.to_vector() == std::vector<float>{2, 3, 4, 5, 8, 9, 10, 11});
  CHECK(slice(x, 0, 1, 1).shape() == Shape{0, 3, 2});
  CHECK(slice(x, 2, 0, 1).to_vector() == std::vector<float>{0, 2, 4, 6, 8, 10});

  Tensor<float> whole = Tensor<float>::zeros({2, 3, 2});
  add_to_slice(whole, 1, 1, middle);
  add_to_slice(whole, 1, 1, middle);
  CHECK(whole.to_vector() == std::vector<float>{0, 0, 4, 6, 8, 10, 0, 0, 16, 18, 20, 22});

  for (size_t axis = 0; axis < 3; ++axis) {
    const size_t size = x.size(axis);
    const std::vector<Tensor<float>> parts = {slice(x, axis, 0, 1), slice(x, axis, 1, 1),
                                              slice(x, axis, 1, size)};
    const Tensor<float> joined = concat(std::span<const Tensor<float>>(parts), axis);
    CHECK(joined.shape() == x.shape());
    CHECK(joined.to_vector() == x.to_vector());
  }
}

TEST_CASE("slice, add_to_slice and concat refuse what doesn't fit") {
  const Tensor<float> x = counted<float>({2, 3});
  CHECK_THROWS_AS(slice(x, 2, 0, 1), Error);
  CHECK_THROWS_AS(slice(x, 1, 2, 1), Error);
  CHECK_THROWS_AS(slice(x, 1, 0, 4), Error);
  Tensor<float> whole = counted<float>({2, 3});
  CHECK_THROWS_AS(add_to_slice(whole, 1, 2, counted<float>({2, 2})), Error);
  CHECK_THROWS_AS(add_to_slice(whole, 1, std::numeric_limits<size_t>::max(), counted<float>({2, 2})), Error);
  CHECK_THROWS_AS(add_to_slice(whole, 1, 0, counted<float>({3, 2})), Error);
  const std::vector<Tensor<float>> parts = {x, counted<float>({3, 3})};
  CHECK_THROWS_AS(concat(std::span<const Tensor<float>>(parts), 1), Error);
  CHECK(concat(std::span<const Tensor<float>>(parts), 0).shape() == Shape{5, 3});
  CHECK_THROWS_AS(concat(std::span<const Tensor<float>>(parts), 2), Error);
  CHECK_THROWS_AS(concat(std::span<const Tensor<float>>(), 0), Error);
}

}  // namespace
}  // namespace storytape::test
