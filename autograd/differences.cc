#include "autograd/differences.h"

#include <algorithm>
#include <cmath>

namespace storytape::internal {
namespace {

// A formula over f(x + offset·step), five offsets in a row; to one side where the domain ends.
struct Stencil {
  int first;
  double weights[5];
};
constexpr Stencil kCentral = {-2, {1.0 / 12, -8.0 / 12, 0, 8.0 / 12, -1.0 / 12}};
constexpr Stencil kUpward = {0, {-25.0 / 12, 4, -3, 4.0 / 3, -1.0 / 4}};
constexpr Stencil kDownward = {-4, {1.0 / 4, -4.0 / 3, 3, -4, 25.0 / 12}};

}  // namespace

std::vector<Tensor<double>> values(const GradCase& c, const std::vector<Tensor<double>>& x) {
  Tape<double> tape;
  const NoGrad no_grad(tape);
  std::vector<Var<double>> vars;
  for (const Tensor<double>& t : x) vars.push_back(tape.constant(t));
  std::vector<Tensor<double>> result;
  for (const Var<double>& y : c.run64(tape, vars)) result.push_back(y.value());
  return result;
}

double step_for(double x) {
  return 0x1.0p-9 * std::exp2(std::floor(std::log2(std::clamp(std::abs(x), 0x1p-7, 1.0))));
}

std::vector<Difference> differences(const GradCase& c,
                                    const std::vector<std::vector<Tensor<double>>>& cotangents,
                                    std::vector<Tensor<double>>& x, size_t i, size_t e, double step) {
  const double center = std::as_const(x[i])[e];
  const bool low = center - 2 * step < c.inputs[i].low;
  const bool high = center + 2 * step > c.inputs[i].high;
  const Stencil& stencil = low ? kUpward : high ? kDownward : kCentral;
  const std::vector<Tensor<double>> middle = values(c, x);

  // change[k][set] = <cotangents[set], f(x + offset·step) - f(x)>
  std::vector<std::vector<double>> change(5, std::vector<double>(cotangents.size(), 0.0));
  for (int k = 0; k < 5; ++k) {
    if (stencil.first + k == 0) continue;
    x[i][e] = center + (stencil.first + k) * step;
    const std::vector<Tensor<double>> moved = values(c, x);
    for (size_t s = 0; s < cotangents.size(); ++s) {
      for (size_t j = 0; j < moved.size(); ++j) {
        const Tensor<double>& dy = cotangents[s][j];
        const Tensor<double>& y = moved[j];
        for (size_t o = 0; o < dy.size(); ++o) change[k][s] += dy[o] * (y[o] - middle[j][o]);
      }
    }
  }
  x[i][e] = center;

  std::vector<Difference> result(cotangents.size());
  for (size_t s = 0; s < cotangents.size(); ++s) {
    Difference& d = result[s];
    for (int k = 0; k < 5; ++k) d.central += stencil.weights[k] * change[k][s] / step;
    const bool central = !low && !high;
    d.right = central ? (4 * change[3][s] - change[4][s]) / (2 * step) : d.central;
    d.left = central ? (change[0][s] - 4 * change[1][s]) / (2 * step) : d.central;
  }
  return result;
}

}  // namespace storytape::internal
