// Elementwise functions and their derivatives over arrays. Included per target.
#if defined(STORYTAPE_TENSOR_KERNELS_UNARY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_TENSOR_KERNELS_UNARY_INL_H_
#undef STORYTAPE_TENSOR_KERNELS_UNARY_INL_H_
#else
#define STORYTAPE_TENSOR_KERNELS_UNARY_INL_H_
#endif

#include "tensor/elementwise.h"
#include "tensor/kernels/gelu-inl.h"
#include "tensor/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One struct per function: F is f(x); G is f'(x), from x or from y = f(x) as kFrom says.
enum class From { kInput, kOutput, kNothing };

// (U1) y = exp(x)            y' = y
struct ExpOp {
  static constexpr From kFrom = From::kOutput;
  template <class D, class V>
  static HWY_INLINE V F(D d, V x) {
    return Exp(d, x);
  }
  template <class D, class V>
  static HWY_INLINE V G(D /*d*/, V y) {
    return y;
  }
};
// (U2) y = log(x)            y' = 1 / x
struct LogOp {
  static constexpr From kFrom = From::kInput;
  template <class D, class V>
  static HWY_INLINE V F(D d, V x) {
    return Log(d, x);
  }
  template <class D, class V>
  static HWY_INLINE V G(D d, V x) {
    return hn::Div(hn::Set(d, hn::TFromD<D>{1}), x);
  }
};
// (U3) y = tanh(x)           y' = (T2)
struct TanhOp {
  static constexpr From kFrom = From::kInput;
  template <class D, class V>
  static HWY_INLINE V F(D d, V x) {
    return Tanh(d, x);
  }
  template <class D, class V>
  static HWY_INLINE V G(D d, V x) {
    return TanhGrad(d, x);
  }
};
// (U4) y = sigmoid(x)        y' = (G2)
struct SigmoidOp {
  static constexpr From kFrom = From::kInput;
  template <class D, class V>
  static HWY_INLINE V F(D d, V x) {
    return Sigmoid(d, x);
  }
  template <class D, class V>
  static HWY_INLINE V G(D d, V x) {
    return SigmoidGrad(d, x);
  }
};
// (U5) y = softplus(x)       y' = sigmoid(x)
struct SoftplusOp {
  static constexpr From kFrom = From::kInput;
  template <class D, class V>
  static HWY_INLINE V F(D d, V x) {
    return Softplus(d, x);
  }
  template <class D, class V>
  static HWY_INLINE V G(D d, V x) {
    return Sigmoid(d, x);
  }
};
// (U6) y = -softplus(-x)     y' = sigmoid(-x)
struct LogSigmoidOp {
  static constexpr From kFrom = From::kInput;
  template <class D, class V>
  static HWY_INLINE V F(D d, V x) {
    return LogSigmoid(d, x);
  }
  template <class D, class V>
  static HWY_INLINE V G(D d, V x) {
    return Sigmoid(d, hn::Neg(x));
  }
};
// (U7) y = x sigmoid(x)      y' = (G4)
struct SiluOp {
  static constexpr From kFrom = From::kInput;
  template <class D, class V>
  static HWY_INLINE V F(D d, V x) {
    return Silu(d, x);
  }
  template <class D, class V>
  static HWY_INLINE V G(D d, V x) {
    return SiluGrad(d, x);
  }
};
// (U8) y = x Phi(x)          y' = (N2)
struct GeluErfOp {
  static constexpr From kFrom = From::kInput;
  template <class D, class V>
  static HWY_INLINE V F(D d, V x) {
    return GeluErf(d, x);
  }
  template <class D, class V>
  static HWY_INLINE V G(D d, V x) {
    return GeluErfGrad(d, x);
  }
};
// (U9) y = x sigmoid(2u)     y' = (H2)
struct GeluTanhOp {
  static constexpr From kFrom = From::kInput;
  template <class D, class V>
  static HWY_INLINE V F(D d, V x) {
    return GeluTanh(d, x);
  }
  template <class D, class V>
  static HWY_INLINE V G(D d, V x) {
    return GeluTanhGrad(d, x);
  }
};
// (U10) y = x + 1 or exp(x)  y' = min(y, 1)
struct EluPlusOneOp {
  static constexpr From kFrom = From::kOutput;
  template <class D, class V>
  static HWY_INLINE V F(D d, V x) {
    return EluPlusOne(d, x);
  }
  template <class D, class V>
  static HWY_INLINE V G(D d, V y) {
    return EluPlusOneGrad(d, y);
  }
};
// (U11) y = sqrt(x)          y' = 1 / (2 y)
struct SqrtOp {
  static constexpr From kFrom = From::kOutput;
  template <class D, class V>
  static HWY_INLINE V F(D /*d*/, V x) {
    return hn::Sqrt(x);
  }
  template <class D, class V>
  static HWY_INLINE V G(D d, V y) {
    return hn::Div(hn::Set(d, static_cast<hn::TFromD<D>>(0.5)), y);
  }
};
// (U12) y = x^2              y' = 2 x
struct SquareOp {
  static constexpr From kFrom = From::kInput;
  template <class D, class V>
  static HWY_INLINE V F(D /*d*/, V x) {
    return hn::Mul(x, x);
  }
  template <class D, class V>
  static HWY_INLINE V G(D /*d*/, V x) {
    return hn::Add(x, x);
  }
};
// (U13) y = -x               y' = -1
struct NegOp {
  static constexpr From kFrom = From::kNothing;
  template <class D, class V>
  static HWY_INLINE V F(D /*d*/, V x) {
    return hn::Neg(x);
  }
  template <class D, class V>
  static HWY_INLINE V G(D d, V /*unused*/) {
    return hn::Set(d, hn::TFromD<D>{-1});
  }
};
// (U14) y = 1 / x            y' = -y^2
struct ReciprocalOp {
  static constexpr From kFrom = From::kOutput;
  template <class D, class V>
  static HWY_INLINE V F(D d, V x) {
    return hn::Div(hn::Set(d, hn::TFromD<D>{1}), x);
  }
  template <class D, class V>
  static HWY_INLINE V G(D /*d*/, V y) {
    return hn::Neg(hn::Mul(y, y));
  }
};

// Calls f with the struct of `op`.
template <class Function>
HWY_INLINE void WithUnary(Unary op, const Function& f) {
  switch (op) {
    case Unary::kExp:
      return f(ExpOp());
    case Unary::kLog:
      return f(LogOp());
    case Unary::kTanh:
      return f(TanhOp());
    case Unary::kSigmoid:
      return f(SigmoidOp());
    case Unary::kSoftplus:
      return f(SoftplusOp());
    case Unary::kLogSigmoid:
      return f(LogSigmoidOp());
    case Unary::kSilu:
      return f(SiluOp());
    case Unary::kGeluErf:
      return f(GeluErfOp());
    case Unary::kGeluTanh:
      return f(GeluTanhOp());
    case Unary::kEluPlusOne:
      return f(EluPlusOneOp());
    case Unary::kSqrt:
      return f(SqrtOp());
    case Unary::kSquare:
      return f(SquareOp());
    case Unary::kNeg:
      return f(NegOp());
    case Unary::kReciprocal:
      return f(ReciprocalOp());
  }
}

// y[i] = f(x[i])
template <class Op, class T>
HWY_NOINLINE void UnaryLoop(const T* x, T* y, size_t n) {
  const hn::ScalableTag<T> d;
  ForVectors(d, n, [&](auto partial, size_t i, size_t count) HWY_ATTR {
    constexpr bool kPartial = decltype(partial)::value;
    StoreSome<kPartial>(d, Op::F(d, LoadSome<kPartial>(d, x + i, count)), y + i, count);
  });
}

// dx[i] = or += dy[i] f'(x[i]); `saved` is x or y.
template <class Op, bool kAccumulate, class T>
HWY_NOINLINE void UnaryBackwardLoop(const T* saved, const T* dy, T* dx, size_t n) {
  const hn::ScalableTag<T> d;
  ForVectors(d, n, [&](auto partial, size_t i, size_t count) HWY_ATTR {
    constexpr bool kPartial = decltype(partial)::value;
    auto slope = hn::Zero(d);
    if constexpr (Op::kFrom != From::kNothing) slope = LoadSome<kPartial>(d, saved + i, count);
    slope = Op::G(d, slope);
    const auto g = LoadSome<kPartial>(d, dy + i, count);
    auto result = hn::Mul(g, slope);
    if constexpr (kAccumulate) result = hn::MulAdd(g, slope, LoadSome<kPartial>(d, dx + i, count));
    StoreSome<kPartial>(d, result, dx + i, count);
  });
}

template <class T>
HWY_INLINE void UnaryForward(Unary op, const T* x, T* y, size_t n) {
  WithUnary(op, [&](auto function) { UnaryLoop<decltype(function)>(x, y, n); });
}

template <class T>
HWY_INLINE void UnaryBackward(Unary op, const T* x, const T* y, const T* dy, T* dx, size_t n,
                              bool accumulate) {
  WithUnary(op, [&](auto function) {
    using Op = decltype(function);
    const T* saved = Op::kFrom == From::kOutput ? y : x;
    if (accumulate) {
      UnaryBackwardLoop<Op, true>(saved, dy, dx, n);
    } else {
      UnaryBackwardLoop<Op, false>(saved, dy, dx, n);
    }
  });
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
