#include "nn/kernels/swish_gate.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/swish_gate.cc"
#include "tensor/simd.h"
#include "tensor/simd_targets.h"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tensor/kernels/lanes-inl.h"
#include "tensor/kernels/math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
void SwishT(const T* x, const T* g, T* y, size_t n) {
  const hn::ScalableTag<T> d;
  ForVectors(d, n, [&](auto partial, size_t i, size_t left) HWY_ATTR {
    constexpr bool kPartial = decltype(partial)::value;
    const auto gate = Silu(d, LoadSome<kPartial>(d, g + i, left));
    StoreSome<kPartial>(d, hn::Mul(gate, LoadSome<kPartial>(d, x + i, left)), y + i, left);  // (U1)
  });
}

template <bool kAdd, typename T>
void SwishBackwardX(const T* g, const T* dy, T* dx, size_t n) {
  const hn::ScalableTag<T> d;
  ForVectors(d, n, [&](auto partial, size_t i, size_t left) HWY_ATTR {
    constexpr bool kPartial = decltype(partial)::value;
    const auto gate = Silu(d, LoadSome<kPartial>(d, g + i, left));
    auto v = hn::Mul(LoadSome<kPartial>(d, dy + i, left), gate);  // (U2)
    if constexpr (kAdd) v = hn::Add(v, LoadSome<kPartial>(d, dx + i, left));
    StoreSome<kPartial>(d, v, dx + i, left);
  });
}

template <bool kAdd, typename T>
void SwishBackwardG(const T* x, const T* g, const T* dy, T* dg, size_t n) {
  const hn::ScalableTag<T> d;
  ForVectors(d, n, [&](auto partial, size_t i, size_t left) HWY_ATTR {
    constexpr bool kPartial = decltype(partial)::value;
    const auto slope = SiluGrad(d, LoadSome<kPartial>(d, g + i, left));
    const auto dyx = hn::Mul(LoadSome<kPartial>(d, dy + i, left), LoadSome<kPartial>(d, x + i, left));
    auto v = hn::Mul(dyx, slope);  // (U3)
    if constexpr (kAdd) v = hn::Add(v, LoadSome<kPartial>(d, dg + i, left));
    StoreSome<kPartial>(d, v, dg + i, left);
  });
}

#define STORYTAPE_SWISH(T, S)                                                              \
  void Swish##S(const T* x, const T* g, T* y, size_t n) {                                  \
    SwishT(x, g, y, n);                                                                    \
  }                                                                                        \
  void SwishBackwardX##S(const T* g, const T* dy, T* dx, size_t n, bool add) {             \
    add ? SwishBackwardX<true>(g, dy, dx, n) : SwishBackwardX<false>(g, dy, dx, n);        \
  }                                                                                        \
  void SwishBackwardG##S(const T* x, const T* g, const T* dy, T* dg, size_t n, bool add) { \
    add ? SwishBackwardG<true>(x, g, dy, dg, n) : SwishBackwardG<false>(x, g, dy, dg, n);  \
  }
STORYTAPE_SWISH(float, F)
STORYTAPE_SWISH(double, D)
#undef STORYTAPE_SWISH

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace storytape {
namespace {
HWY_EXPORT(SwishF);
HWY_EXPORT(SwishD);
HWY_EXPORT(SwishBackwardXF);
HWY_EXPORT(SwishBackwardXD);
HWY_EXPORT(SwishBackwardGF);
HWY_EXPORT(SwishBackwardGD);
}  // namespace

#define STORYTAPE_SWISH(T, S)                                                                  \
  template <>                                                                                  \
  void swish_gate_forward(const T* x, const T* g, T* y, size_t n) {                            \
    SIMD_DISPATCH(Swish##S)(x, g, y, n);                                                       \
  }                                                                                            \
  template <>                                                                                  \
  void swish_gate_backward_x(const T* g, const T* dy, T* dx, size_t n, bool add) {             \
    SIMD_DISPATCH(SwishBackwardX##S)(g, dy, dx, n, add);                                       \
  }                                                                                            \
  template <>                                                                                  \
  void swish_gate_backward_g(const T* x, const T* g, const T* dy, T* dg, size_t n, bool add) { \
    SIMD_DISPATCH(SwishBackwardG##S)(x, g, dy, dg, n, add);                                    \
  }
STORYTAPE_SWISH(float, F)
STORYTAPE_SWISH(double, D)
#undef STORYTAPE_SWISH

}  // namespace storytape
#endif  // HWY_ONCE
