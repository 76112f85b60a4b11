#include "nn/kernels/head_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "nn/head_loss.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/head_loss.cc"
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

// f(offset, values there) over a row in steps of a vector; the last step may have fewer values.
template <class D, class F>
HWY_INLINE void EachVector(D d, size_t n, F&& f) {
  const size_t lanes = hn::Lanes(d);
  size_t j = 0;
  for (; j + lanes <= n; j += lanes) f(j, lanes);
  if (j < n) f(j, n - j);
}

template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadSome(D d, const T* p, size_t n) {
  return n == hn::Lanes(d) ? hn::LoadU(d, p) : LoadPartial(d, p, n);
}
template <class D, class V, typename T = hn::TFromD<D>>
HWY_INLINE void StoreSome(D d, V x, T* p, size_t n) {
  if (n == hn::Lanes(d)) {
    hn::StoreU(x, d, p);
  } else {
    StorePartial(d, x, p, n);
  }
}

// Whether every logit of the row is -inf, which leaves no class to choose from: the loss is +inf, as of a
// target that alone is masked, and the row has no gradient. NaN, which a maximum may miss, is told apart here.
template <typename T>
HWY_NOINLINE bool MaskedRow(const HeadTile<T>& tile, size_t r) {
  T* row = tile.logits + r * tile.ld;
  const auto masked = [](T v) { return v == -std::numeric_limits<T>::infinity(); };
  if (!std::all_of(row, row + tile.vocab, masked)) return false;
  tile.loss[r] = std::numeric_limits<double>::infinity();
  if (tile.gradient) std::fill_n(row, tile.vocab, T{0});
  return true;
}

template <typename T>
void TileT(const HeadTile<T>& tile) {
  const hn::ScalableTag<T> d;
  for (size_t r = 0; r < tile.rows; ++r) {
    T* row = tile.logits + r * tile.ld;
    const int32_t target = tile.targets[r];
    if (target == kIgnoreTarget) {
      tile.loss[r] = 0;
      if (tile.gradient) std::fill_n(row, tile.vocab, T{0});
      continue;
    }
    // (H1) the bias, and the row's maximum
    const auto lowest = hn::Set(d, -std::numeric_limits<T>::infinity());
    auto max = lowest;
    EachVector(d, tile.vocab, [&](size_t j, size_t n) HWY_ATTR {
      auto x = LoadSome(d, row + j, n);
      if (tile.bias) {
        x = hn::Add(x, LoadSome(d, tile.bias + j, n));
        StoreSome(d, x, row + j, n);
      }
      max = hn::Max(max, n == hn::Lanes(d) ? x : hn::IfThenElse(hn::FirstN(d, n), x, lowest));
    });
    const T top = LargestLane(d, max);
    if (top == -std::numeric_limits<T>::infinity() && MaskedRow(tile, r)) continue;
    const T target_logit = row[target];
    // (H2) log-sum-exp from the maximum
    const auto shift = hn::Set(d, top);
    auto sums = hn::Zero(d);
    EachVector(d, tile.vocab, [&](size_t j, size_t n) HWY_ATTR {
      const auto e = ExpNonPositive(d, hn::Sub(LoadSome(d, row + j, n), shift));
      sums = hn::Add(sums, n == hn::Lanes(d) ? e : hn::IfThenElseZero(hn::FirstN(d, n), e));
      if (tile.gradient) StoreSome(d, e, row + j, n);
    });
    const double sum = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sums)));
    tile.loss[r] = std::log(sum) + (static_cast<double>(top) - static_cast<double>(target_logit));
    if (!tile.gradient) continue;
    // (H3) dl = scale·softmax, minus scale at the target    (H6) db += dl
    const auto factor = hn::Set(d, static_cast<T>(static_cast<double>(tile.scale) / sum));
    EachVector(d, tile.vocab, [&](size_t j, size_t n) HWY_ATTR {
      const auto dl = hn::Mul(LoadSome(d, row + j, n), factor);
      StoreSome(d, dl, row + j, n);
      if (tile.db) StoreSome(d, hn::Add(LoadSome(d, tile.db + j, n), dl), tile.db + j, n);
    });
    row[target] -= tile.scale;
    if (tile.db) tile.db[target] -= tile.scale;
  }
}

void TileF(const HeadTile<float>& tile) {
  TileT(tile);
}
void TileD(const HeadTile<double>& tile) {
  TileT(tile);
}

}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace storytape {
namespace {
HWY_EXPORT(TileF);
HWY_EXPORT(TileD);
}  // namespace

template <>
void head_tile(const HeadTile<float>& tile) {
  SIMD_DISPATCH(TileF)(tile);
}
template <>
void head_tile(const HeadTile<double>& tile) {
  SIMD_DISPATCH(TileD)(tile);
}

}  // namespace storytape
#endif  // HWY_ONCE
