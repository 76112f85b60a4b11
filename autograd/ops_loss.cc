#include "autograd/ops_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tensor/elementwise.h"
#include "tensor/reduce.h"

namespace storytape {
namespace {

// y = x - m
template <class T>
void subtract(const T* x, T m, T* y, size_t n) {
  binary_rows(Binary::kSub, {1, n, n, 1, 0, 0}, x, &m, y);
}

}  // namespace

template <class T>
Var<T> cross_entropy(Var<T> logits, std::span<const int32_t> targets, int32_t ignore) {
  const Tensor<T>& x = logits.value();
  if (x.rank() == 0) fail("cross_entropy wants logits [..., classes], got a single value");
  const size_t classes = x.shape().back();
  const size_t rows = x.shape().product(0, x.rank() - 1);
  if (targets.size() != rows) {
    fail("cross_entropy: logits {} have {} rows, got {} targets", to_string(x.shape()), rows, targets.size());
  }
  size_t count = 0;
  for (size_t row = 0; row < rows; ++row) {
    const int32_t target = targets[row];
    if (target == ignore) continue;
    if (target < 0 || static_cast<size_t>(target) >= classes) {
      fail("cross_entropy: target {} at position {} lies outside the {} classes", target, row, classes);
    }
    ++count;
  }

  // loss = Σ (log Σ e^(x-m) - (x[target]-m)) / count, m the row's largest: no digits of the difference are
  // lost to the size of the logits.
  Tensor<T> largest({rows}, T{0}), total({rows}, T{0}), shifted({classes});
  T* m = largest.data();
  T* lse = total.data();
  T* row_values = shifted.data();
  double sum = 0;
  std::vector<int32_t> kept(targets.begin(), targets.end());
  for (size_t row = 0; row < rows; ++row) {
    if (targets[row] == ignore) continue;
    const T* logit = x.data() + row * classes;
    max_middle(logit, &m[row], 1, classes, 1);
    if (!std::isfinite(m[row])) m[row] = 0;
    subtract(logit, m[row], row_values, classes);
    log_sum_exp(row_values, &lse[row], 1, classes);
    if (lse[row] == -std::numeric_limits<T>::infinity()) {  // every class is masked out
      sum += std::numeric_limits<double>::infinity();
      kept[row] = ignore;
      continue;
    }
    sum += static_cast<double>(lse[row]) - static_cast<double>(row_values[targets[row]]);
  }
  Tensor<T> loss(Shape(), static_cast<T>(count ? sum / static_cast<double>(count) : 0.0));

  return logits.tape().record(
      "cross_entropy", std::move(loss), {logits},
      [logits, largest, total, kept = std::move(kept), ignore, classes, count](const Grads<T>& dy) {
        const GradSlot<T> slot = logits.grad_slot();
        const T factor = count ? dy.one().item() / static_cast<T>(count) : T{0};
        Tensor<T> without_m({classes});
        for (size_t row = 0; row < kept.size(); ++row) {
          T* dx = slot.data + row * classes;
          if (kept[row] == ignore) {
            if (slot.fresh) std::fill_n(dx, classes, T{0});
            continue;
          }
          // forward:  (log Σ e^(x-m) - (x[target]-m)) / count;  m cancels
          subtract(logits.value().data() + row * classes, largest[row], without_m.data(), classes);
          log_sum_exp_backward(std::as_const(without_m).data(), &total[row], &factor, dx, 1, classes,
                               !slot.fresh);
          dx[kept[row]] -= factor;
        }
      });
}

template Var<float> cross_entropy(Var<float>, std::span<const int32_t>, int32_t);
template Var<double> cross_entropy(Var<double>, std::span<const int32_t>, int32_t);

}  // namespace storytape
