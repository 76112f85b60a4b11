#include "nn/mixers/workload.h"

#include <cmath>

#include "nn/mixers/gated_recurrence.h"
#include "nn/mixers/kernels/gated.h"
#include "nn/mixers/linear_attention.h"
#include "nn/mixers/softmax_attention.h"
#include "nn/mixers/wkv.h"
#include "tensor/random.h"

namespace storytape {
namespace {

Tensor<float> uniform(const Shape& shape, Random& random, double low, double high) {
  Tensor<float> x(shape);
  for (float& value : x.values()) value = static_cast<float>(low + (high - low) * random.uniform());
  return x;
}

// Keys about as long as normalised ones, so that delta writes neither vanish nor grow.
struct Heads {
  Tensor<float> q, k, v;
  Heads(const WorkloadSize& s, size_t steps, Random& random) {
    const double unit = std::sqrt(3.0 / static_cast<double>(s.dim));
    q = uniform({s.batch, s.tokens, s.heads, s.dim}, random, -unit, unit);
    k = uniform({s.batch, s.tokens * steps, s.heads, s.dim}, random, -unit, unit);
    v = uniform({s.batch, s.tokens * steps, s.heads, s.dim}, random, -1, 1);
  }
  static Tensor<float> first(const Tensor<float>& x, size_t rows) {
    Tensor<float> y({x.size(0), rows, x.size(2), x.size(3)});
    const size_t row = x.size(2) * x.size(3);
    for (size_t b = 0; b < x.size(0); ++b) {
      std::copy_n(x.data() + b * x.size(1) * row, rows * row, y.data() + b * rows * row);
    }
    return y;
  }
};

class SoftmaxWorkload : public Workload {
 public:
  SoftmaxWorkload(const WorkloadSize& size, size_t window, uint64_t seed)
      : size_(size), random_(seed), x_(size, 1, random_) {
    options_.window = window;
    q1_ = Heads::first(x_.q, 1);
    k1_ = Heads::first(x_.k, 1);
    v1_ = Heads::first(x_.v, 1);
  }
  Var<float> run(Tape<float>& tape, Face face) const override {
    SoftmaxAttentionOptions options = options_;
    options.face = face;
    return softmax_attention(tape.input(x_.q), tape.input(x_.k), tape.input(x_.v), options);
  }
  State<float> state_after(size_t history) const override {
    State<float> state = softmax_attention_state<float>(size_.batch, size_.heads, size_.dim, size_.dim);
    if (history == 0) return state;
    const Tensor<float> past = Tensor<float>::zeros({size_.batch, history, size_.heads, size_.dim});
    softmax_attention_extend(state, past, past, past, options_);
    return state;
  }
  void step(State<float>& state) const override { softmax_attention_extend(state, q1_, k1_, v1_, options_); }

 private:
  WorkloadSize size_;
  Random random_;
  Heads x_;
  Tensor<float> q1_, k1_, v1_;
  SoftmaxAttentionOptions options_;
};

class LinearWorkload : public Workload {
 public:
  LinearWorkload(const WorkloadSize& size, bool decay, bool plain, uint64_t seed)
      : size_(size), random_(seed), x_(size, 1, random_) {
    if (plain) {
      options_.phi = FeatureMap::kIdentity;
      options_.normalise = false;
    }
    if (size.chunk) options_.chunk = size.chunk;
    if (decay) gamma_ = uniform({size.heads}, random_, 0.95, 0.999);
    q1_ = Heads::first(x_.q, 1);
    k1_ = Heads::first(x_.k, 1);
    v1_ = Heads::first(x_.v, 1);
  }
  Var<float> run(Tape<float>& tape, Face face) const override {
    LinearAttentionOptions options = options_;
    options.face = face;
    const Var<float> gamma = gamma_.defined() ? tape.input(gamma_) : Var<float>();
    return linear_attention(tape.input(x_.q), tape.input(x_.k), tape.input(x_.v), gamma, {}, {}, options).o;
  }
  State<float> state_after(size_t) const override {
    return linear_attention_state<float>(size_.batch, size_.heads, size_.dim, size_.dim, options_);
  }
  void step(State<float>& state) const override {
    linear_attention_extend(state, q1_, k1_, v1_, gamma_, options_);
  }

 private:
  WorkloadSize size_;
  Random random_;
  Heads x_;
  Tensor<float> gamma_, q1_, k1_, v1_;
  LinearAttentionOptions options_;
};

class GatedWorkload : public Workload {
 public:
  GatedWorkload(const char* op, const WorkloadSize& size, GateKind gate, bool delta, size_t steps,
                uint64_t seed)
      : op_(op), size_(size), random_(seed), x_(size, steps, random_) {
    options_.steps = steps;
    if (size.chunk) options_.chunk = size.chunk;
    const size_t writes = size.tokens * steps;
    if (gate == GateKind::kScalar) alpha_ = uniform({size.batch, size.tokens, size.heads}, random_, 0.9, 1);
    if (gate == GateKind::kVector) alpha_ = uniform(x_.q.shape(), random_, 0.9, 1);
    if (delta) beta_ = uniform({size.batch, writes, size.heads}, random_, 0, 1);
    q1_ = Heads::first(x_.q, 1);
    k1_ = Heads::first(x_.k, steps);
    v1_ = Heads::first(x_.v, steps);
    if (gate == GateKind::kScalar) alpha1_ = uniform({size.batch, 1, size.heads}, random_, 0.9, 1);
    if (gate == GateKind::kVector) alpha1_ = uniform(q1_.shape(), random_, 0.9, 1);
    if (delta) beta1_ = uniform({size.batch, steps, size.heads}, random_, 0, 1);
  }
  Var<float> run(Tape<float>& tape, Face face) const override {
    GatedOptions options = options_;
    options.face = face;
    const auto given = [&](const Tensor<float>& x) { return x.defined() ? tape.input(x) : Var<float>(); };
    return gated_recurrence(op_, given(x_.q), given(x_.k), given(x_.v), given(alpha_), given(beta_), {},
                            options)
        .o;
  }
  State<float> state_after(size_t) const override {
    return gated_state<float>(size_.batch, size_.heads, size_.dim, size_.dim);
  }
  void step(State<float>& state) const override {
    gated_extend(op_, state, q1_, k1_, v1_, alpha1_, beta1_, options_);
  }

 private:
  const char* op_;
  WorkloadSize size_;
  Random random_;
  Heads x_;
  Tensor<float> alpha_, beta_, q1_, k1_, v1_, alpha1_, beta1_;
  GatedOptions options_;
};

class WkvWorkload : public Workload {
 public:
  WkvWorkload(const WorkloadSize& size, uint64_t seed)
      : size_(size), channels_(size.heads * size.dim), random_(seed) {
    if (size.chunk) options_.chunk = size.chunk;
    w_ = uniform({channels_}, random_, 0.01, 1);
    u_ = uniform({channels_}, random_, -1, 1);
    k_ = uniform({size.batch, size.tokens, channels_}, random_, -2, 2);
    v_ = uniform(k_.shape(), random_, -1, 1);
    k1_ = uniform({size.batch, 1, channels_}, random_, -2, 2);
    v1_ = uniform(k1_.shape(), random_, -1, 1);
  }
  Var<float> run(Tape<float>& tape, Face face) const override {
    WkvOptions options = options_;
    options.face = face;
    return wkv(tape.input(w_), tape.input(u_), tape.input(k_), tape.input(v_), {}, {}, options).o;
  }
  State<float> state_after(size_t) const override { return wkv_state<float>(size_.batch, channels_); }
  void step(State<float>& state) const override { wkv_extend(state, w_, u_, k1_, v1_); }

 private:
  WorkloadSize size_;
  size_t channels_;
  Random random_;
  Tensor<float> w_, u_, k_, v_, k1_, v1_;
  WkvOptions options_;
};

constexpr size_t kWindow = 256;
constexpr size_t kProductSteps = 2;

double per_head(const WorkloadSize& s, double flops) {
  return static_cast<double>(s.heads) * static_cast<double>(s.dim) * flops;
}

WorkloadKind softmax_kind(const char* name, size_t window) {
  return {name,
          {Face::kChunkwise, Face::kRecurrent, Face::kParallel},
          window == 0,
          [window](const WorkloadSize& s) {
            const size_t seen = window ? std::min(2 * window, s.tokens) : s.tokens;
            return per_head(s, 6.0 * static_cast<double>(seen));
          },
          [window](const WorkloadSize& s, uint64_t seed) {
            return std::make_unique<SoftmaxWorkload>(s, window, seed);
          }};
}
WorkloadKind linear_kind(const char* name, bool decay, bool plain) {
  return {name,
          {Face::kChunkwise, Face::kRecurrent, Face::kParallel},
          false,
          [](const WorkloadSize& s) { return per_head(s, 12.0 * static_cast<double>(s.dim)); },
          [=](const WorkloadSize& s, uint64_t seed) {
            return std::make_unique<LinearWorkload>(s, decay, plain, seed);
          }};
}
WorkloadKind gated_kind(const char* name, GateKind gate, bool delta, size_t steps) {
  return {name,
          {Face::kChunkwise, Face::kRecurrent, Face::kParallel},
          false,
          [=](const WorkloadSize& s) {
            return per_head(s, (delta ? 18.0 : 12.0) * static_cast<double>(s.dim * steps));
          },
          [=](const WorkloadSize& s, uint64_t seed) {
            return std::make_unique<GatedWorkload>(name, s, gate, delta, steps, seed);
          }};
}

}  // namespace

const std::vector<WorkloadKind>& workload_kinds() {
  static const std::vector<WorkloadKind> kinds = {
      softmax_kind("softmax", 0),
      softmax_kind("softmax_window_256", kWindow),
      linear_kind("linear_attention", false, false),
      linear_kind("linear", true, false),
      linear_kind("linear_identity", false, true),
      linear_kind("retention", true, true),
      gated_kind("unified", GateKind::kScalar, false, 1),
      gated_kind("gla", GateKind::kVector, false, 1),
      gated_kind("delta_rule", GateKind::kNone, true, 1),
      gated_kind("gated_delta_rule", GateKind::kScalar, true, 1),
      gated_kind("kda", GateKind::kVector, true, 1),
      gated_kind("delta_product", GateKind::kNone, true, kProductSteps),
      gated_kind("gated_delta_product", GateKind::kScalar, true, kProductSteps),
      {"wkv",
       {Face::kChunkwise, Face::kRecurrent, Face::kParallel},
       false,
       [](const WorkloadSize&) { return 0.0; },
       [](const WorkloadSize& s, uint64_t seed) { return std::make_unique<WkvWorkload>(s, seed); }},
  };
  return kinds;
}

}  // namespace storytape
