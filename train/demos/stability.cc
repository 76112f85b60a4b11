// Dividing by a product of gates ends where the product does; a chunk's own products don't.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "nn/mixers/delta_rule.h"
#include "nn/mixers/gated_delta_rule.h"
#include "nn/mixers/gla.h"
#include "train/demos/demo.h"
#include "train/demos/inputs.h"

namespace storytape {
namespace {

using namespace demo;
using nlohmann::json;

constexpr size_t kDim = 8;
constexpr size_t kNever = 1'000'000;

GatedOptions with(Face face, size_t chunk = 64) {
  GatedOptions options;
  options.face = face;
  options.chunk = chunk;
  return options;
}
GatedOptions textbook() {
  GatedOptions options = with(Face::kParallel);
  options.rescale = true;
  return options;
}

// The first length at which the product of that many equal gates satisfies `ended`, in float as the textbook's form
// multiplies them; kNever if none does.
size_t first_length(double gate, const std::function<bool(float)>& ended) {
  float product = 1;
  for (size_t length = 1; length < kNever; ++length) {
    product *= static_cast<float>(gate);
    if (ended(product)) return length;
  }
  return kNever;
}
bool below_normal(float product) {
  return product < std::numeric_limits<float>::min();
}
bool inverse_overflows(float product) {
  return product < 1 / std::numeric_limits<float>::max();
}
// Overflows with any key that is not tiny. (Rounding to nearest may hold a product at the smallest subnormal for ever.)
bool surely_overflows(float product) {
  return product < 1e-43f;
}

json length_or_null(size_t length) {
  return length == kNever ? json() : json(length);
}

// The first length in [1, longest] at which the textbook's form gives NaN, which it then does at all longer ones;
// kNever if none does.
size_t first_nan(size_t longest, const std::function<bool(size_t)>& gives_nan) {
  if (!gives_nan(longest)) return kNever;
  size_t finite = 0, nan = longest;
  while (nan - finite > 1) {
    const size_t middle = (finite + nan) / 2;
    (gives_nan(middle) ? nan : finite) = middle;
  }
  return nan;
}

struct GatedDelta {
  Tensor<float> q, k, v, beta, alpha;
  GatedDelta(size_t length, double gate)
      : q(normal({1, length, 1, kDim}, 0)),
        k(unit_rows(normal({1, length, 1, kDim}, 1))),
        v(normal({1, length, 1, kDim}, 2)),
        beta(uniform({1, length, 1}, 3, 0, 1)),
        alpha({1, length, 1}, static_cast<float>(gate)) {}
  Tensor<float> run(const GatedOptions& options) const { return run(options, q.shape()[1]); }
  // Over the first tokens.
  Tensor<float> run(const GatedOptions& options, size_t tokens) const {
    const auto first = [tokens](const Tensor<float>& t) {
      return t.reshape({t.shape()[1], t.size() / t.shape()[1]}).rows(0, tokens);
    };
    const Shape shape = {1, tokens, 1, kDim}, scalars = {1, tokens, 1};
    Values x;
    return gated_delta_rule(x(first(q).reshape(shape)), x(first(k).reshape(shape)),
                            x(first(v).reshape(shape)), x(first(alpha).reshape(scalars)),
                            x(first(beta).reshape(scalars)), {}, options)
        .o.value();
  }
};

}  // namespace

DemoResult demo_gla_stability(const DemoOptions& options) {
  const double gate = options.gate.value_or(0.7);
  const size_t length = options.length.value_or(400);
  const auto run = [gate](const GatedOptions& how, size_t tokens) {
    const Shape shape = {1, tokens, 1, kDim};
    Values x;
    return gla(x(normal(shape, 0)), x(normal(shape, 1)), x(normal(shape, 2)),
               x(Tensor<float>(shape, static_cast<float>(gate))), {}, how)
        .o.value();
  };
  const Tensor<float> recurrent = run(with(Face::kRecurrent), length), parallel = run(textbook(), length),
                      chunkwise = run(with(Face::kChunkwise), length);
  const size_t overflow = first_length(gate, inverse_overflows), sure = first_length(gate, surely_overflows);

  DemoResult result;
  result.show("gate", gate, "of every token and channel");
  result.show("length", length, "tokens");
  const char* why = "divided by the gates' running product";
  if (length < first_length(gate, below_normal)) {
    result.exact("parallel_nan", any_nan(parallel), false, why);
  } else if (length >= sure) {
    result.exact("parallel_nan", any_nan(parallel), true, why);
  } else {
    result.show("parallel_nan", any_nan(parallel), "so near the limit the data decide");
  }
  result.exact("chunkwise_nan", any_nan(chunkwise), false);
  result.rounding("chunkwise_error", relative_difference(chunkwise, recurrent), 1e-5,
                  "against the recurrence");
  if (gate == 0.7) {
    result.exact("overflow_length", length_or_null(overflow), 249,
                 "the first L at which gate^-L passes 3.4e38");
  } else {
    const double exact = std::log(std::numeric_limits<float>::max()) / -std::log(gate);
    const json seed = overflow == kNever ? json() : json(std::floor(exact) + 1);
    result.near("overflow_length", length_or_null(overflow), seed, 1,
                "the first L at which gate^-L passes 3.4e38");
  }
  result.show("first_nan_length",
              length_or_null(first_nan(length, [&](size_t t) { return any_nan(run(textbook(), t)); })),
              "depends on the data");
  return result;
}

DemoResult demo_gated_delta_stability(const DemoOptions&) {
  DemoResult result;
  // The chapter's run, then its exercise 8.
  struct Case {
    double gate;
    size_t length, below_normal;
    const char* suffix;
  };
  for (const Case& c : {Case{0.8, 768, 392, ""}, Case{0.85, 800, 538, "_exercise_8"}}) {
    const GatedDelta inputs(c.length, c.gate);
    const Tensor<float> recurrent = inputs.run(with(Face::kRecurrent)), global = inputs.run(textbook()),
                        chunkwise = inputs.run(with(Face::kChunkwise));
    const std::string suffix = c.suffix;
    result.show("alpha" + suffix, c.gate, "of every token");
    result.show("length" + suffix, c.length, "tokens");
    result.exact("global_nan" + suffix, any_nan(global), true, "divided by the gates' running product");
    result.exact("chunkwise_nan" + suffix, any_nan(chunkwise), false, "chunks of 64");
    result.rounding("chunkwise_error" + suffix, difference(chunkwise, recurrent), 1e-5,
                    "against the recurrence; the chapter's random numbers gave 9.5e-07");
    result.exact("below_normal_length" + suffix, first_length(c.gate, below_normal), c.below_normal,
                 "the first L at which alpha^L is no normal float");
    const auto gives_nan = [&](size_t tokens) { return any_nan(inputs.run(textbook(), tokens)); };
    result.show("first_nan_length" + suffix, length_or_null(first_nan(c.length, gives_nan)),
                "depends on the data");
  }
  const double power = std::pow(0.8, 768);
  result.near("alpha^768", power, 4e-75, 0.5e-75, "the chapter rounds to one digit");
  const GatedDelta open(768, 1.0);
  result.rounding("global_error_alpha_1",
                  relative_difference(open.run(textbook()), open.run(with(Face::kRecurrent))), 1e-4,
                  "without a gate both forms hold");
  return result;
}

DemoResult demo_delta_chunks(const DemoOptions&) {
  constexpr size_t kTokens = 12;
  const GatedDelta inputs(kTokens, 1.0);
  const auto run = [&](const GatedOptions& options) {
    Values x;
    return delta_rule(x(inputs.q), x(inputs.k), x(inputs.v), x(inputs.beta), {}, options).o.value();
  };
  const Tensor<float> recurrent = run(with(Face::kRecurrent));
  const std::vector<size_t> sizes = {1, 3, 5, 12};
  json chunks = json::array(), errors = json::array(), gated = json::array();
  for (const size_t size : sizes) {
    chunks.push_back((kTokens + size - 1) / size);
    const Tensor<float> chunkwise = run(with(Face::kChunkwise, size));
    errors.push_back(difference(chunkwise, recurrent));
    gated.push_back(difference(inputs.run(with(Face::kChunkwise, size)), chunkwise));
  }
  DemoResult result;
  result.show("chunk_size", sizes, "tokens; L = 12");
  result.exact("chunks", chunks, {12, 4, 3, 1});
  result.rounding("max_abs_diff", errors, 5e-6,
                  "against the recurrence; the chapter's random numbers gave 4.8e-07 to 7.2e-07");
  result.rounding("one_chunk_is_parallel",
                  difference(run(with(Face::kChunkwise, 12)), run(with(Face::kParallel))), 5e-6,
                  "the one-shot solve");
  result.rounding("alpha_1_is_ungated", gated, 5e-6, "the gated rule at alpha = 1");
  return result;
}

}  // namespace storytape
