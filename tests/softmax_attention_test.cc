// Softmax attention held against its scalar definition, against the golden data, and face against face.
#include "nn/mixers/softmax_attention.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "nn/mixers/kernels/softmax_attention.h"
#include "nn/mixers/reference_softmax.h"
#include "tensor/elementwise.h"
#include "tensor/index.h"
#include "tensor/random.h"
#include "tensor/simd.h"
#include "tests/catch.h"
#include "tests/error_message.h"
#include "tests/shared.h"
#include "train/safetensors.h"

namespace storytape {
namespace {

constexpr Face kFaces[] = {Face::kRecurrent, Face::kParallel, Face::kChunkwise};

struct Sizes {
  size_t batch, queries, keys, heads, kv_heads, dk, dv;
};

template <class T>
Tensor<T> normal(const Shape& shape, uint64_t seed, double deviation = 1) {
  Random random(seed);
  Tensor<T> t(shape);
  for (T& x : t.values()) x = static_cast<T>(static_cast<float>(deviation * random.normal()));
  return t;
}

template <class T>
struct Inputs {
  Tensor<T> q, k, v, d_o;
  Inputs(const Sizes& n, uint64_t seed, double deviation = 1)
      : q(normal<T>({n.batch, n.queries, n.heads, n.dk}, seed, deviation)),
        k(normal<T>({n.batch, n.keys, n.kv_heads, n.dk}, seed + 1, deviation)),
        v(normal<T>({n.batch, n.keys, n.kv_heads, n.dv}, seed + 2)),
        d_o(normal<T>({n.batch, n.queries, n.heads, n.dv}, seed + 3)) {}
};

template <class T>
struct Results {
  Tensor<T> o, dq, dk, dv;
};

template <class T>
Results<T> run(const Inputs<T>& in, const SoftmaxAttentionOptions& options) {
  Tape<T> tape;
  const Var<T> q = tape.input(in.q), k = tape.input(in.k), v = tape.input(in.v);
  const Var<T> o = softmax_attention(q, k, v, options);
  const Tensor<T> value = o.value();
  tape.backward(std::span<const Var<T>>(&o, 1), std::span<const Tensor<T>>(&in.d_o, 1));
  return {value, q.grad(), k.grad(), v.grad()};
}

// max |a - b| relative to max |b|, or to 1 if that is larger where nothing is; infinite for NaN and unequal
// shapes.
template <class A, class B>
double difference(const Tensor<A>& a, const Tensor<B>& b) {
  if (!(a.shape() == b.shape()) || a.size() == 0) return std::numeric_limits<double>::infinity();
  double worst = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    if (!std::isfinite(x) || !std::isfinite(y)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, std::abs(x - y));
    largest = std::max(largest, std::abs(y));
  }
  return worst / std::max(largest, 1e-3);
}

template <class T>
double worst_difference(const Results<T>& a, const Results<T>& b) {
  return std::max(
      {difference(a.o, b.o), difference(a.dq, b.dq), difference(a.dk, b.dk), difference(a.dv, b.dv)});
}

Tensor<double> by_definition(const Inputs<double>& in, const Sizes& n, double scale, size_t window,
                             ptrdiff_t offset) {
  Tensor<double> o(in.d_o.shape());
  reference::softmax_attention({n.batch, n.queries, n.keys, n.heads, n.kv_heads, n.dk, n.dv, offset, window},
                               scale, in.q.data(), in.k.data(), in.v.data(), o.data());
  return o;
}

// Runs a check on every SIMD target of this machine.
template <class Check>
void on_every_target(Check check) {
  for (const std::string& target : simd_targets()) {
    force_simd_target(target);
    INFO("target " << target);
    check();
  }
  force_simd_target("");
}

// [B, H, T, d] of the golden data and back.
Tensor<double> heads_inside(const Tensor<double>& x) {
  const size_t B = x.size(0), H = x.size(1), T = x.size(2), d = x.size(3);
  Tensor<double> y({B, T, H, d});
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = i % d, t = i / d % T, h = i / d / T % H, b = i / d / T / H;
    y[((b * T + t) * H + h) * d + c] = std::as_const(x)[i];
  }
  return y;
}

Tensor<double> read(const SafetensorsFile& file, const std::string& name) {
  Shape shape;
  for (const uint64_t size : file.at(name).shape) shape.push_back(size);
  const std::vector<double> values = file.read_values<double>(name);
  return heads_inside(Tensor<double>(shape, std::span<const double>(values)));
}

// The worst |x - y| as a multiple of what is allowed; infinite for NaN.
template <class T>
double ratio(const Tensor<T>& x, const Tensor<double>& y, double absolute, double relative) {
  if (!(x.shape() == y.shape())) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = std::abs(static_cast<double>(x[i]) - y[i]) / (absolute + relative * std::abs(y[i]));
    if (!(error <= worst)) worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
  }
  return worst;
}

template <class T>
void check_golden(const SafetensorsFile& file, Face face) {
  Inputs<T> in({1, 1, 1, 1, 1, 1, 1}, 0);
  in.q = cast<T>(read(file, "in.q"));
  in.k = cast<T>(read(file, "in.k"));
  in.v = cast<T>(read(file, "in.v"));
  in.d_o = cast<T>(read(file, "up.o"));
  SoftmaxAttentionOptions options;
  options.face = face;
  options.scale = std::stod(file.metadata().at("attr.scale"));
  const auto window = file.metadata().find("attr.window");
  if (window != file.metadata().end()) options.window = std::stoull(window->second);
  const Results<T> got = run(in, options);
  const auto check = [&](const std::string& name, const Tensor<T>& x) {
    const Tensor<double> y = read(file, name);
    double largest = 0;
    for (const double value : y.to_vector()) largest = std::max(largest, std::abs(value));
    INFO(name);
    if constexpr (sizeof(T) == 4) {
      CHECK(ratio(x, y, std::stod(file.metadata().at("atol." + name)), 1e-5) <= 1);
    } else {
      CHECK(ratio(x, y, 1e-12 + 1e-10 * largest, 1e-9) <= 1);
    }
  };
  check("out.o", got.o);
  check("grad.q", got.dq);
  check("grad.k", got.dk);
  check("grad.v", got.dv);
}

}  // namespace

TEST_CASE("softmax attention matches the golden data in every face, float and double, on every target") {
  STORYTAPE_NEED_SHARED(shared);
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(shared / "golden")) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("softmax_attention_", 0) != 0) continue;
    ++files;
    const SafetensorsFile file(entry.path());
    on_every_target([&] {
      for (const Face face : kFaces) {
        INFO(name << ", " << to_string(face));
        check_golden<float>(file, face);
        check_golden<double>(file, face);
      }
    });
  }
  CHECK(files >= 13);
}

TEST_CASE("the three faces of softmax attention agree at every length, outputs and gradients") {
  on_every_target([] {
    for (size_t T = 1; T <= 130; T += T < 20 ? 1 : 7) {
      const Sizes n{2, T, T, 3, 3, 5, 11};
      const Inputs<double> in(n, 40 + T);
      INFO("T = " << T);
      Results<double> faces[3];
      for (int f = 0; f < 3; ++f) {
        SoftmaxAttentionOptions options;
        options.face = kFaces[f];
        faces[f] = run(in, options);
      }
      CHECK(worst_difference(faces[1], faces[0]) <= 1e-11);
      CHECK(worst_difference(faces[2], faces[0]) <= 1e-11);
      CHECK(difference(faces[2].o, by_definition(in, n, 1 / std::sqrt(5.0), 0, 0)) <= 1e-13);
    }
  });
}

TEST_CASE("several chunks of keys with a rising maximum give what one pass over all gives") {
  // Keys grow along the sequence, so that every chunk moves the running maximum.
  const Sizes n{1, 700, 700, 1, 1, 3, 2};
  Inputs<double> in(n, 7);
  for (size_t t = 0; t < n.keys; ++t) {
    for (size_t c = 0; c < n.dk; ++c) in.k[t * n.dk + c] *= 1 + static_cast<double>(t) / 50;
  }
  on_every_target([&] {
    SoftmaxAttentionOptions options;
    options.face = Face::kRecurrent;
    const Results<double> rows = run(in, options);
    options.face = Face::kChunkwise;
    CHECK(worst_difference(run(in, options), rows) <= 1e-11);
  });
}

TEST_CASE("a gradient is added to what a variable has, and one variable may be q, k and v at once") {
  const Sizes n{2, 37, 37, 3, 3, 5, 5};
  const Inputs<double> in(n, 9);
  for (const Face face : kFaces) {
    INFO(to_string(face));
    SoftmaxAttentionOptions options;
    options.face = face;
    Inputs<double> same = in;
    same.k = same.v = same.q;
    const Results<double> apart = run(same, options);
    Tape<double> tape;
    const Var<double> x = tape.input(in.q);
    const Var<double> o = softmax_attention(x, x, x, options);
    tape.backward(std::span<const Var<double>>(&o, 1), std::span<const Tensor<double>>(&in.d_o, 1));
    CHECK(difference(x.grad(), add(add(apart.dq, apart.dk), apart.dv)) <= 1e-12);
  }
}

TEST_CASE("only the wanted gradients are made") {
  const Sizes n{1, 19, 19, 2, 2, 4, 3};
  const Inputs<double> in(n, 11);
  for (const Face face : kFaces) {
    SoftmaxAttentionOptions options;
    options.face = face;
    const Results<double> all = run(in, options);
    Tape<double> tape;
    const Var<double> q = tape.constant(in.q), k = tape.input(in.k), v = tape.constant(in.v);
    const Var<double> o = softmax_attention(q, k, v, options);
    tape.backward(std::span<const Var<double>>(&o, 1), std::span<const Tensor<double>>(&in.d_o, 1));
    CHECK(difference(k.grad(), all.dk) <= 1e-14);
  }
}

TEST_CASE("logits of 1e4 and of either sign stay finite and exact to float") {
  const Sizes n{1, 70, 70, 1, 1, 4, 3};
  const Inputs<double> exact(n, 13, 50);
  Inputs<float> in(n, 13, 50);
  on_every_target([&] {
    for (const Face face : kFaces) {
      INFO(to_string(face));
      SoftmaxAttentionOptions options;
      options.face = face;
      options.scale = 1;
      const Results<float> got = run(in, options);
      const Results<double> want = run(exact, options);
      // A logit near 1e4 has rounding errors of 1e-3, and a weight as many, relatively.
      CHECK(difference(got.o, want.o) <= 1e-2);
      CHECK(difference(got.dv, want.dv) <= 1e-2);
      CHECK(difference(got.dq, want.dq) <= 1e-1);
      CHECK(difference(got.dk, want.dk) <= 1e-1);
    }
  });
}

TEST_CASE("after the first call, forward and backward allocate nothing") {
  const Sizes n{1, 200, 200, 2, 2, 32, 32};
  const Inputs<float> in(n, 15);
  Tensor<float> o(in.d_o.shape()), max({n.heads, n.queries}), sum({n.heads, n.queries});
  Tensor<float> dq(in.q.shape()), dk(in.k.shape()), dv(in.v.shape());
  const Tensor<float> log_f({n.keys, n.heads}, -0.125f);
  Tensor<float> d_log_f(log_f.shape());
  SoftmaxAttentionArgs<float> args{1, 2,    2,           n.queries,   n.keys,      32,        32,    0,
                                   0, 0.2f, in.q.data(), in.k.data(), in.v.data(), n.queries, n.keys};
  const SoftmaxAttentionStats<float> stats{max.data(), sum.data()};
  for (const bool forget : {false, true}) {
    if (forget) args.log_f = log_f.data();
    const auto step = [&] {
      softmax_attention_forward(args, o.data(), stats);
      softmax_attention_backward(
          args, std::as_const(o).data(), stats, in.d_o.data(),
          {{dq.data(), false}, {dk.data(), false}, {dv.data(), false}, {d_log_f.data(), false}});
    };
    step();
    const uint64_t before = allocation_count();
    step();
    CHECK(allocation_count() == before);
  }
}

TEST_CASE("B028 a query that sees no key gives zeros and zero gradient, the others are as without it") {
  // Four queries stand before the first of three keys.
  const Sizes n{2, 7, 3, 3, 3, 5, 2};
  const Sizes rest{2, 3, 3, 3, 3, 5, 2};
  const Inputs<double> in(n, 17);
  Inputs<double> seeing(rest, 17);
  seeing.k = in.k;
  seeing.v = in.v;
  const auto tail = [](const Tensor<double>& x) { return slice(x, 1, 4, 7); };
  seeing.q = tail(in.q);
  seeing.d_o = tail(in.d_o);
  on_every_target([&] {
    for (const Face face : kFaces) {
      INFO(to_string(face));
      SoftmaxAttentionOptions options;
      options.face = face;
      options.offset = -4;
      const Results<double> all = run(in, options);
      options.offset = {};
      const Results<double> without = run(seeing, options);
      for (const double x : slice(all.o, 1, 0, 4).to_vector()) CHECK(x == 0);
      for (const double x : slice(all.dq, 1, 0, 4).to_vector()) CHECK(x == 0);
      CHECK(difference(tail(all.o), without.o) == 0);
      CHECK(difference(tail(all.dq), without.dq) == 0);
      CHECK(difference(all.dk, without.dk) == 0);
      CHECK(difference(all.dv, without.dv) == 0);
    }
  });
}

TEST_CASE("B104 a window of W keys counts the own token") {
  for (const size_t T : {7, 8, 9, 16, 17, 33, 150}) {
    for (const size_t window : {1, 8, 100}) {
      const Sizes n{1, T, T, 2, 2, 3, T};
      Inputs<double> in(n, 19);
      // v_j is the j-th unit vector: o holds the weights.
      for (size_t i = 0; i < in.v.size(); ++i) in.v[i] = i % T == i / (2 * T) ? 1 : 0;
      for (const Face face : kFaces) {
        SoftmaxAttentionOptions options;
        options.face = face;
        options.window = window;
        INFO("T = " << T << ", window " << window << ", " << to_string(face));
        const Tensor<double> o = run(in, options).o;
        bool right = true;
        for (size_t row = 0; row < 2 * T; ++row) {
          const size_t t = row / 2;
          for (size_t j = 0; j < T; ++j) {
            const bool seen = j <= t && j + window > t;
            right = right && (std::as_const(o)[row * T + j] > 0) == seen;
          }
        }
        CHECK(right);
        CHECK(difference(o, by_definition(in, n, 1 / std::sqrt(3.0), window, 0)) <= 1e-13);
      }
    }
  }
}

TEST_CASE("B112 query heads share key and value heads by blocks") {
  const size_t pairs[][2] = {{4, 2}, {6, 3}, {8, 1}, {4, 4}};
  for (const auto& pair : pairs) {
    const size_t heads = pair[0], kv_heads = pair[1];
    const Sizes n{2, 21, 21, heads, kv_heads, 5, 3};
    Inputs<double> in(n, 23);
    for (const Face face : kFaces) {
      INFO(heads << " heads on " << kv_heads << ", " << to_string(face));
      SoftmaxAttentionOptions options;
      options.face = face;
      const Results<double> shared = run(in, options);
      CHECK(difference(shared.o, by_definition(in, n, 1 / std::sqrt(5.0), 0, 0)) <= 1e-13);
      // The gradient of a kv head is the sum over its group: as with every head's keys and values written
      // out.
      const size_t group = heads / kv_heads;
      Inputs<double> apart({2, 21, 21, heads, heads, 5, 3}, 23);
      apart.d_o = in.d_o;
      const auto spread = [&](const Tensor<double>& x, Tensor<double>& y) {
        const size_t d = x.size(3);
        for (size_t i = 0; i < y.size(); ++i) {
          const size_t h = i / d % heads, row = i / d / heads;
          y[i] = x[(row * kv_heads + h / group) * d + i % d];
        }
      };
      const auto gather = [&](const Tensor<double>& y, const Shape& shape) {
        Tensor<double> x = Tensor<double>::zeros(shape);
        const size_t d = shape[3];
        for (size_t i = 0; i < y.size(); ++i) {
          const size_t h = i / d % heads, row = i / d / heads;
          x[(row * kv_heads + h / group) * d + i % d] += y[i];
        }
        return x;
      };
      spread(in.k, apart.k);
      spread(in.v, apart.v);
      const Results<double> whole = run(apart, options);
      CHECK(difference(shared.dq, whole.dq) <= 1e-12);
      CHECK(difference(shared.dk, gather(whole.dk, in.k.shape())) <= 1e-12);
      CHECK(difference(shared.dv, gather(whole.dv, in.v.shape())) <= 1e-12);
    }
  }
  // Values of kv head 0 all 0, of head 1 all 1: heads 0 and 1 give 0, heads 2 and 3 give 1.
  Inputs<double> in({1, 5, 5, 4, 2, 3, 1}, 29);
  for (size_t i = 0; i < in.v.size(); ++i) in.v[i] = static_cast<double>(i % 2);
  const Tensor<double> o = run(in, SoftmaxAttentionOptions{}).o;
  for (size_t i = 0; i < o.size(); ++i) CHECK(std::as_const(o)[i] == Approx(i % 4 / 2).margin(1e-15));

  const Inputs<double> uneven({1, 3, 3, 5, 2, 3, 3}, 31);
  const std::string message = test::message_of([&] { run(uneven, SoftmaxAttentionOptions{}); });
  INFO(message);
  CHECK(message.find("5 query heads can't share 2") != std::string::npos);
}

TEST_CASE("B113 sizes that are all different are told apart") {
  const Sizes n{2, 7, 13, 6, 3, 5, 11};
  const Inputs<double> in(n, 37);
  on_every_target([&] {
    for (const Face face : kFaces) {
      INFO(to_string(face));
      SoftmaxAttentionOptions options;
      options.face = face;
      CHECK(difference(run(in, options).o, by_definition(in, n, 1 / std::sqrt(5.0), 0, 6)) <= 1e-13);
    }
  });
}

TEST_CASE("shapes that don't fit are refused by name") {
  const auto refuse = [](const Shape& q, const Shape& k, const Shape& v, const std::string& words,
                         SoftmaxAttentionOptions options = {}) {
    Tape<float> tape;
    const std::string message = test::message_of([&] {
      softmax_attention(tape.input(Tensor<float>(q, 1.0f)), tape.input(Tensor<float>(k, 1.0f)),
                        tape.input(Tensor<float>(v, 1.0f)), options);
    });
    INFO(message);
    CHECK(message.find(words) != std::string::npos);
  };
  refuse({2, 3, 4}, {2, 3, 4, 5}, {2, 3, 4, 5}, "4 axes");
  refuse({2, 3, 4, 5}, {2, 3, 4, 6}, {2, 3, 4, 5}, "k is [2, 3, 4, 6]");
  refuse({2, 3, 4, 5}, {1, 3, 4, 5}, {2, 3, 4, 5}, "k is [1, 3, 4, 5]");
  refuse({2, 3, 4, 5}, {2, 3, 4, 5}, {2, 4, 4, 5}, "v is [2, 4, 4, 5]");
  refuse({2, 3, 4, 5}, {2, 2, 4, 5}, {2, 2, 4, 5}, "3 queries but 2 keys");
  refuse({2, 0, 4, 5}, {2, 0, 4, 5}, {2, 0, 4, 5}, "at least one");
  SoftmaxAttentionOptions options;
  options.scale = std::numeric_limits<double>::quiet_NaN();
  refuse({2, 3, 4, 5}, {2, 3, 4, 5}, {2, 3, 4, 5}, "the scale is nan", options);
}

}  // namespace storytape
