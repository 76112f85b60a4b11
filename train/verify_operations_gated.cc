// Golden cases of the mixers with gates or delta writes for every token. The files have heads first, [B, H, T,
// d]; the cores have tokens first, [B, T, H, d].
#include "nn/mixers/gated_recurrence.h"
#include "train/verify_operations_mixers.h"
#include "train/verify_operations_run.h"

namespace storytape {
namespace {

// How a variant's case names its inputs, and what is done to q and k beforehand.
struct GatedCase {
  const char* op;
  const char* gate;  // null for none
  bool delta;
  bool normalised = false;  // q and k to length 1, with the case's eps under the root
};

// [B, H, T, ...] or with writes [B, H, T, n_h, ...] → [B, T·n_h, H, ...].
template <class T>
Var<T> writes_first(Var<T> x, size_t rank) {
  if (x.shape().rank() == rank) {
    std::vector<size_t> axes{0, 2, 1};
    for (size_t axis = 3; axis < rank; ++axis) axes.push_back(axis);
    return transpose(x, axes);
  }
  const Shape shape = x.shape();
  std::vector<size_t> axes{0, 2, 3, 1}, flat{shape[0], shape[2] * shape[3], shape[1]};
  for (size_t axis = 4; axis < shape.rank(); ++axis) {
    axes.push_back(axis);
    flat.push_back(shape[axis]);
  }
  return reshape(transpose(x, axes), Shape(std::span<const size_t>(flat)));
}

template <class T>
Var<T> to_unit_length(Var<T> x, double eps) {
  return div(x, sqrt(add_constant(sum(square(x), x.shape().rank() - 1, true), eps)));
}

template <class T>
struct GatedCall {
  Var<T> q, k, v, alpha, beta, S_init;
  GatedOptions options;

  GatedCall(GoldenRun<T>& r, const GatedCase& c) {
    q = r.input("q");
    k = r.input("k");
    if (k.shape().rank() == 5) options.steps = k.shape()[3];
    if (c.normalised) {
      q = to_unit_length(q, r.golden.number("eps"));
      k = to_unit_length(k, r.golden.number("eps"));
    }
    q = tokens_first(q);
    k = writes_first(k, 4);
    v = writes_first(r.input("v"), 4);
    if (c.gate) {
      alpha = r.input(c.gate);
      alpha = alpha.shape().rank() == 4 ? tokens_first(alpha) : transpose(alpha, {0, 2, 1});
    }
    if (c.delta) beta = writes_first(r.input("beta"), 3);
    S_init = r.input("S_init");
  }
};

template <class T>
Tensor<T> decode_gated(GoldenRun<T>& r, const GatedCase& c) {
  const GatedCall<T> call(r, c);
  const size_t steps = call.options.steps;
  const auto value = [](const Var<T>& x) { return x.defined() ? x.value() : Tensor<T>(); };
  const Tensor<T> q = value(call.q), k = value(call.k), v = value(call.v), alpha = value(call.alpha),
                  beta = value(call.beta);
  State<T> state = gated_state<T>(q.size(0), q.size(2), q.size(3), v.size(3));
  if (call.S_init.defined()) state["S"] = call.S_init.value();
  const auto part = [](const Tensor<T>& x, size_t first, size_t last) {
    return x.defined() ? slice(x, 1, first, last) : x;
  };
  Tensor<T> o = decoded<T>(q.size(1), [&](size_t first, size_t last) {
    return gated_extend(c.op, state, part(q, first, last), part(k, first * steps, last * steps),
                        part(v, first * steps, last * steps), part(alpha, first, last),
                        part(beta, first * steps, last * steps), call.options);
  });
  r.output("S_final", std::as_const(state)["S"]);
  r.skip_gradients();
  return o;
}

std::vector<GoldenFace> gated_faces(const GatedCase& c) {
  std::vector<GoldenFace> faces;
  for (const FaceOf& of : kFaces) {
    faces.push_back(golden_face(of.name, [=]<class T>(GoldenRun<T>& r) {
      GatedCall<T> call(r, c);
      call.options.face = of.face;
      if (of.chunk) call.options.chunk = of.chunk;
      const auto result =
          gated_recurrence<T>(c.op, call.q, call.k, call.v, call.alpha, call.beta, call.S_init, call.options);
      r.output("o", tokens_first(result.o));
      r.output("S_final", result.S);
    }));
  }
  faces.push_back(golden_face("decode", [=](auto& r) { r.output("o", decode_gated(r, c)); }));
  return faces;
}

}  // namespace

void add_gated_mixers(GoldenFaces& faces) {
  for (const GatedCase& c :
       {GatedCase{"gla", "alpha", false}, GatedCase{"delta_rule", nullptr, true},
        GatedCase{"gated_delta_rule", "alpha", true}, GatedCase{"kda", "alpha", true},
        GatedCase{"delta_product", nullptr, true}, GatedCase{"gated_delta_product", "alpha", true}}) {
    faces[c.op] = gated_faces(c);
  }
  faces["unified_recurrence"] = gated_faces({"unified", "a", false});
  faces["delta_rule_qk_l2norm"] = gated_faces({"delta_rule", nullptr, true, true});
}

}  // namespace storytape
