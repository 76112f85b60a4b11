// Softmax attention query by query, per target: the definition, with lanes along a row's channels. Tags (A..)
// are those of nn/mixers/softmax_attention.h; nothing here is shared with the tiles but loads and stores of
// rows, and the bound of a gate.

#if defined(STORYTAPE_SOFTMAX_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STORYTAPE_SOFTMAX_ROWS_INL_H_
#undef STORYTAPE_SOFTMAX_ROWS_INL_H_
#else
#define STORYTAPE_SOFTMAX_ROWS_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "nn/mixers/kernels/softmax_forget-inl.h"
#include "tensor/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace storytape {
namespace HWY_NAMESPACE {
namespace attention {
namespace hn = hwy::HWY_NAMESPACE;

// Keys [first, last) that a query sees.
struct SeenKeys {
  size_t first, last;
  template <typename T>
  SeenKeys(const SoftmaxAttentionArgs<T>& a, size_t i) {
    const size_t end = a.offset + i + 1;
    last = std::min(a.keys, end);
    first = std::min(last, a.window && end > a.window ? end - a.window : 0);
  }
};

// visit(row, count, done) for the rows of a ring in which keys [seen.first, seen.last) lie: one run of rows,
// or two.
template <class Visit>
HWY_INLINE void ForRuns(const SeenKeys& seen, size_t ring, Visit visit) {
  for (size_t j = seen.first; j < seen.last;) {
    const size_t row = j % ring;
    const size_t count = std::min(seen.last - j, ring - row);
    visit(row, count, j - seen.first);
    j += count;
  }
}

// s[j] = factor · <x, rows[j]>, rows `ld` apart. Four rows at a time, so that their sums overlap.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void DotRows(D d, size_t count, size_t width, T factor, const T* x, const T* rows, size_t ld,
                        T* s) {
  const size_t lanes = hn::Lanes(d);
  const size_t whole = width / lanes * lanes;
  const size_t left = width - whole;
  size_t j = 0;
  for (; j + 4 <= count; j += 4) {
    const T* r = rows + j * ld;
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    for (size_t i = 0; i < whole; i += lanes) {
      const auto xi = hn::LoadU(d, x + i);
      s0 = hn::MulAdd(xi, hn::LoadU(d, r + i), s0);
      s1 = hn::MulAdd(xi, hn::LoadU(d, r + ld + i), s1);
      s2 = hn::MulAdd(xi, hn::LoadU(d, r + 2 * ld + i), s2);
      s3 = hn::MulAdd(xi, hn::LoadU(d, r + 3 * ld + i), s3);
    }
    if (left) {
      const auto xi = LoadPartial(d, x + whole, left);
      s0 = hn::MulAdd(xi, LoadPartial(d, r + whole, left), s0);
      s1 = hn::MulAdd(xi, LoadPartial(d, r + ld + whole, left), s1);
      s2 = hn::MulAdd(xi, LoadPartial(d, r + 2 * ld + whole, left), s2);
      s3 = hn::MulAdd(xi, LoadPartial(d, r + 3 * ld + whole, left), s3);
    }
    s[j] = factor * hn::GetLane(hn::SumOfLanes(d, s0));
    s[j + 1] = factor * hn::GetLane(hn::SumOfLanes(d, s1));
    s[j + 2] = factor * hn::GetLane(hn::SumOfLanes(d, s2));
    s[j + 3] = factor * hn::GetLane(hn::SumOfLanes(d, s3));
  }
  for (; j < count; ++j) s[j] = factor * Dot(d, width, x, rows + j * ld);
}

// One vector of y += Σ_j w[j] · rows[j], its first `width` lanes. Even and odd rows have sums of their own.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void AddWeighted(D d, size_t count, size_t width, const T* w, const T* rows, size_t ld, T* y) {
  auto even = LoadPartial(d, y, width);
  auto odd = hn::Zero(d);
  size_t j = 0;
  for (; j + 2 <= count; j += 2, rows += 2 * ld) {
    even = hn::MulAdd(hn::Set(d, w[j]), LoadPartial(d, rows, width), even);
    odd = hn::MulAdd(hn::Set(d, w[j + 1]), LoadPartial(d, rows + ld, width), odd);
  }
  if (j < count) even = hn::MulAdd(hn::Set(d, w[j]), LoadPartial(d, rows, width), even);
  StorePartial(d, hn::Add(even, odd), y, width);
}

// y[width] += Σ_j w[j] · rows[j].
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void AddWeightedRows(D d, size_t count, size_t width, const T* w, const T* rows, size_t ld, T* y) {
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < width; i += lanes) {
    AddWeighted(d, count, std::min(lanes, width - i), w, rows + i, ld, y + i);
  }
}

// y[width] += a · x.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void AddRow(D d, size_t width, T a, const T* x, T* y) {
  const auto factor = hn::Set(d, a);
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < width; i += lanes) {
    const size_t n = std::min(lanes, width - i);
    StorePartial(d, hn::MulAdd(factor, LoadPartial(d, x + i, n), LoadPartial(d, y + i, n)), y + i, n);
  }
}

// s[j] capped by c, in place; slope, if not null, gets the cap's derivative.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void CapLogits(D d, size_t n, T c, T* s, T* slope) {
  const size_t lanes = hn::Lanes(d);
  for (size_t j = 0; j < n; j += lanes) {
    const size_t count = std::min(lanes, n - j);
    const auto x = hn::Div(LoadPartial(d, s + j, count), hn::Set(d, c));
    StorePartial(d, hn::Mul(hn::Set(d, c), Tanh(d, x)), s + j, count);  // (A17)
    if (slope) StorePartial(d, TanhGrad(d, x), slope + j, count);
  }
}

// Logits to weights exp(s - max), n of them; returns their sum, 0 for none.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE T Weigh(D d, size_t n, T* s) {
  const size_t lanes = hn::Lanes(d);
  T largest = -std::numeric_limits<T>::infinity();
  for (size_t j = 0; j < n; ++j) largest = std::max(largest, s[j]);  // (A2)
  const auto m = hn::Set(d, largest == -std::numeric_limits<T>::infinity() ? T{0} : largest);
  auto sum = hn::Zero(d);
  for (size_t j = 0; j < n; j += lanes) {
    const size_t count = std::min(lanes, n - j);
    auto p = ExpNonPositive(d, hn::Sub(LoadPartial(d, s + j, count), m));
    p = hn::IfThenElseZero(hn::FirstN(d, count), p);
    StorePartial(d, p, s + j, count);
    sum = hn::Add(sum, p);  // (A3)
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// s[j] += Σ log_f_l over l from the key after j to the query, (A14): added up from the query back, in double, so
// that every sum is its segment's alone. By fours, so that one sum in four waits for the one before.
template <typename T>
HWY_INLINE void AddGates(const SoftmaxAttentionArgs<T>& a, const SeenKeys& seen, size_t b, size_t h, T* s) {
  const T* gates = a.log_f + b * a.kv_rows * a.heads + h;
  size_t row = seen.last % a.kv_rows;
  const auto gate_before = [&] {
    row = (row ? row : a.kv_rows) - 1;
    return static_cast<double>(BoundedGate(gates[row * a.heads]));
  };
  double sum = 0;
  size_t j = seen.last - seen.first;
  for (; j >= 4; j -= 4) {
    const double g3 = gate_before(), g2 = g3 + gate_before(), g1 = g2 + gate_before();
    s[j - 1] += static_cast<T>(sum);
    s[j - 2] += static_cast<T>(sum + g3);
    s[j - 3] += static_cast<T>(sum + g2);
    s[j - 4] += static_cast<T>(sum + g1);
    sum += g1 + gate_before();
  }
  for (; j > 0; --j) {
    s[j - 1] += static_cast<T>(sum);
    sum += gate_before();
  }
}

template <typename T>
size_t SeenAtOnce(const SoftmaxAttentionArgs<T>& a) {
  return a.window ? std::min(a.window, a.keys) : a.keys;
}

template <typename T>
void RowsForwardT(const SoftmaxAttentionArgs<T>& a, T* o) {
  const hn::ScalableTag<T> d;
  const size_t group = a.heads / a.kv_heads;
  const Scratch<T> memory(SeenAtOnce(a));
  T* const s = memory.data();
  for (size_t b = 0; b < a.batch; ++b) {
    for (size_t h = 0; h < a.heads; ++h) {
      const size_t kv = b * a.kv_rows * a.kv_heads + h / group;
      for (size_t i = 0; i < a.queries; ++i) {
        const size_t row = (b * a.q_rows + i) * a.heads + h;
        const SeenKeys seen(a, i);
        ForRuns(seen, a.kv_rows, [&](size_t first, size_t count, size_t done) HWY_ATTR {
          DotRows(d, count, a.dk, a.scale, a.q + row * a.dk, a.k + (kv + first * a.kv_heads) * a.dk,
                  a.kv_heads * a.dk, s + done);  // (A1)
        });
        if (a.log_f) AddGates(a, seen, b, h, s);
        if (a.softcap != 0) CapLogits(d, seen.last - seen.first, a.softcap, s, static_cast<T*>(nullptr));
        const T sum = Weigh(d, seen.last - seen.first, s);
        T* to = o + row * a.dv;
        std::fill_n(to, a.dv, T{0});
        if (sum == T{0}) continue;
        ForRuns(seen, a.kv_rows, [&](size_t first, size_t count, size_t done) HWY_ATTR {
          AddWeightedRows(d, count, a.dv, s + done, a.v + (kv + first * a.kv_heads) * a.dv, a.kv_heads * a.dv,
                          to);
        });
        for (size_t c = 0; c < a.dv; ++c) to[c] /= sum;  // (A4)
      }
    }
  }
}

// Sums over queries of one head's keys, added to or set in the gradient.
template <typename T>
HWY_INLINE void WriteSums(size_t keys, size_t width, T factor, const T* from,
                          const SoftmaxAttentionGrad<T>& grad, size_t first, size_t ld) {
  if (!grad.data) return;
  for (size_t j = 0; j < keys; ++j) {
    T* to = grad.data + first + j * ld;
    for (size_t c = 0; c < width; ++c) {
      const T x = factor * from[j * width + c];
      to[c] = grad.add ? to[c] + x : x;
    }
  }
}

template <typename T>
void RowsBackwardT(const SoftmaxAttentionArgs<T>& a, const T* d_o, const SoftmaxAttentionGrads<T>& grads) {
  const hn::ScalableTag<T> d;
  const size_t group = a.heads / a.kv_heads;
  const Scratch<T> p_memory(SeenAtOnce(a)), ds_memory(SeenAtOnce(a));
  const Scratch<T> dq_memory(a.dk), dk_memory(a.keys * a.dk), dv_memory(a.keys * a.dv);
  const Scratch<T> slope_memory(a.softcap != 0 ? SeenAtOnce(a) : 0);
  T* const slope = slope_memory.data();
  const Scratch<T> gate_memory(a.log_f ? a.keys : 0);
  T* const d_gates = gate_memory.data();
  T* const p = p_memory.data();
  T* const ds = ds_memory.data();
  T* const dq_row = dq_memory.data();
  for (size_t bg = 0; bg < a.batch * a.kv_heads; ++bg) {
    const size_t b = bg / a.kv_heads;
    const size_t kv_head = bg % a.kv_heads;
    const size_t kv = b * a.kv_rows * a.kv_heads + kv_head;
    std::fill_n(dk_memory.data(), a.keys * a.dk, T{0});
    std::fill_n(dv_memory.data(), a.keys * a.dv, T{0});
    for (size_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      if (a.log_f) std::fill_n(d_gates, a.keys, T{0});
      for (size_t i = 0; i < a.queries; ++i) {
        const size_t row = (b * a.q_rows + i) * a.heads + h;
        const SeenKeys seen(a, i);
        const size_t n = seen.last - seen.first;
        const T* q = a.q + row * a.dk;
        const T* g = d_o + row * a.dv;
        const T* k = a.k + (kv + seen.first * a.kv_heads) * a.dk;
        const T* v = a.v + (kv + seen.first * a.kv_heads) * a.dv;
        DotRows(d, n, a.dk, a.scale, q, k, a.kv_heads * a.dk, p);  // (A1)
        if (a.log_f) AddGates(a, seen, b, h, p);
        if (a.softcap != 0) CapLogits(d, n, a.softcap, p, slope);
        DotRows(d, n, a.dv, T{1}, g, v, a.kv_heads * a.dv, ds);  // <do_i, v_j>
        const T sum = Weigh(d, n, p);
        const T inverse = sum == T{0} ? T{0} : T{1} / sum;
        T delta = 0;
        for (size_t j = 0; j < n; ++j) {
          p[j] *= inverse;        // (A8)
          delta += p[j] * ds[j];  // (A9): <do_i, o_i> = Σ_j p_ij <do_i, v_j>
        }
        for (size_t j = 0; j < n; ++j) ds[j] = p[j] * (ds[j] - delta);       // (A11)
        for (size_t j = 0; a.softcap != 0 && j < n; ++j) ds[j] *= slope[j];  // (A18)
        for (size_t j = 0; j < n; ++j) {
          AddRow(d, a.dv, p[j], g, dv_memory.data() + (seen.first + j) * a.dv);   // (A10)
          AddRow(d, a.dk, ds[j], q, dk_memory.data() + (seen.first + j) * a.dk);  // (A13)
        }
        if (a.log_f) {
          T prefix = 0;
          for (size_t j = 0; j + 1 < n; ++j) {
            prefix += ds[j];                        // (A15)
            d_gates[seen.first + j + 1] += prefix;  // (A16)
          }
        }
        if (!grads.q.data) continue;
        std::fill_n(dq_row, a.dk, T{0});
        AddWeightedRows(d, n, a.dk, ds, k, a.kv_heads * a.dk, dq_row);  // (A12)
        WriteSums(1, a.dk, a.scale, dq_row, grads.q, row * a.dk, a.dk);
      }
      if (a.log_f) WriteSums(a.keys, 1, T{1}, d_gates, grads.log_f, b * a.kv_rows * a.heads + h, a.heads);
    }
    WriteSums(a.keys, a.dk, a.scale, dk_memory.data(), grads.k, kv * a.dk, a.kv_heads * a.dk);
    WriteSums(a.keys, a.dv, T{1}, dv_memory.data(), grads.v, kv * a.dv, a.kv_heads * a.dv);
  }
}

}  // namespace attention
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace storytape
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
