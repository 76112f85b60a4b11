#include "nn/mixers/faces.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>

#include "autograd/compare.h"
#include "autograd/ops_shape.h"
#include "tensor/random.h"

namespace storytape {
namespace {

using internal::relative_error;

constexpr double kComplexStep = 1e-30;
constexpr double kFloatRounding = 0x1.0p-24;
// A tensor whose largest element is below this is compared absolutely.
constexpr double kFloor = 1e-6;
// So is a gradient that is smaller than the largest of its kind by this factor: where a normaliser cancels,
// the exact gradient vanishes and rounding alone is left.
constexpr double kGradientFloor = 1.0 / 64;

std::vector<FaceVariant>& variants() {
  static auto* list = new std::vector<FaceVariant>;
  return *list;
}

// * stands for any characters, ? for one.
bool matches(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*')
    return matches(pattern.substr(1), text) || (!text.empty() && matches(pattern, text.substr(1)));
  return !text.empty() && (pattern[0] == '?' || pattern[0] == text[0]) &&
         matches(pattern.substr(1), text.substr(1));
}

bool fits(std::string_view pattern, std::string_view name) {
  if (pattern.find_first_of("*?") != std::string_view::npos) return matches(pattern, name);
  return name.find(pattern) != std::string_view::npos;
}

ComplexTensor complex_of(const Tensor<double>& x) {
  ComplexTensor y(x.shape());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i];
  return y;
}

Tensor<double> normal_like(const Shape& shape, Random& random) {
  Tensor<double> t(shape);
  for (double& x : t.values()) x = static_cast<float>(random.normal());
  return t;
}

// One sequence: inputs, initial states (none, or all), and the cotangents of outputs and final states.
struct Point {
  size_t tokens;
  std::vector<Tensor<double>> inputs, states;
  std::vector<Tensor<double>> d_outputs, d_states;
};

// What a run gave, in double.
struct Outcome {
  std::vector<Tensor<double>> outputs, states;
  std::vector<Tensor<double>> gradients;  // of inputs, then of initial states
};

// Runs a face over the pieces between the cuts (ascending, inside the sequence), all on one tape, and walks
// back from the outputs of all pieces and the last one's states.
template <class T>
Outcome run(const FaceVariant& variant, const Point& point, Face face, size_t chunk,
            const std::vector<size_t>& cuts) {
  Tape<T> tape;
  std::vector<Var<T>> inputs, states;
  for (const Tensor<double>& x : point.inputs) inputs.push_back(tape.input(cast<T>(x)));
  for (const Tensor<double>& x : point.states) states.push_back(tape.input(cast<T>(x)));
  const std::vector<Var<T>> initial = states;

  std::vector<std::vector<Var<T>>> pieces(variant.outputs.size());
  size_t first = 0;
  for (size_t c = 0; c <= cuts.size(); ++c) {
    const size_t last = c < cuts.size() ? cuts[c] : point.tokens;
    std::vector<Var<T>> part;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool whole = cuts.empty() || !variant.inputs[i].per_token;
      part.push_back(whole ? inputs[i] : slice(inputs[i], 1, first, last));
    }
    FaceResult<T> result;
    if constexpr (std::is_same_v<T, double>) {
      result = variant.run64(face, chunk, part, states);
    } else {
      result = variant.run32(face, chunk, part, states);
    }
    if (result.outputs.size() != pieces.size()) {
      fail("{} returns {} outputs, {} are named", variant.name, result.outputs.size(), pieces.size());
    }
    for (size_t i = 0; i < pieces.size(); ++i) pieces[i].push_back(result.outputs[i]);
    states = result.states;
    first = last;
  }

  Outcome outcome;
  std::vector<Var<T>> ends;
  std::vector<Tensor<T>> cotangents;
  for (size_t i = 0; i < pieces.size(); ++i) {
    ends.push_back(pieces[i].size() == 1 ? pieces[i][0] : concat(pieces[i], 1));
    cotangents.push_back(cast<T>(point.d_outputs[i]));
    outcome.outputs.push_back(cast<double>(ends.back().value()));
  }
  for (size_t i = 0; i < states.size(); ++i) {
    ends.push_back(states[i]);
    cotangents.push_back(cast<T>(point.d_states[i]));
    outcome.states.push_back(cast<double>(states[i].value()));
  }
  tape.backward(ends, cotangents);
  // A gradient that no path led to stays undefined, and compares to nothing.
  for (const Var<T>& var : inputs) outcome.gradients.push_back(cast<double>(var.grad()));
  for (const Var<T>& var : initial) outcome.gradients.push_back(cast<double>(var.grad()));
  return outcome;
}

class Checker {
 public:
  Checker(const FaceVariant& variant, const FaceCheckOptions& options)
      : variant_(variant), options_(options) {
    for (const Face face : variant.faces) {
      for (const char* dtype : {"float64", "float32"}) {
        rows_.push_back({variant.name, std::string(to_string(face)), dtype});
      }
    }
  }

  std::vector<FaceRow> run_all() {
    std::vector<size_t> lengths = {1, 2, 3, 7, 15, 16, 17, 63, 64, 65, 127, 129, 200};
    if (options_.extended) lengths.push_back(1000);
    for (const size_t tokens : lengths) {
      for (const bool with_state : {false, true}) check(tokens, with_state);
    }
    return rows_;
  }

 private:
  void check(size_t tokens, bool with_state) {
    Random random(options_.seed, tokens * 2 + with_state);
    Point point = draw(tokens, with_state, random);
    std::vector<ComplexTensor> inputs, states;
    for (const Tensor<double>& x : point.inputs) inputs.push_back(complex_of(x));
    for (const Tensor<double>& x : point.states) states.push_back(complex_of(x));
    Outcome expected;
    size_t results = 0;
    for (const ComplexTensor& y : variant_.reference(inputs, states)) {
      Tensor<double> real(y.shape);
      for (size_t i = 0; i < y.size(); ++i) real[i] = y[i].real();
      (results++ < variant_.outputs.size() ? expected.outputs : expected.states).push_back(std::move(real));
    }
    for (const auto& y : expected.outputs) point.d_outputs.push_back(normal_like(y.shape(), random));
    for (const auto& y : expected.states) point.d_states.push_back(normal_like(y.shape(), random));

    std::vector<size_t> chunks = {1, 3, 16, 64, tokens, 2 * tokens};
    std::sort(chunks.begin(), chunks.end());
    chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
    size_t row = 0;
    for (const Face face : variant_.faces) {
      const size_t runs = face == Face::kChunkwise ? chunks.size() : 1;
      for (size_t i = 0; i < runs; ++i) {
        for (const bool cut : {false, true}) {
          const std::vector<size_t> cuts = cut ? random_cuts(tokens, random) : std::vector<size_t>();
          if (cut && cuts.empty()) continue;
          std::string where = fmt::format("{} tokens", tokens);
          if (face == Face::kChunkwise) where += fmt::format(", chunk {}", chunks[i]);
          if (with_state) where += ", from a state";
          for (const size_t c : cuts) where += fmt::format(", cut at {}", c);
          const auto tell = [&](FaceRow& to, double bound, auto&& call) {
            try {
              judge(to, bound, where, point, call(), expected);
            } catch (const std::exception& error) {
              note(to, where + ": " + error.what());
            }
          };
          tell(rows_[row], options_.double_bound,
               [&] { return run<double>(variant_, point, face, chunks[i], cuts); });
          tell(rows_[row + 1], variant_.float_multiple * kFloatRounding,
               [&] { return run<float>(variant_, point, face, chunks[i], cuts); });
        }
      }
      row += 2;
    }
  }

  Point draw(size_t tokens, bool with_state, Random& random) {
    Point point;
    point.tokens = tokens;
    for (const FaceInput& input : variant_.inputs) point.inputs.push_back(input.draw(tokens, random.next()));
    if (with_state) {
      for (const FaceInput& state : variant_.states)
        point.states.push_back(state.draw(tokens, random.next()));
    }
    return point;
  }

  // One to four places strictly inside the sequence.
  static std::vector<size_t> random_cuts(size_t tokens, Random& random) {
    std::vector<size_t> cuts;
    if (tokens < 2) return cuts;
    for (uint64_t n = 1 + random.below(4); n > 0; --n) cuts.push_back(1 + random.below(tokens - 1));
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    return cuts;
  }

  void judge(FaceRow& row, double bound, const std::string& where, const Point& point, const Outcome& got,
             Outcome& expected) {
    compare(row, row.worst_output, bound, got.outputs, expected.outputs, kFloor, where, "output");
    compare(row, row.worst_state, bound, got.states, expected.states, kFloor, where, "final state");
    if (expected.gradients.empty()) {
      // The first face's gradients serve all others, once they have stood against the reference.
      check_direction(row, point, got, where);
      expected.gradients = got.gradients;
    }
    compare(row, row.worst_gradient, bound, got.gradients, expected.gradients, gradient_floor(expected),
            where, "gradient");
  }

  static double gradient_floor(const Outcome& outcome) {
    double floor = kFloor;
    for (const Tensor<double>& g : outcome.gradients)
      floor = std::max(floor, kGradientFloor * internal::largest(g));
    return floor;
  }

  void compare(FaceRow& row, double& worst, double bound, const std::vector<Tensor<double>>& got,
               const std::vector<Tensor<double>>& want, double floor, const std::string& where,
               const std::string& what) {
    if (got.size() != want.size()) {
      return note(row, fmt::format("{}: {} {}s, wanted {}", where, got.size(), what, want.size()));
    }
    for (size_t i = 0; i < got.size(); ++i) {
      const bool same_shape = got[i].shape() == want[i].shape();
      const double error = same_shape ? relative_error(got[i], want[i], floor) : std::nan("");
      if (!(error <= worst)) worst = error;
      if (!(error <= bound)) {
        note(row, fmt::format("{}: {} {} is off by {:.2e}, allowed {:.0e}", where, what, i, error, bound));
      }
    }
  }

  // ⟨gradient, u⟩ against the complex step of the reference along u, for each input and state by itself.
  void check_direction(FaceRow& row, const Point& point, const Outcome& got, const std::string& where) {
    Random random(options_.seed, 77);
    std::vector<ComplexTensor> x;
    for (const auto* tensors : {&point.inputs, &point.states}) {
      for (const Tensor<double>& t : *tensors) x.push_back(complex_of(t));
    }
    for (size_t i = 0; i < x.size(); ++i) {
      const Tensor<double> u = normal_like(x[i].shape, random);
      double along = 0;
      double size = gradient_floor(got);
      for (size_t e = 0; e < u.size(); ++e) {
        along += got.gradients[i][e] * u[e];
        size += std::abs(got.gradients[i][e] * u[e]);
        x[i][e] = {x[i][e].real(), kComplexStep * u[e]};
      }
      const auto middle = x.begin() + static_cast<std::ptrdiff_t>(point.inputs.size());
      const std::vector<ComplexTensor> y = variant_.reference({x.begin(), middle}, {middle, x.end()});
      double want = 0;
      for (size_t j = 0; j < y.size(); ++j) {
        const size_t outputs = point.d_outputs.size();
        const Tensor<double>& d = j < outputs ? point.d_outputs[j] : point.d_states[j - outputs];
        for (size_t e = 0; e < d.size(); ++e) want += d[e] * y[j][e].imag() / kComplexStep;
      }
      for (size_t e = 0; e < u.size(); ++e) x[i][e] = x[i][e].real();
      const double error = std::abs(along - want) / size;
      if (!(error <= row.worst_gradient)) row.worst_gradient = error;
      if (!(error <= options_.double_bound)) {
        note(row, fmt::format("{}: gradient {} along a direction is {:.12g}, the reference's {:.12g}", where,
                              i, along, want));
      }
    }
  }

  static void note(FaceRow& row, const std::string& what) {
    if (row.ok) row.why = what;
    row.ok = false;
  }

  const FaceVariant& variant_;
  const FaceCheckOptions& options_;
  std::vector<FaceRow> rows_;
};

}  // namespace

void register_faces(FaceVariant variant) {
  for (const FaceVariant& known : variants()) {
    if (known.name == variant.name) fail("the faces of {} are registered already", variant.name);
  }
  if (variant.name.empty() || variant.faces.empty() || variant.inputs.empty() || variant.outputs.empty() ||
      !variant.run64 || !variant.run32 || !variant.reference) {
    fail("the faces of \"{}\" want faces, inputs, outputs, run64, run32 and a reference", variant.name);
  }
  variants().push_back(std::move(variant));
}

std::vector<std::string> face_variants() {
  std::vector<std::string> names;
  for (const FaceVariant& variant : variants()) names.push_back(variant.name);
  return names;
}

std::vector<FaceRow> check_faces(std::string_view pattern, const FaceCheckOptions& options) {
  std::vector<FaceRow> rows;
  for (const FaceVariant& variant : variants()) {
    if (!fits(pattern, variant.name)) continue;
    for (FaceRow& row : Checker(variant, options).run_all()) rows.push_back(std::move(row));
  }
  if (rows.empty()) {
    std::string names;
    for (const std::string& name : face_variants()) names += (names.empty() ? "" : ", ") + name;
    fail_usage("no mixer matches \"{}\", there are: {}", pattern, names);
  }
  return rows;
}

}  // namespace storytape
