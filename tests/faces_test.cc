// The face law, and that its checker notices a face that breaks it.
#include "nn/mixers/faces.h"

#include "autograd/gradcheck.h"
#include "autograd/ops.h"
#include "nn/mixers/registry.h"
#include "tests/catch.h"

namespace storytape {
namespace {

using Complex = std::complex<double>;

// y_t = S_t = g S_{t-1} + x_t, one channel: [B, T, 1], g [1], S [B, 1, 1].
FaceVariant running_sum(const std::string& name) {
  FaceVariant variant;
  variant.name = name;
  variant.faces = {Face::kRecurrent, Face::kChunkwise};
  variant.inputs = {
      {"x",
       [](size_t tokens, uint64_t seed) {
         return example_normal({2, tokens, 1}, seed);
       }},
      {"g", [](size_t, uint64_t) { return example_values({1}, {0.5}); }, false},
  };
  variant.states = {{"S", [](size_t, uint64_t seed) { return example_normal({2, 1, 1}, seed); }}};
  variant.outputs = {"y"};
  variant.reference = [](const std::vector<ComplexTensor>& in, const std::vector<ComplexTensor>& states) {
    const ComplexTensor& x = in[0];
    ComplexTensor y(x.shape), S({2, 1, 1});
    if (!states.empty()) S = states[0];
    for (size_t b = 0; b < 2; ++b) {
      for (size_t t = 0; t < x.shape[1]; ++t) {
        S[b] = in[1][0] * S[b] + x[b * x.shape[1] + t];
        y[b * x.shape[1] + t] = S[b];
      }
    }
    return std::vector<ComplexTensor>{y, S};
  };
  return variant;
}

enum class Fault { kNone, kOutput, kState, kGradient, kForgetsState, kOnlyAtChunkThree, kNan };

template <class T>
FaceResult<T> run_sum(Fault fault, Face face, size_t chunk, const std::vector<Var<T>>& in,
                      const std::vector<Var<T>>& states) {
  Tape<T>& tape = in[0].tape();
  const bool here = face == Face::kChunkwise && (fault != Fault::kOnlyAtChunkThree || chunk == 3);
  Var<T> S = states.empty() ? tape.constant(Tensor<T>({2, 1, 1}, T{0})) : states[0];
  if (here && fault == Fault::kForgetsState && in[0].shape()[1] > 1) S = detach(S);
  std::vector<Var<T>> y;
  for (size_t t = 0; t < in[0].shape()[1]; ++t) {
    S = add(mul(in[1], S), slice(in[0], 1, t, t + 1));
    y.push_back(S);
  }
  Var<T> output = concat(y, 1);
  if (here && (fault == Fault::kOutput || fault == Fault::kOnlyAtChunkThree)) output = scale(output, 1.001);
  if (here && fault == Fault::kNan) output = scale(output, std::nan(""));
  if (here && fault == Fault::kState) S = add_constant(S, 1e-3);
  // Right values, but the gradient of half of them is lost.
  if (here && fault == Fault::kGradient) output = add(scale(output, 0.5), detach(scale(output, 0.5)));
  return {{output}, {S}};
}

void add_variant(const std::string& name, Fault fault) {
  FaceVariant variant = running_sum(name);
  const auto run = [fault]<class T>(Face face, size_t chunk, const std::vector<Var<T>>& in,
                                    const std::vector<Var<T>>& states) {
    return run_sum(fault, face, chunk, in, states);
  };
  variant.run64 = run;
  variant.run32 = run;
  register_faces(std::move(variant));
}

void register_sums() {
  static const bool once = [] {
    add_variant("test_right", Fault::kNone);
    add_variant("test_output", Fault::kOutput);
    add_variant("test_state", Fault::kState);
    add_variant("test_gradient", Fault::kGradient);
    add_variant("test_forgets", Fault::kForgetsState);
    add_variant("test_chunk", Fault::kOnlyAtChunkThree);
    add_variant("test_nan", Fault::kNan);
    return true;
  }();
  static_cast<void>(once);
}

TEST_CASE("the face checker passes a mixer that keeps the law") {
  register_sums();
  const std::vector<FaceRow> rows = check_faces("test_right");
  CHECK(rows.size() == 4);  // two faces in two types
  for (const FaceRow& row : rows) {
    INFO(row.face << " " << row.dtype << " " << row.why);
    CHECK(row.ok);
    CHECK(row.why.empty());
    if (row.dtype == "float32") CHECK(row.worst_output > 0);
  }
}

TEST_CASE("the face checker notices each way of breaking the law") {
  register_sums();
  const auto [name, word] = GENERATE(table<std::string, std::string>({{"test_output", "output"},
                                                                      {"test_state", "final state"},
                                                                      {"test_gradient", "gradient"},
                                                                      {"test_forgets", "gradient"},
                                                                      {"test_chunk", "chunk 3"},
                                                                      {"test_nan", "output"}}));
  INFO(name);
  for (const FaceRow& row : check_faces(name)) {
    INFO(row.face << " " << row.dtype << " " << row.why);
    CHECK(row.ok == (row.face != "chunkwise"));
    CHECK((row.why.find(word) != std::string::npos) == (row.face == "chunkwise"));
  }
}

TEST_CASE("the face checker refuses what it can't check") {
  register_sums();
  CHECK_THROWS_AS(check_faces("no such mixer"), UsageError);
  CHECK_THROWS_AS(register_faces(running_sum("without runs")), Error);
  CHECK_THROWS_AS(add_variant("test_right", Fault::kNone), Error);
  CHECK(check_faces("test_r*t").size() == 4);
}

TEST_CASE("linear attention keeps the face law") {
  register_mixers();
  for (const char* name : {"linear", "linear_identity"}) {
    for (const FaceRow& row : check_faces(name)) {
      INFO(row.variant << " " << row.face << " " << row.dtype << ": " << row.why);
      CHECK(row.ok);
    }
  }
}

TEST_CASE("linear attention keeps the face law over 1000 tokens", "[.extended]") {
  register_mixers();
  FaceCheckOptions options;
  options.extended = true;
  for (const FaceRow& row : check_faces("linear", options)) {
    INFO(row.variant << " " << row.face << " " << row.dtype << ": " << row.why);
    CHECK(row.ok);
  }
}

}  // namespace
}  // namespace storytape
