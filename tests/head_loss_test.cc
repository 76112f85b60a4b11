// The row kernel of the head's loss on every SIMD target: rows that gradient checks can't take.
#include <cmath>
#include <limits>
#include <vector>

#include "autograd/ops_loss.h"
#include "nn/kernels/head_loss.h"
#include "tests/kernel_testing.h"

namespace storytape::test {
namespace {

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();

// Loss, dl and db of three rows of logits.
template <class T>
struct Head {
  std::vector<double> loss = std::vector<double>(3, std::nan(""));
  Guarded<T> dl, db;

  Head(const Guarded<T>& logits, size_t vocab, std::vector<int32_t> targets) : dl(logits), db(vocab) {
    head_tile(HeadTile<T>{3, vocab, dl.data(), vocab, nullptr, targets.data(), T(0.5), true, db.data(),
                          loss.data()});
  }
};

template <class T>
void check_masked_row() {
  for (const size_t vocab : {1, 3, 16, 40}) {
    INFO(vocab << " classes");
    const auto last = static_cast<int32_t>(vocab - 1);
    Guarded<T> logits = random_values<T>(3 * vocab, 15);
    std::fill_n(logits.data() + vocab, vocab, -kInfinity<T>);
    const Head<T> head(logits, vocab, {0, last, last});
    const Head<T> without(logits, vocab, {0, kIgnoreTarget, last});
    CHECK(head.loss[1] == kInfinity<double>);
    bool zero = true;
    for (size_t v = 0; v < vocab; ++v) zero = zero && head.dl[vocab + v] == 0;
    CHECK(zero);
    for (const size_t row : {0, 2}) {
      CHECK(std::isfinite(head.loss[row]));
      CHECK(head.loss[row] == without.loss[row]);
      CHECK(same_bits(head.dl.data() + row * vocab, without.dl.data() + row * vocab, vocab));
    }
    CHECK(same_bits(head.db.data(), without.db.data(), vocab));
    CHECK(head.dl.intact());

    // One NaN among them is no mask.
    logits[vocab] = std::numeric_limits<T>::quiet_NaN();
    const Head<T> broken(logits, vocab, {0, last, last});
    CHECK(std::isnan(broken.loss[1]));
    CHECK(std::isnan(broken.dl[vocab]));
  }
}

TEST_CASE("B028 a row of logits of -inf alone has loss +inf and no gradient, the others are as without it") {
  on_every_target([] {
    check_masked_row<float>();
    check_masked_row<double>();
  });
}

template <class T>
void check_masked_classes() {
  for (const size_t vocab : {3, 16, 40}) {
    INFO(vocab << " classes");
    Guarded<T> logits(3 * vocab, -kInfinity<T>);
    for (size_t row = 0; row < 3; ++row) logits[row * vocab] = logits[row * vocab + 1] = T{10000};
    const Head<T> head(logits, vocab, {0, 2, kIgnoreTarget});
    CHECK(head.loss[0] == Approx(std::log(2.0)));
    CHECK(head.loss[1] == kInfinity<double>);
    CHECK(head.loss[2] == 0);
    const auto dl = [&](size_t row, size_t v) { return head.dl[row * vocab + v]; };
    CHECK((dl(0, 0) == T(-0.25) && dl(0, 1) == T(0.25) && dl(0, 2) == 0));
    CHECK((dl(1, 0) == T(0.25) && dl(1, 1) == T(0.25) && dl(1, 2) == T(-0.5)));
    CHECK((dl(2, 0) == 0 && dl(2, 1) == 0 && dl(2, 2) == 0));
  }
}

TEST_CASE("B033 the head's loss takes huge logits and masked classes") {
  on_every_target([] {
    check_masked_classes<float>();
    check_masked_classes<double>();
  });
}

}  // namespace
}  // namespace storytape::test
