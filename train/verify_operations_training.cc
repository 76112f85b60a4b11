// Golden cases of the optimizer and the learning-rate schedule.
#include <cmath>

#include "tensor/elementwise.h"
#include "tensor/reduce.h"
#include "train/optimizer.h"
#include "train/recipe.h"
#include "train/verify_operations_run.h"

namespace storytape {
namespace {

// Five steps with given gradients of two tensors: p0, a matrix that is decayed, and p1, a vector that is not.
struct AdamWCase {
  explicit AdamWCase(const GoldenCase& golden)
      : lr(golden.tensor<double>("in.lr").to_vector()), clip(golden.number("max_norm")) {
    if (golden.number("wd1") != 0)
      fail("adamw: wd1 = {} is not known, vectors are not decayed", golden.number("wd1"));
    recipe.name = "golden";
    recipe.beta1 = golden.number("beta1");
    recipe.beta2 = golden.number("beta2");
    recipe.eps = golden.number("eps");
    recipe.weight_decay = golden.number("wd0");
    recipe.clip = clip;
  }

  std::vector<double> lr;
  double clip;
  Recipe recipe;
};

// What the file holds, by step.
template <class T>
struct AdamWResult {
  explicit AdamWResult(GoldenRun<T>& run)
      : r(run), p0(r.golden.shape("out.p0_steps")), p1(r.golden.shape("out.p1_steps")), norm({p0.size(0)}) {}

  void step(size_t s, double gradient_norm, const T* p0_now, const T* p1_now) {
    const size_t n0 = p0.size() / p0.size(0), n1 = p1.size() / p1.size(0);
    std::copy_n(p0_now, n0, p0.data() + s * n0);
    std::copy_n(p1_now, n1, p1.data() + s * n1);
    norm[s] = static_cast<T>(gradient_norm);
  }
  // m and v: of p0, then of p1.
  void finish(const T* m, const T* v) {
    const Shape s0 = r.shape("p0"), s1 = r.shape("p1");
    const auto part = [](const Shape& shape, const T* from) {
      return Tensor<T>(shape, std::span<const T>(from, shape.elements()));
    };
    r.output("p0_steps", p0);
    r.output("p1_steps", p1);
    r.output("grad_norm", norm);
    r.output("m0", part(s0, m));
    r.output("v0", part(s0, v));
    r.output("m1", part(s1, m + s0.elements()));
    r.output("v1", part(s1, v + s0.elements()));
  }

  GoldenRun<T>& r;
  Tensor<T> p0, p1, norm;
};

// The kernel, as (O1) to (O5) of train/optimizer.h use it.
template <class T>
void adamw_kernel(GoldenRun<T>& r) {
  const AdamWCase c(r.golden);
  Tensor<T> p0 = r.value("p0"), p1 = r.value("p1");
  const Tensor<T> g0 = r.value("g0"), g1 = r.value("g1");
  std::vector<T> m(p0.size() + p1.size()), v(m.size());
  AdamWResult<T> result(r);
  for (size_t s = 0; s < c.lr.size(); ++s) {
    const T* d0 = g0.data() + s * p0.size();
    const T* d1 = g1.data() + s * p1.size();
    const double norm = std::sqrt(sum_of_squares(d0, p0.size()) + sum_of_squares(d1, p1.size()));
    AdamW step;
    step.grad_scale = c.clip > 0 && norm > c.clip ? c.clip / (norm + 1e-6) : 1;
    step.lr = c.lr[s];
    step.beta1 = c.recipe.beta1;
    step.beta2 = c.recipe.beta2;
    step.eps = c.recipe.eps;
    step.bias1 = 1 - std::pow(step.beta1, static_cast<double>(s + 1));
    step.bias2 = 1 - std::pow(step.beta2, static_cast<double>(s + 1));
    step.weight_decay = c.recipe.weight_decay;
    adamw(step, p0.data(), m.data(), v.data(), d0, p0.size());
    step.weight_decay = 0;
    adamw(step, p1.data(), m.data() + p0.size(), v.data() + p0.size(), d1, p1.size());
    result.step(s, norm, std::as_const(p0).data(), std::as_const(p1).data());
  }
  result.finish(m.data(), v.data());
}

// The optimizer of the trainer, whose moments go on from step to step; its schedule is held at the step's
// rate.
void adamw_optimizer(GoldenRun<float>& r) {
  AdamWCase c(r.golden);
  ThreadPool pool(1);
  ParameterList<float> parameters(0);
  for (const char* name : {"p0", "p1"}) {
    parameters.add(name, r.shape(name), Init::constant(0)).mutable_value() = r.value(name);
  }
  const Tensor<float> g0 = r.value("g0"), g1 = r.value("g1");
  const size_t n0 = parameters[0].size(), n1 = parameters[1].size();
  std::vector<float> m(n0 + n1), v(n0 + n1);
  AdamWResult<float> result(r);
  for (size_t s = 0; s < c.lr.size(); ++s) {
    c.recipe.lr = c.recipe.min_lr = c.lr[s];
    AdamWOptimizer optimizer(parameters, c.recipe);
    optimizer.m() = m;
    optimizer.v() = v;
    // Two lanes that hold a half each.
    std::vector<float> lanes[2];
    for (auto& lane : lanes) {
      lane.assign(g0.data() + s * n0, g0.data() + (s + 1) * n0);
      lane.insert(lane.end(), g1.data() + s * n1, g1.data() + (s + 1) * n1);
      for (float& x : lane) x *= 0.5f;
    }
    float* const blocks[] = {lanes[0].data(), lanes[1].data()};
    const StepReport report = optimizer.step(s, blocks, pool);
    m = optimizer.m();
    v = optimizer.v();
    result.step(s, report.gradient_norm, std::as_const(parameters[0]).value().data(),
                std::as_const(parameters[1]).value().data());
  }
  result.finish(m.data(), v.data());
}

template <class T>
void cosine_schedule(GoldenRun<T>& r) {
  Recipe recipe;
  recipe.lr = r.golden.number("lr_max");
  recipe.min_lr = r.golden.number("lr_min");
  recipe.warmup = static_cast<size_t>(r.golden.number("warmup"));
  recipe.steps = static_cast<size_t>(r.golden.number("total"));
  const std::vector<int32_t> steps = r.ids("step");
  Tensor<T> lr({steps.size()});
  for (size_t i = 0; i < steps.size(); ++i) {
    lr[i] = static_cast<T>(learning_rate(recipe, static_cast<size_t>(steps[i])));
  }
  r.output("lr", lr);
  // Other programs' schedules, for reference.
  r.skip_output("lr_nanogpt");
  r.skip_output("lr_hf");
}

}  // namespace

void add_training_operations(GoldenFaces& faces) {
  faces["adamw"] = {golden_face("kernel", [](auto& r) { adamw_kernel(r); }),
                    {"optimizer", adamw_optimizer, nullptr}};
  faces["cosine_schedule"] = {golden_face("recipe", [](auto& r) { cosine_schedule(r); })};
}

}  // namespace storytape
