#include "autograd/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/compare.h"
#include "autograd/differences.h"
#include "autograd/evaluate.h"
#include "tensor/random.h"
#include "tensor/reduce.h"

namespace storytape {
namespace {

using internal::cast_all;
using internal::Difference;
using internal::differences;
using internal::Evaluation;
using internal::largest;
using internal::relative_error;
using internal::Request;
using internal::step_for;
using internal::zeros_if_undefined;

constexpr double kComplexStep = 1e-30;
constexpr double kFloatRounding = 0x1.0p-24;
// Agreement of two runs of the same kernel that differ only in where the gradient is added.
constexpr double kSameKernel = 1e-12;
constexpr int kMoves = 8;

uint64_t hash(std::string_view text) {
  uint64_t h = 14695981039346656037u;  // FNV-1a
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return h;
}

void note(GradRow& row, const std::string& what) {
  if (row.ok) row.why = what;
  row.ok = false;
}

// Takes an error into `worst` (which a NaN then stays) and fails the row if it isn't within the bound.
void judge(GradRow& row, double& worst, double error, double bound, const std::string& what) {
  if (!std::isnan(worst) && !(error <= worst)) worst = error;
  if (std::isnan(error)) {
    note(row, what + ": there are values that are not finite, or were never written");
  } else if (!(error <= bound)) {
    note(row, fmt::format("{}: {:.2e}, allowed {:.0e}", what, error, bound));
  }
}

class Checker {
 public:
  Checker(const GradCase& c, const GradCheckOptions& options)
      : case_(c), options_(options), random_(options.seed, hash(c.name())) {
    for (const NamedInput& input : c.inputs) {
      x_.push_back(input.value);
      wanted_.push_back(input.differentiable);
      rows_.push_back({c.op, c.face, c.example, input.name});
    }
    for (const std::string& y : c.outputs) rows_.push_back({c.op, c.face, c.example, "-> " + y});
  }

  std::vector<GradRow> run() {
    try {
      check();
    } catch (const std::exception& error) {
      for (GradRow& row : rows_) note(row, error.what());
    }
    std::vector<GradRow> rows;
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (i >= wanted_.size() || wanted_[i]) rows.push_back(std::move(rows_[i]));
    }
    return rows;
  }

 private:
  void check() {
    draw_cotangents();
    for (size_t i = 0; i < inputs(); ++i) {
      picks_.push_back(wanted_[i] ? pick(x_[i].size()) : std::vector<size_t>());
    }
    leave_kinks();
    check_reference();
    check_variations();
    check_float();
  }

  double float_floor() const { return std::max(case_.floor, case_.float_floor); }
  size_t inputs() const { return x_.size(); }
  size_t sets() const { return cotangents_.size(); }
  GradRow& output_row(size_t j) { return rows_[inputs() + j]; }
  std::string set_name(size_t s) const {
    if (sets() == 1) return "";
    return s < case_.outputs.size() ? " from " + case_.outputs[s] : " from all outputs";
  }

  Tensor<double> normal(const Shape& shape) {
    Tensor<double> t(shape);
    for (double& v : t.values()) v = static_cast<float>(random_.normal());
    return t;
  }

  // One set for each output alone and one for all.
  void draw_cotangents() {
    const std::vector<Tensor<double>> outputs = values();
    std::vector<Tensor<double>> all;
    for (const Tensor<double>& y : outputs) all.push_back(normal(y.shape()));
    for (size_t j = 0; j < outputs.size() && outputs.size() > 1; ++j) {
      std::vector<Tensor<double>> alone(outputs.size());
      alone[j] = all[j];
      cotangents_.push_back(std::move(alone));
    }
    cotangents_.push_back(std::move(all));
  }

  std::vector<size_t> pick(size_t size) {
    std::vector<size_t> all(size);
    std::iota(all.begin(), all.end(), size_t{0});
    if (case_.samples == 0 || case_.samples >= size) return all;
    for (size_t i = 0; i < case_.samples; ++i) std::swap(all[i], all[i + random_.below(size - i)]);
    all.resize(case_.samples);
    return all;
  }

  // The op's values at x_, nothing recorded.
  std::vector<Tensor<double>> values() const {
    return evaluate(case_, case_.run64, Request<double>{x_, std::vector<bool>(inputs(), false), {}, {}})
        .outputs;
  }

  Evaluation<double> gradients(const std::vector<Tensor<double>>& cotangents) const {
    return evaluate(case_, case_.run64, Request<double>{x_, wanted_, cotangents, {}});
  }

  std::vector<Difference> difference(size_t i, size_t e, double steps) {
    return differences(case_, cotangents_, x_, i, e, steps * step_for(std::as_const(x_[i])[e]));
  }

  // Takes the analytic gradients and the differences at x_, moving x_ until no difference straddles a kink.
  void leave_kinks() {
    for (int round = 0;; ++round) {
      analytic_.clear();
      for (size_t s = 0; s < sets(); ++s) analytic_.push_back(gradients(cotangents_[s]));
      bool moved = false;
      for (size_t i = 0; i < inputs(); ++i) {
        if (wanted_[i]) moved = check_differences(i, round == kMoves) || moved;
      }
      if (!moved) return;
    }
  }

  // Whether elements lay at a kink and were moved; the row is judged only if not.
  bool check_differences(size_t i, bool last_round) {
    GradRow& row = rows_[i];
    const std::vector<size_t>& picks = picks_[i];
    std::vector<std::vector<Difference>> numeric;  // [pick][set]
    for (const size_t e : picks) numeric.push_back(difference(i, e, 1));
    std::vector<bool> kink(picks.size(), false);
    for (size_t s = 0; s < sets(); ++s) {
      const Tensor<double> a = zeros_if_undefined(analytic_[s].grads[i], x_[i].shape());
      double scale = case_.floor;
      for (const auto& d : numeric) scale = std::max(scale, std::abs(d[s].central));
      for (size_t p = 0; p < picks.size(); ++p) {
        kink[p] = kink[p] || is_kink(i, picks[p], s, a[picks[p]], numeric[p][s], scale);
      }
    }
    if (std::find(kink.begin(), kink.end(), true) != kink.end()) {
      if (!last_round) {
        for (size_t p = 0; p < picks.size(); ++p) {
          if (kink[p]) move(i, picks[p]);
        }
        row.moved += static_cast<size_t>(std::count(kink.begin(), kink.end(), true));
        return true;
      }
      note(row, fmt::format("differences don't settle: a kink that {} moves did not leave", kMoves));
    }
    for (size_t s = 0; s < sets(); ++s) {
      const Tensor<double> a = zeros_if_undefined(analytic_[s].grads[i], x_[i].shape());
      std::vector<double> found, wanted;
      for (size_t p = 0; p < picks.size(); ++p) {
        found.push_back(a[picks[p]]);
        wanted.push_back(numeric[p][s].central);
      }
      judge(row, row.worst_difference, relative_error(found, wanted, case_.floor), options_.difference_bound,
            "differs from central differences" + set_name(s));
    }
    return false;
  }

  bool is_kink(size_t i, size_t e, size_t set, double analytic, const Difference& wide, double scale) {
    if (std::abs(wide.right - wide.left) > 1e-2 * scale) return true;
    const double gap = std::abs(analytic - wide.central);
    if (gap <= options_.difference_bound * scale) return false;
    // Wrong, or a kink close by? A wrong gradient does not hinder the differences to agree among themselves.
    const Difference narrow = difference(i, e, 0.125)[set];
    return std::abs(narrow.central - wide.central) > gap / 4 ||
           std::abs(narrow.right - narrow.left) > gap / 2;
  }

  // By a random amount, so that equal elements part.
  void move(size_t i, size_t e) {
    const NamedInput& input = case_.inputs[i];
    const double x = std::as_const(x_[i])[e];
    const double by = random_.uniform(0.04, 0.1) * std::clamp(std::abs(x), 0.25, 10.0);
    const bool up = x + by > input.high ? false : x - by < input.low ? true : random_.below(2) == 0;
    x_[i][e] = static_cast<float>(up ? x + by : x - by);
  }

  // d<cotangents, reference> along the imaginary part of z, for each set.
  std::vector<double> complex_step(std::vector<ComplexTensor>& z) const {
    const std::vector<ComplexTensor> y = case_.reference(z);
    std::vector<double> result(sets(), 0.0);
    for (size_t s = 0; s < sets(); ++s) {
      for (size_t j = 0; j < y.size(); ++j) {
        const Tensor<double>& dy = cotangents_[s][j];
        for (size_t o = 0; o < dy.size(); ++o) result[s] += dy[o] * (y[j][o].imag() / kComplexStep);
      }
    }
    return result;
  }

  std::vector<ComplexTensor> complex_inputs() const {
    std::vector<ComplexTensor> z;
    for (const Tensor<double>& x : x_) {
      z.emplace_back(x.shape());
      std::copy(x.values().begin(), x.values().end(), z.back().values.begin());
    }
    return z;
  }

  void check_reference() {
    std::vector<ComplexTensor> z = complex_inputs();
    const std::vector<ComplexTensor> y = case_.reference(z);
    const std::vector<Tensor<double>>& found = analytic_.back().outputs;
    if (y.size() != found.size()) fail("the reference gives {} outputs, the op {}", y.size(), found.size());
    for (size_t j = 0; j < y.size(); ++j) {
      if (!(y[j].shape == found[j].shape())) {
        fail("output {} has shape {}, the reference's {}", case_.outputs[j], to_string(found[j].shape()),
             to_string(y[j].shape));
      }
      std::vector<double> wanted;
      for (const auto& v : y[j].values) wanted.push_back(v.real());
      GradRow& row = output_row(j);
      judge(row, row.worst_complex, relative_error(found[j], wanted, case_.floor), options_.complex_bound,
            "value differs from the reference");
    }
    for (size_t i = 0; i < inputs(); ++i) {
      if (wanted_[i]) check_complex(i, z);
    }
  }

  void check_complex(size_t i, std::vector<ComplexTensor>& z) {
    GradRow& row = rows_[i];
    std::vector<std::vector<double>> numeric(sets());
    for (const size_t e : picks_[i]) {
      z[i][e].imag(kComplexStep);
      const std::vector<double> d = complex_step(z);
      for (size_t s = 0; s < sets(); ++s) numeric[s].push_back(d[s]);
      z[i][e].imag(0);
    }
    // Where only some elements are looked at one by one, all of them at once.
    Tensor<double> direction;
    std::vector<double> along;
    if (picks_[i].size() < x_[i].size()) {
      direction = normal(x_[i].shape());
      for (size_t e = 0; e < z[i].size(); ++e) z[i][e].imag(kComplexStep * std::as_const(direction)[e]);
      along = complex_step(z);
      for (auto& v : z[i].values) v.imag(0);
    }
    for (size_t s = 0; s < sets(); ++s) {
      const Tensor<double> a = zeros_if_undefined(analytic_[s].grads[i], x_[i].shape());
      const std::string what = "differs from the complex step" + set_name(s);
      if (!all_finite(a.data(), a.size())) note(row, "the gradient is not finite" + set_name(s));
      const std::vector<double>& n = numeric[s];
      if (largest(a) == 0 && largest(n) > 0) {
        note(row, fmt::format("the gradient is all zero, the reference's reaches {:.2e}{}", largest(n),
                              set_name(s)));
      }
      std::vector<double> found;
      for (const size_t e : picks_[i]) found.push_back(a[e]);
      judge(row, row.worst_complex, relative_error(found, n, case_.floor), options_.complex_bound, what);
      if (!direction.defined()) continue;
      double sum = 0, squares = 0;
      for (size_t e = 0; e < a.size(); ++e) {
        const double term = a[e] * std::as_const(direction)[e];
        sum += term;
        squares += term * term;
      }
      judge(row, row.worst_complex, std::abs(sum - along[s]) / std::max(std::sqrt(squares), case_.floor),
            options_.complex_bound, what + ", along a random direction");
    }
  }

  template <class T>
  std::vector<Tensor<T>> gradients_on_top(const OpFunction<T>& run,
                                          const std::vector<Tensor<double>>& before) const {
    Request<T> request{cast_all<T>(x_), wanted_, cast_all<T>(cotangents_.back()), cast_all<T>(before)};
    Evaluation<T> found = evaluate(case_, run, request);
    for (size_t i = 0; i < inputs(); ++i) {
      if (!wanted_[i]) continue;
      for (size_t e = 0; e < x_[i].size(); ++e) found.grads[i][e] -= static_cast<T>(before[i][e]);
    }
    return found.grads;
  }

  // The same gradients, asked for in other ways.
  void check_variations() {
    const Evaluation<double>& base = analytic_.back();
    std::vector<Tensor<double>> before;
    for (const Tensor<double>& x : x_) before.push_back(normal(x.shape()));
    const std::vector<Tensor<double>> on_top = gradients_on_top(case_.run64, before);
    for (size_t i = 0; i < inputs(); ++i) {
      if (!wanted_[i]) continue;
      const Tensor<double> a = zeros_if_undefined(base.grads[i], x_[i].shape());
      double unused = 0;
      judge(rows_[i], unused, relative_error(on_top[i], a, largest(before[i])), kSameKernel,
            "added to a gradient that is there already, it is another");
      Request<double> alone{x_, std::vector<bool>(inputs(), false), cotangents_.back(), {}};
      alone.wanted[i] = true;
      const Tensor<double> b =
          zeros_if_undefined(evaluate(case_, case_.run64, alone).grads[i], x_[i].shape());
      judge(rows_[i], unused, relative_error(b.values(), a, case_.floor), kSameKernel,
            "wanted alone, it is another");
    }
    for (size_t i = 0; i < inputs(); ++i) {
      for (size_t k = i + 1; k < inputs(); ++k) check_alias(i, k);
    }
  }

  // One variable as two inputs gets the sum of both gradients.
  void check_alias(size_t i, size_t k) {
    const NamedInput &first = case_.inputs[i], &second = case_.inputs[k];
    if (!wanted_[i] || !wanted_[k] || !(x_[i].shape() == x_[k].shape())) return;
    if (first.low != second.low || first.high != second.high) return;
    if (!rows_[i].ok || !rows_[k].ok) return;
    Request<double> request{x_, wanted_, cotangents_.back(), {}};
    request.inputs[k] = x_[i];
    const Evaluation<double> apart = evaluate(case_, case_.run64, request);
    request.first = i;
    request.second = k;
    const Evaluation<double> one = evaluate(case_, case_.run64, request);
    Tensor<double> sum = zeros_if_undefined(apart.grads[i], x_[i].shape()).clone();
    const Tensor<double> other = zeros_if_undefined(apart.grads[k], x_[i].shape());
    const double scale = std::max(largest(sum), largest(other));
    for (size_t e = 0; e < sum.size(); ++e) sum[e] += other[e];
    const Tensor<double> found = zeros_if_undefined(one.grads[i], x_[i].shape());
    double unused = 0;
    judge(rows_[k], unused, relative_error(found, sum, scale), kSameKernel,
          "the same variable as " + first.name + ", it is not the sum of both gradients");
  }

  void check_float() {
    const double bound = case_.float_multiple;
    for (size_t s = 0; s < sets(); ++s) {
      const Evaluation<float> found =
          evaluate(case_, case_.run32,
                   Request<float>{cast_all<float>(x_), wanted_, cast_all<float>(cotangents_[s]), {}});
      if (s + 1 == sets()) {
        for (size_t j = 0; j < found.outputs.size(); ++j) {
          GradRow& row = output_row(j);
          judge(row, row.worst_float,
                relative_error(found.outputs[j], analytic_[s].outputs[j], float_floor()) / kFloatRounding,
                bound, "value in float against double, in units of 2^-24");
        }
      }
      for (size_t i = 0; i < inputs(); ++i) {
        if (!wanted_[i]) continue;
        judge_float(i, found.grads[i], analytic_[s].grads[i], 0,
                    "float against double, in units of 2^-24" + set_name(s));
      }
    }
    std::vector<Tensor<double>> before;
    for (const Tensor<double>& x : x_) before.push_back(normal(x.shape()));
    const std::vector<Tensor<float>> on_top = gradients_on_top(case_.run32, before);
    for (size_t i = 0; i < inputs(); ++i) {
      if (!wanted_[i]) continue;
      judge_float(i, on_top[i], analytic_.back().grads[i], largest(before[i]),
                  "float added to a gradient that is there already, in units of 2^-24");
    }
  }

  void judge_float(size_t i, const Tensor<float>& found, const Tensor<double>& wanted, double scale,
                   const std::string& what) {
    const Tensor<float> a = zeros_if_undefined(found, x_[i].shape());
    const Tensor<double> b = zeros_if_undefined(wanted, x_[i].shape());
    judge(rows_[i], rows_[i].worst_float,
          relative_error(a, b, std::max(scale, float_floor())) / kFloatRounding, case_.float_multiple, what);
  }

  const GradCase& case_;
  const GradCheckOptions& options_;
  Random random_;
  std::vector<Tensor<double>> x_;
  std::vector<bool> wanted_;
  std::vector<std::vector<Tensor<double>>> cotangents_;  // [set][output]
  std::vector<std::vector<size_t>> picks_;               // [input]
  std::vector<Evaluation<double>> analytic_;             // [set]
  std::vector<GradRow> rows_;                            // inputs, then outputs
};

}  // namespace

std::vector<GradRow> check_case(const GradCase& c, const GradCheckOptions& options) {
  return Checker(c, options).run();
}

std::vector<GradRow> gradcheck(std::string_view pattern, const GradCheckOptions& options) {
  std::vector<GradRow> all;
  for (const GradCase& c : gradient_cases(pattern)) {
    for (GradRow& row : check_case(c, options)) all.push_back(std::move(row));
  }
  return all;
}

}  // namespace storytape
