// Elementary functions of whole vectors, for use inside kernels, float and double. Included per target.
//
// Every function takes any input: infinities give the function's limit, NaN stays NaN. "ulp" is the distance
// to the exact value in units of the last place, the worst over dense sweeps of every target
// (tests/math_test.cc). All polynomials are minimax fits, computed with Remez's algorithm in 50-digit
// arithmetic for the weight that makes the error named beside them uniform, then rounded to the type.
#if defined(STORYTAPE_TENSOR_KERNELS_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_TENSOR_KERNELS_MATH_INL_H_
#undef STORYTAPE_TENSOR_KERNELS_MATH_INL_H_
#else
#define STORYTAPE_TENSOR_KERNELS_MATH_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <limits>

#include "tensor/kernels/lanes-inl.h"
#include "tensor/simd_targets.h"
// After simd_targets.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What the functions below need to know of a type.
template <class T>
struct MathTraits;
template <>
struct MathTraits<float> {
  using Bits = uint32_t;
  static constexpr int kMantissaBits = 23;
  static constexpr int kExponentBias = 127;
  // ln 2 = kLn2High + kLn2Low; the first has so few bits that its product with an exponent is exact.
  static constexpr float kLn2High = 0.693145751953125f;
  static constexpr float kLn2Low = 1.428606820309417232e-6f;
  // Adding this rounds |x| < 2^22 to an integer and leaves it, biased as an exponent, in the low bits.
  static constexpr float kRound = 0x1.8p23f + kExponentBias;
  static constexpr float kExpLowest = -104.0f;  // exp rounds to 0 here
  static constexpr float kExpHighest = 89.0f;   // exp overflows here
  static constexpr float kExpFlush = -88.0f;    // rounds to the exponent whose biased bits are 0
  static constexpr int kGradualShift = 32;
  static constexpr float kGradualUnit = 0x1p-32f;
  static constexpr float kExpGradual = -110.21f;  // the same with kGradualShift added
  static constexpr float kGeluTanhLimit = 13.0f;  // gelu_tanh(-x) is 0 from here on
  static constexpr float kTanhLimit = 10.0f;      // tanh rounds to 1 here
};
template <>
struct MathTraits<double> {
  using Bits = uint64_t;
  static constexpr int kMantissaBits = 52;
  static constexpr int kExponentBias = 1023;
  static constexpr double kLn2High = 0x1.62e42feep-1;
  static constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  static constexpr double kRound = 0x1.8p52 + kExponentBias;
  static constexpr double kExpLowest = -746.0;
  static constexpr double kExpHighest = 710.0;
  static constexpr double kExpFlush = -709.0;
  static constexpr int kGradualShift = 64;
  static constexpr double kGradualUnit = 0x1p-64;
  static constexpr double kExpGradual = -753.45;
  static constexpr double kGeluTanhLimit = 22.0;
  static constexpr double kTanhLimit = 20.0;
};

inline constexpr double kLog2E = 1.4426950408889634074;
inline constexpr double kSqrtHalf = 0.70710678118654752440;
inline constexpr double kInvSqrt2Pi = 0.39894228040143267794;

// c0 + c1 x + c2 x^2 + ...
template <class D, class V>
HWY_INLINE V Polynomial(D d, V /*x*/, double c0) {
  return hn::Set(d, static_cast<hn::TFromD<D>>(c0));
}
template <class D, class V, class... Rest>
HWY_INLINE V Polynomial(D d, V x, double c0, Rest... rest) {
  return hn::MulAdd(Polynomial(d, x, rest...), x, hn::Set(d, static_cast<hn::TFromD<D>>(c0)));
}

template <class D, class V>
HWY_INLINE V MinusAbs(D d, V x) {
  return hn::Or(x, hn::SignBit(d));
}

// ------------------------------------------------------------------------------------------------ exp

// The vector 2^n from t = kRound + n, |n| small enough for a normal result; n = -kExponentBias gives 0.
template <class D, class V>
HWY_INLINE V PowerOfTwo(D d, V t) {
  using M = MathTraits<hn::TFromD<D>>;
  const hn::Rebind<typename M::Bits, D> du;
  return hn::BitCast(d, hn::ShiftLeft<M::kMantissaBits>(hn::BitCast(du, t)));
}

// exp(r) - 1 for |r| <= ln(2)/2: r + r^2 q(r); q of degree 4 (error 3.1e-9 of exp) or 10 (5.3e-20).
template <class D, class V>
HWY_INLINE V ExpMinusOneNarrow(D d, V r) {
  V q;
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    q = Polynomial(d, r, 0.49999993438762264228, 0.16666520480952435048, 0.041668389591914632686,
                   0.0083687353558729272887, 0.0013814573388827873054);
  } else {
    q = Polynomial(d, r, 0.5000000000000000044, 0.16666666666666683461, 0.041666666666666093299,
                   0.0083333333333170016062, 0.0013888888889115907383, 0.000198412698964678142,
                   0.000024801586926356927062, 2.755723477533592794e-6, 2.7557581896740590175e-7,
                   2.511206782849716461e-8, 2.0826662246321617655e-9);
  }
  return hn::MulAdd(hn::Mul(r, q), r, r);
}

// exp(r) for |r| <= ln(2): 1 + r + r^2 q(r); q of degree 5 (error 1.5e-8) or 12 (2.4e-19).
template <class D, class V>
HWY_INLINE V ExpWide(D d, V r) {
  V q;
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    q = Polynomial(d, r, 0.50000034616683178071, 0.16666614200411660204, 0.041661270875050211285,
                   0.0083361011272355429683, 0.0014104418401279361852, 0.00019611737438131139562);
  } else {
    q = Polynomial(d, r, 0.49999999999999998671, 0.16666666666666653178, 0.041666666666667265836,
                   0.0083333333333378526154, 0.0013888888888804301119, 0.0001984126983587292939,
                   0.000024801587354661487915, 2.75573222960980641e-6, 2.755730294662217209e-7,
                   2.5051205035593772757e-8, 2.0879056467923403373e-9, 1.6191488047795845259e-10,
                   1.1378130538462049878e-11);
  }
  return hn::MulAdd(hn::MulAdd(q, r, hn::Set(d, hn::TFromD<D>{1})), r, hn::Set(d, hn::TFromD<D>{1}));
}

// exp(x), within 2 ulp (float 1.5, double 1.4), subnormal results included.
//   (X1) x = 2 m ln 2 + r, |r| <= ln 2      exp(x) = exp(r) 2^m 2^m
// An even exponent, so that both halves are one normal number over the whole range.
template <class D, class V>
HWY_INLINE V Exp(D d, V x) {
  using T = hn::TFromD<D>;
  using M = MathTraits<T>;
  x = AtLeast(d, AtMost(d, x, M::kExpHighest), M::kExpLowest);
  const V t = hn::MulAdd(x, hn::Set(d, static_cast<T>(kLog2E / 2)), hn::Set(d, M::kRound));
  const V m = hn::Sub(t, hn::Set(d, M::kRound));
  V r = hn::NegMulAdd(m, hn::Set(d, 2 * M::kLn2High), x);
  r = hn::NegMulAdd(m, hn::Set(d, 2 * M::kLn2Low), r);
  const V s = PowerOfTwo(d, t);
  return hn::Mul(hn::Mul(ExpWide(d, r), s), s);
}

// exp(x + low) for x <= 0 and |low| small; kShifted: times 2^kGradualShift, so that no result is subnormal
// and a factor can be applied before Unshift rounds.
//   (X2) x = n ln 2 + r, |r| <= ln(2)/2     exp(x) = exp(r) 2^n
template <bool kShifted, class D, class V>
HWY_INLINE V ExpNonPositiveSum(D d, V x, V low) {
  using T = hn::TFromD<D>;
  using M = MathTraits<T>;
  constexpr int kShift = kShifted ? M::kGradualShift : 0;
  x = AtLeast(d, x, kShifted ? M::kExpGradual : M::kExpFlush);
  const V t = hn::MulAdd(x, hn::Set(d, static_cast<T>(kLog2E)), hn::Set(d, M::kRound + kShift));
  const V n = hn::Sub(t, hn::Set(d, M::kRound + kShift));
  V r = hn::NegMulAdd(n, hn::Set(d, M::kLn2High), x);
  r = hn::Add(hn::NegMulAdd(n, hn::Set(d, M::kLn2Low), r), low);
  return hn::Mul(hn::Add(ExpMinusOneNarrow(d, r), hn::Set(d, T{1})), PowerOfTwo(d, t));
}

// x 2^-kGradualShift.
template <class D, class V>
HWY_INLINE V Unshift(D d, V x) {
  return hn::Mul(x, hn::Set(d, MathTraits<hn::TFromD<D>>::kGradualUnit));
}

// exp(x) for x <= 0 (REQUIRES it, up to rounding; NaN allowed), within 2 ulp, cheaper than Exp. Results under
// the smallest normal number become 0 (kGradual: keep their subnormal value); exp(-inf) = 0 exactly.
template <bool kGradual = false, class D, class V>
HWY_INLINE V ExpNonPositive(D d, V x) {
  const V y = ExpNonPositiveSum<kGradual>(d, x, hn::Zero(d));
  if constexpr (kGradual) return Unshift(d, y);
  return y;
}

// 2^q for q <= 0; 0 from q = -127 on. 2^f = 1 + f p(f), error 9.2e-8 on |f| <= 1/2.
template <class D, class V>
HWY_INLINE V Exp2NonPositive(D d, V q) {
  using M = MathTraits<float>;
  q = AtLeast(d, q, -127.0f);
  const V t = hn::Add(q, hn::Set(d, M::kRound));
  const V f = hn::Sub(q, hn::Sub(t, hn::Set(d, M::kRound)));
  const V p = Polynomial(d, f, 0.69314697759743809368, 0.24022242092013088484, 0.055507337843511407217,
                         0.0096715124472705421006, 0.0013264711521409265782);
  return hn::Mul(hn::MulAdd(f, p, hn::Set(d, 1.0f)), PowerOfTwo(d, t));
}

// ------------------------------------------------------------------------------------------------ log

// log(1 + f) where s = f / (2 + f), |s| <= 1/3:
//   (L1) log(1 + f) = 2 atanh(s) = 2 s + s R = f - s (f - R),   R = s^2 P(s^2)
// P of degree 3 (error 4.6e-9) or 9 (1.4e-18).
template <class D, class V>
HWY_INLINE V Log1pReduced(D d, V f, V s) {
  const V z = hn::Mul(s, s);
  V p;
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    p = Polynomial(d, z, 0.66666413127822601192, 0.40021699551118199451, 0.27999132040885374594,
                   0.2802450446800703816);
  } else {
    p = Polynomial(d, z, 0.66666666666666303845, 0.4000000000015722277, 0.28571428547856611685,
                   0.22222223969560260829, 0.18181743930822793837, 0.15386559801506650599,
                   0.13300975122896306134, 0.12106074569888993804, 0.083401505457486484125,
                   0.17018488034979426834);
  }
  return hn::NegMulAdd(s, hn::NegMulAdd(z, p, f), f);
}

// log(1 + u) for u in [0, 1], within 2 ulp, small u included.
template <class D, class V>
HWY_INLINE V Log1pUnit(D d, V u) {
  return Log1pReduced(d, u, hn::Div(u, hn::Add(u, hn::Set(d, hn::TFromD<D>{2}))));
}

// log(x), within 2 ulp, subnormal x included. log(0) = -inf, log(x < 0) = NaN.
//   (L2) x = 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2)     log(x) = e ln 2 + log(1 + f)
template <class D, class V>
HWY_INLINE V Log(D d, V x) {
  using T = hn::TFromD<D>;
  using M = MathTraits<T>;
  using Bits = typename M::Bits;
  const hn::Rebind<Bits, D> du;
  constexpr Bits kOneBits = static_cast<Bits>(M::kExponentBias) << M::kMantissaBits;
  constexpr Bits kSqrtHalfBits =
      sizeof(T) == 4 ? static_cast<Bits>(0x3F3504F3) : static_cast<Bits>(0x3FE6A09E667F3BCD);
  // Added to an integer's bits, gives 2^kMantissaBits + the integer as a number.
  constexpr Bits kIntegerBits = static_cast<Bits>(M::kExponentBias + M::kMantissaBits) << M::kMantissaBits;
  constexpr T kScale = static_cast<T>(Bits{1} << (M::kMantissaBits + 1));

  const auto subnormal = hn::Lt(x, hn::Set(d, std::numeric_limits<T>::min()));
  const V scaled = hn::IfThenElse(subnormal, hn::Mul(x, hn::Set(d, kScale)), x);
  // The exponent field counts from sqrt(1/2) on.
  const auto shifted =
      hn::Add(hn::BitCast(du, scaled), hn::Set(du, static_cast<Bits>(kOneBits - kSqrtHalfBits)));
  const auto biased = hn::ShiftRight<M::kMantissaBits>(shifted);
  const V one_plus_f = hn::BitCast(d, hn::Sub(hn::Add(hn::BitCast(du, scaled), hn::Set(du, kOneBits)),
                                              hn::ShiftLeft<M::kMantissaBits>(biased)));
  const V bias =
      hn::IfThenElse(subnormal, hn::Set(d, static_cast<T>(M::kExponentBias + M::kMantissaBits + 1)),
                     hn::Set(d, static_cast<T>(M::kExponentBias)));
  const V e = hn::Sub(hn::Sub(hn::BitCast(d, hn::Or(biased, hn::Set(du, kIntegerBits))),
                              hn::Set(d, static_cast<T>(Bits{1} << M::kMantissaBits))),
                      bias);

  const V f = hn::Sub(one_plus_f, hn::Set(d, T{1}));
  const V log1p = Log1pReduced(d, f, hn::Div(f, hn::Add(f, hn::Set(d, T{2}))));
  const V y = hn::MulAdd(e, hn::Set(d, M::kLn2High), hn::MulAdd(e, hn::Set(d, M::kLn2Low), log1p));

  const V infinity = hn::Set(d, std::numeric_limits<T>::infinity());
  const V outside =
      hn::IfThenElse(hn::Eq(x, infinity), infinity, hn::Set(d, std::numeric_limits<T>::quiet_NaN()));
  const V edge = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity), outside);
  return hn::IfThenElse(hn::And(hn::Gt(x, hn::Zero(d)), hn::Lt(x, infinity)), y, edge);
}

// ------------------------------------------------------------------------------------------------ sigmoid
// family All from e = exp(-|x|), which never overflows:
//   (G1) sigmoid(x)     = n / (1 + e),   n = 1 for x >= 0, e for x < 0
//   (G2) sigmoid'(x)    = e / (1 + e)^2
//   (G3) silu(x)        = x sigmoid(x)
//   (G4) silu'(x)       = (n + x e / (1 + e)) / (1 + e)
//   (G5) softplus(x)    = max(x, 0) + log(1 + e)            softplus'(x)    = sigmoid(x)
//   (G6) log_sigmoid(x) = -softplus(-x)                     log_sigmoid'(x) = sigmoid(-x)

// Within 3 ulp, subnormal results included.
template <class D, class V>
HWY_INLINE V Sigmoid(D d, V x) {
  const V one = hn::Set(d, hn::TFromD<D>{1});
  const V e = ExpNonPositive<true>(d, MinusAbs(d, x));
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));  // (G1)
}
// Within 4 ulp.
template <class D, class V>
HWY_INLINE V SigmoidGrad(D d, V x) {
  const V e = ExpNonPositive<true>(d, MinusAbs(d, x));
  const V one_plus_e = hn::Add(hn::Set(d, hn::TFromD<D>{1}), e);
  return hn::Div(e, hn::Mul(one_plus_e, one_plus_e));  // (G2)
}

// x sigmoid(z), where `factor` is x, bounded where z is very negative.
template <class D, class V>
HWY_INLINE V TimesSigmoid(D d, V x, V factor, V z) {
  const V shifted = ExpNonPositiveSum<true>(d, MinusAbs(d, z), hn::Zero(d));
  const V negative = Unshift(d, hn::Mul(factor, shifted));
  return hn::Div(hn::IfThenElse(hn::Lt(z, hn::Zero(d)), negative, x),
                 hn::Add(hn::Set(d, hn::TFromD<D>{1}), Unshift(d, shifted)));
}
// sigmoid(z) + factor sigmoid'(z).
template <class D, class V>
HWY_INLINE V TimesSigmoidGrad(D d, V factor, V z) {
  using M = MathTraits<hn::TFromD<D>>;
  const V one = hn::Set(d, hn::TFromD<D>{1});
  const V shifted = ExpNonPositiveSum<true>(d, MinusAbs(d, z), hn::Zero(d));
  const V i = hn::Div(one, hn::Add(one, Unshift(d, shifted)));
  const V n = hn::IfThenElse(hn::Lt(z, hn::Zero(d)), shifted, hn::Set(d, 1 / M::kGradualUnit));
  return Unshift(d, hn::Mul(i, hn::MulAdd(hn::Mul(factor, shifted), i, n)));
}

// Within 3 ulp; silu(-inf) = 0.
template <class D, class V>
HWY_INLINE V Silu(D d, V x) {
  return TimesSigmoid(d, x, AtLeast(d, x, MathTraits<hn::TFromD<D>>::kExpGradual), x);  // (G3)
}
// Within 4 ulp, near its zero within 4 ulp of 1.
template <class D, class V>
HWY_INLINE V SiluGrad(D d, V x) {
  using M = MathTraits<hn::TFromD<D>>;
  return TimesSigmoidGrad(d, AtLeast(d, AtMost(d, x, -M::kExpGradual), M::kExpGradual), x);  // (G4)
}

// Within 3 ulp.
template <class D, class V>
HWY_INLINE V Softplus(D d, V x) {
  const V e = ExpNonPositive<true>(d, MinusAbs(d, x));
  return hn::Add(hn::Max(x, hn::Zero(d)), Log1pUnit(d, e));  // (G5); NaN comes in through e
}
template <class D, class V>
HWY_INLINE V LogSigmoid(D d, V x) {
  const V e = ExpNonPositive<true>(d, MinusAbs(d, x));
  return hn::Sub(hn::Min(x, hn::Zero(d)), Log1pUnit(d, e));  // (G6)
}

// ------------------------------------------------------------------------------------------------ tanh
//   (T1) tanh(|x|) = E / (E + 2),  E = exp(2|x|) - 1 = 2^n (exp(r) - 1) + (2^n - 1), exact in its second term
//   (T2) tanh'(x)  = 4 e / (1 + e)^2,  e = exp(-2|x|)

// Within 3 ulp, small x included.
template <class D, class V>
HWY_INLINE V Tanh(D d, V x) {
  using T = hn::TFromD<D>;
  using M = MathTraits<T>;
  const V a = AtMost(d, hn::Abs(x), M::kTanhLimit);
  const V a2 = hn::Add(a, a);
  const V t = hn::MulAdd(a2, hn::Set(d, static_cast<T>(kLog2E)), hn::Set(d, M::kRound));
  const V n = hn::Sub(t, hn::Set(d, M::kRound));
  V r = hn::NegMulAdd(n, hn::Set(d, M::kLn2High), a2);
  r = hn::NegMulAdd(n, hn::Set(d, M::kLn2Low), r);
  const V s = PowerOfTwo(d, t);
  const V e = hn::MulAdd(s, ExpMinusOneNarrow(d, r), hn::Sub(s, hn::Set(d, T{1})));
  return hn::CopySign(hn::Div(e, hn::Add(e, hn::Set(d, T{2}))), x);  // (T1)
}
// Within 4 ulp.
template <class D, class V>
HWY_INLINE V TanhGrad(D d, V x) {
  const V minus_abs = MinusAbs(d, x);
  const V e = ExpNonPositive<true>(d, hn::Add(minus_abs, minus_abs));
  const V one_plus_e = hn::Add(hn::Set(d, hn::TFromD<D>{1}), e);
  const V half = hn::Mul(one_plus_e, hn::Set(d, static_cast<hn::TFromD<D>>(0.5)));
  return hn::Div(e, hn::Mul(half, half));  // (T2)
}

// ------------------------------------------------------------------------------------------------ elu + 1
//   (E1) y = x + 1 for x > 0, else exp(x)     y' = 1 for x > 0, else exp(x)
// Never exp(x) - 1 + 1, which would lose small features.
template <class D, class V>
HWY_INLINE V EluPlusOne(D d, V x) {
  const V e = ExpNonPositive<true>(d, AtMost(d, x, hn::TFromD<D>{0}));
  return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Add(x, hn::Set(d, hn::TFromD<D>{1})), e);
}
// From y = EluPlusOne(x): y <= 1 exactly where x <= 0.
template <class D, class V>
HWY_INLINE V EluPlusOneGrad(D d, V y) {
  return AtMost(d, y, hn::TFromD<D>{1});
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
