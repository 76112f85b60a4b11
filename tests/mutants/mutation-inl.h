// mutation.h for vectors: the arithmetic of Highway with switchable mistakes. Mutants are built for one SIMD
// target, so that this needs no guard per target.
#pragma once

#include "hwy/highway.h"
#include "tests/mutants/mutation.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace mutation_hn {
namespace hn = hwy::HWY_NAMESPACE;

using ::mutation::on;

// a·b.  0: -a·b, 1: a, 2: b
template <int ID, class V>
HWY_INLINE V Mul(V a, V b) {
  if (on<ID>()) return hn::Neg(hn::Mul(a, b));
  if (on<ID + 1>()) return a;
  if (on<ID + 2>()) return b;
  return hn::Mul(a, b);
}
// a/b.  0: -a/b, 1: a, 2: a·b
template <int ID, class V>
HWY_INLINE V Div(V a, V b) {
  if (on<ID>()) return hn::Neg(hn::Div(a, b));
  if (on<ID + 1>()) return a;
  if (on<ID + 2>()) return hn::Mul(a, b);
  return hn::Div(a, b);
}
// a+b.  0: a-b, 1: a, 2: b
template <int ID, class V>
HWY_INLINE V Add(V a, V b) {
  if (on<ID>()) return hn::Sub(a, b);
  if (on<ID + 1>()) return a;
  if (on<ID + 2>()) return b;
  return hn::Add(a, b);
}
// a-b.  0: a+b, 1: a, 2: b-a
template <int ID, class V>
HWY_INLINE V Sub(V a, V b) {
  if (on<ID>()) return hn::Add(a, b);
  if (on<ID + 1>()) return a;
  if (on<ID + 2>()) return hn::Sub(b, a);
  return hn::Sub(a, b);
}
// a·b+c.  0: c-a·b, 1: c, 2: a·b, 3: a+c, 4: b+c
template <int ID, class V>
HWY_INLINE V MulAdd(V a, V b, V c) {
  if (on<ID>()) return hn::NegMulAdd(a, b, c);
  if (on<ID + 1>()) return c;
  if (on<ID + 2>()) return hn::Mul(a, b);
  if (on<ID + 3>()) return hn::Add(a, c);
  if (on<ID + 4>()) return hn::Add(b, c);
  return hn::MulAdd(a, b, c);
}
// c-a·b.  0: c+a·b, 1: c, 2: -a·b, 3: c-a, 4: c-b
template <int ID, class V>
HWY_INLINE V NegMulAdd(V a, V b, V c) {
  if (on<ID>()) return hn::MulAdd(a, b, c);
  if (on<ID + 1>()) return c;
  if (on<ID + 2>()) return hn::Neg(hn::Mul(a, b));
  if (on<ID + 3>()) return hn::Sub(c, a);
  if (on<ID + 4>()) return hn::Sub(c, b);
  return hn::NegMulAdd(a, b, c);
}
// -x.  0: x
template <int ID, class V>
HWY_INLINE V Neg(V x) {
  return on<ID>() ? x : hn::Neg(x);
}
// 0: x without its mask
template <int ID, class M, class V>
HWY_INLINE V IfThenElseZero(M mask, V x) {
  return on<ID>() ? x : hn::IfThenElseZero(mask, x);
}
// 0: always yes, 1: always no
template <int ID, class M, class V>
HWY_INLINE V IfThenElse(M mask, V yes, V no) {
  if (on<ID>()) return yes;
  if (on<ID + 1>()) return no;
  return hn::IfThenElse(mask, yes, no);
}
// 0: the opposite sign
template <int ID, class T>
HWY_INLINE std::decay_t<T> value(T&& x) {
  using V = std::decay_t<T>;
  if constexpr (!std::is_arithmetic_v<V> && requires(V v) { hn::Neg(v); }) {
    return on<ID>() ? hn::Neg(x) : x;
  } else {
    return ::mutation::value<ID>(std::forward<T>(x));
  }
}

}  // namespace mutation_hn
}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();
