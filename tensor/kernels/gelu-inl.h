// The normal distribution and GELU of whole vectors, float and double: the part of math-inl.h that is fitted
// to Phi. Included per target.
#if defined(STORYTAPE_TENSOR_KERNELS_GELU_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_TENSOR_KERNELS_GELU_INL_H_
#undef STORYTAPE_TENSOR_KERNELS_GELU_INL_H_
#else
#define STORYTAPE_TENSOR_KERNELS_GELU_INL_H_
#endif

#include "tensor/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {

// ------------------------------------------------------------------------------------------------ normal
// distribution t = |x|, Phi the normal distribution function, phi its density, E = exp(-t^2/2):
//   (N1) gelu(x)  = x Phi(x)              = max(x, 0) - t Phi(-t)
//   (N2) gelu'(x) = Phi(x) + x phi(x)     = W E for x < 0, 1 - W E for x >= 0;   W = (Phi(-t) - t phi(t)) / E
//   (N3) erf(z)   = 1 - 2 Phi(-sqrt(2) z) for z >= 0

// Float Phi(-t), t >= 0, as 2^Q(t): no division, and no loss where it is tiny. Q fits log2 Phi(-t) on
// [0, 6.5] with weight Phi(-t) + 1e-6: the error of the result is 2.5e-8 absolute; beyond, Q falls off faster
// than it should.
template <class D, class V>
HWY_INLINE V NormalTailFloat(D d, V t) {
  return Exp2NonPositive(
      d, Polynomial(d, t, -0.99999994986353797105, -1.15110758407935858, -0.45918600191625867176,
                    -0.052574607308284764708, 0.0071955050492758237941, -0.00025356748361048810133,
                    -0.00013112719586621975579, 0.000026308903537262763785, -1.6160534204032687156e-6));
}

// Double Phi(-t) and E = exp(-t^2/2), both times 2^kGradualShift, for t in [0, 39]: within 4 ulp however
// small.
//   (N4) Phi(-t) = 1/2 - t P(t^2) for t < 1;   P of degree 10, error 2.2e-19
//   (N5) Phi(-t) = E R(u) / (t + 5) beyond,  u = (t - 5) / (t + 5);   R of degree 21, error 1.4e-17
//   (N6) t^2 = h^2 + (t - h)(t + h), h = t cut to 26 bits, so that h^2 is exact
template <class D, class V>
HWY_INLINE void NormalTailDouble(D d, V t, V& E, V& phi) {
  const hn::Rebind<uint64_t, D> du;
  const V half = hn::Set(d, 0.5);
  const V h = hn::And(t, hn::BitCast(d, hn::Set(du, uint64_t{0xFFFFFFFFF8000000})));
  const V low = hn::Mul(hn::Mul(hn::Sub(h, t), hn::Add(t, h)), half);
  E = ExpNonPositiveSum<true>(d, hn::Neg(hn::Mul(hn::Mul(h, h), half)), low);  // (N6)

  const V t_plus_5 = hn::Add(t, hn::Set(d, 5.0));
  const V u = hn::Div(hn::Sub(t, hn::Set(d, 5.0)), t_plus_5);
  const V R = Polynomial(d, u, 0.76919304975006295619, -0.66538250289005660081, 0.49530561596997699423,
                         -0.31353315667131568296, 0.16502036617036169312, -0.069118638705953003847,
                         0.020795066800240312958, -0.0029933767756862544564, -0.00079786940146411816441,
                         0.00054489910581781197979, -0.000059375711355829405499, -0.000049763010080114886223,
                         0.000016681145055961754603, 3.9814909409257220719e-6, -2.7690556329704152579e-6,
                         -3.3774281482374877207e-7, 4.3268694949827609798e-7, 4.3612201431333211385e-8,
                         -6.5320191344683194215e-8, -1.0210924345734081972e-8, 7.1820790829475476601e-9,
                         2.0139528611198313656e-9);
  const V beyond = hn::Mul(hn::Div(R, t_plus_5), E);  // (N5)
  const V near = hn::Min(t, hn::Set(d, 1.0));
  const V P = Polynomial(d, hn::Mul(near, near), 0.39894228040143267785, -0.066490380066905425471,
                         0.0099735570100349894784, -0.0011873282154676214164, 0.00011543468751389315495,
                         -9.4446557832064615809e-6, 6.6596796558167693867e-7, -4.1224076163350144359e-8,
                         2.2703872099211268435e-9, -1.1063083053356678309e-10, 4.0718438077956941759e-12);
  const V close =
      hn::Mul(hn::NegMulAdd(near, P, half), hn::Set(d, 1 / MathTraits<double>::kGradualUnit));  // (N4)
  phi = hn::IfThenElse(hn::Lt(t, hn::Set(d, 1.0)), close, beyond);
}

// x Phi(x), the exact GELU. Float: within 2 ulp for x > -0.5, below that within 1e-7 absolute; gelu(-inf) =
// 0. Double: within 5 ulp.
template <class D, class V>
HWY_INLINE V GeluErf(D d, V x) {
  const V positive = hn::Max(x, hn::Zero(d));
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    const V t = AtMost(d, hn::Abs(x), 14.0f);
    return hn::NegMulAdd(t, NormalTailFloat(d, t), positive);  // (N1)
  } else {
    const V t = AtMost(d, hn::Abs(x), 39.0);
    V E, phi;
    NormalTailDouble(d, t, E, phi);
    return hn::Sub(positive, Unshift(d, hn::Mul(t, phi)));
  }
}

// Its derivative. Float: within 1.5e-7 absolute. Double: within 5 ulp of 1, and relatively in the tail.
// Float W fits on [0, 5.6] with weight E: error 1.7e-8 absolute in W E; further out E is what counts.
template <class D, class V>
HWY_INLINE V GeluErfGrad(D d, V x) {
  using T = hn::TFromD<D>;
  V tail;
  if constexpr (sizeof(T) == 4) {
    const V t = AtMost(d, hn::Abs(x), 14.0f);
    const V E = Exp2NonPositive(d, hn::Mul(hn::Mul(t, t), hn::Set(d, static_cast<float>(-kLog2E / 2))));
    const V W = Polynomial(d, t, 0.49999998304621055828, -0.79788288305421625945, 0.24997257522101292517,
                           -0.13280578821155390302, 0.061923916765837461163, -0.025471773472278821282,
                           0.0090037941563675568098, -0.0025900545615111344686, 0.00056363852931344381556,
                           -0.000084767683939135561333, 7.7083607330053336396e-6, -3.1552094166124540809e-7);
    tail = hn::Mul(E, W);
  } else {
    const V t = AtMost(d, hn::Abs(x), 39.0);
    V E, phi;
    NormalTailDouble(d, t, E, phi);
    tail = Unshift(d, hn::NegMulAdd(hn::Mul(t, hn::Set(d, kInvSqrt2Pi)), E, phi));
  }
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(hn::Set(d, T{1}), tail));  // (N2)
}

// erf(z). Below 1 by z P(z^2), P of degree 6 (error 1.3e-9) or 12 (1.3e-19), else by (N3).
// Float within 3 ulp, double within 3 ulp.
template <class D, class V>
HWY_INLINE V Erf(D d, V z) {
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T{1});
  const V a = hn::Abs(z);
  const V small = hn::Min(a, one);
  const V z2 = hn::Mul(small, small);
  V p, tail;
  if constexpr (sizeof(T) == 4) {
    p = Polynomial(d, z2, 1.1283791657270403405, -0.37612625823906081712, 0.1128358514385591594,
                   -0.026853811758448419126, 0.0051883273836651581543, -0.00080101911474561737142,
                   0.000078538534713153886437);
    tail = NormalTailFloat(d, hn::Mul(AtMost(d, a, 8.0f), hn::Set(d, static_cast<T>(1 / kSqrtHalf))));
  } else {
    p = Polynomial(d, z2, 1.1283791670955125737, -0.37612638903183747605, 0.11283791670954857484,
                   -0.026866170645072892357, 0.0052239776247808431464, -0.0008548326978740998477,
                   0.00012055331036859569693, -0.000014925593505968365792, 1.646097280212825728e-6,
                   -1.6350025057560470516e-7, 1.4657878655718596845e-8, -1.1365661012451598945e-9,
                   5.9452526942831760098e-11);
    V E, phi;
    NormalTailDouble(d, hn::Mul(AtMost(d, a, 8.0), hn::Set(d, static_cast<T>(1 / kSqrtHalf))), E, phi);
    tail = Unshift(d, phi);
  }
  const V large = hn::NegMulAdd(hn::Set(d, T{2}), tail, one);  // (N3)
  return hn::CopySign(hn::IfThenElse(hn::Lt(a, one), hn::Mul(small, p), large), z);
}

// ------------------------------------------------------------------------------------------------ tanh GELU
//   (H1) y  = x/2 (1 + tanh u) = x sigmoid(2u),  2u = x (a + b x^2),  a = 2 sqrt(2/pi), b = 0.044715 a
//   (H2) y' = sigmoid(2u) + x sigmoid'(2u) (a + 3 b x^2)
inline constexpr double kGeluTanhA = 1.5957691216057307117;
inline constexpr double kGeluTanhB = 0.044715 * kGeluTanhA;

// Float and double: within 3 ulp for x > -1; below, the rounding of 2u costs up to |2u| ulp of the small
// result.
template <class D, class V>
HWY_INLINE V GeluTanh(D d, V x) {
  using T = hn::TFromD<D>;
  constexpr T kLimit = MathTraits<T>::kGeluTanhLimit;
  const V b = AtLeast(d, AtMost(d, x, kLimit), -kLimit);
  return TimesSigmoid(d, x, b, hn::Mul(b, Polynomial(d, hn::Mul(b, b), kGeluTanhA, kGeluTanhB)));  // (H1)
}
template <class D, class V>
HWY_INLINE V GeluTanhGrad(D d, V x) {
  using T = hn::TFromD<D>;
  constexpr T kLimit = MathTraits<T>::kGeluTanhLimit;
  const V b = AtLeast(d, AtMost(d, x, kLimit), -kLimit);
  const V b2 = hn::Mul(b, b);
  const V slope = hn::Mul(b, Polynomial(d, b2, kGeluTanhA, 3 * kGeluTanhB));
  return TimesSigmoidGrad(d, slope, hn::Mul(b, Polynomial(d, b2, kGeluTanhA, kGeluTanhB)));  // (H2)
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
