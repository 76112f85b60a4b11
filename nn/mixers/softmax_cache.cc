// Softmax attention one call after another over cached keys and values.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "nn/mixers/kernels/softmax_attention.h"
#include "nn/mixers/softmax_attention.h"

namespace storytape {
namespace {

// Fewer queries than this go row by row. Measured over 256 and 2048 keys of 32 and 64 channels, AVX-512 and
// AVX2: with 2 queries rows take 0.3 to 0.7 of the time of tiles, with 4 0.8 to 1.5, with 6 at least 1.15.
constexpr size_t kTileQueries = 4;
constexpr size_t kSmallestCapacity = 16;

// Tokens [first, last) of `from`, [B, rows, heads, size], token t in row (t - base) % rows, to row t %
// capacity of `to`.
template <class T>
void copy_tokens(const Tensor<T>& from, size_t base, size_t first, size_t last, Tensor<T>& to) {
  const size_t batch = to.size(0), capacity = to.size(1), rows = from.size(1);
  const size_t width = to.size(2) * to.size(3);
  T* out = to.data();
  for (size_t b = 0; b < batch; ++b) {
    for (size_t t = first; t < last; ++t) {
      std::copy_n(from.data() + (b * rows + (t - base) % rows) * width, width,
                  out + (b * capacity + t % capacity) * width);
    }
  }
}

// Room for `rows` tokens; the last `kept` of the tokens before `length` are taken along.
template <class T>
void reserve(Tensor<T>& cache, size_t rows, size_t length, size_t kept, size_t window) {
  const size_t capacity = cache.size(1);
  if (rows <= capacity) return;
  size_t grown = std::max(2 * capacity, kSmallestCapacity);
  if (window) grown = std::min(grown, window);
  Tensor<T> larger({cache.size(0), std::max(rows, grown), cache.size(2), cache.size(3)});
  if (kept) copy_tokens(std::as_const(cache), 0, length - kept, length, larger);
  cache = std::move(larger);
}

template <class T>
void check(const Tensor<T>& cache, const char* name, const Tensor<T>& x) {
  if (x.rank() != 4 || x.size() == 0) {
    fail("softmax_attention: {} wants [batch, tokens, heads, size], at least one of each, got {}", name,
         to_string(x.shape()));
  }
  if (cache.size(0) != x.size(0) || cache.size(2) != x.size(2) || cache.size(3) != x.size(3)) {
    fail("softmax_attention: {} is {}, the cache holds [{}, tokens, {}, {}]", name, to_string(x.shape()),
         cache.size(0), cache.size(2), cache.size(3));
  }
}

// Where values or forget gates lie; null in a state that was made without.
template <class T>
Tensor<T>* find(State<T>& cache, std::string_view name) {
  for (const auto& entry : cache.tensors()) {
    if (entry.first == name) return &cache[name];
  }
  return nullptr;
}

}  // namespace

template <class T>
State<T> softmax_attention_state(size_t batch, size_t kv_heads, size_t dk, size_t dv, size_t gate_heads) {
  State<T> state;
  state.add("k", Tensor<T>({batch, 0, kv_heads, dk}));
  if (dv) state.add("v", Tensor<T>({batch, 0, kv_heads, dv}));
  if (gate_heads) state.add("log_f", Tensor<T>({batch, 0, gate_heads, 1}));
  return state;
}

template <class T>
Tensor<T> softmax_attention_extend(State<T>& cache, const Tensor<T>& q, const Tensor<T>& k,
                                   const Tensor<T>& v, const SoftmaxAttentionOptions& options,
                                   const Tensor<T>& log_f) {
  Tensor<T>& keys = cache["k"];
  Tensor<T>* values = find(cache, "v");
  Tensor<T>* gates = find(cache, "log_f");
  check(keys, "k", k);
  if (v.defined() != (values != nullptr)) {
    fail("softmax_attention: v is {}given, the cache was made {} values", values ? "not " : "",
         values ? "for" : "without");
  }
  const Tensor<T>& fresh_values = values ? v : k;
  if (values) check(*values, "v", v);
  const size_t batch = k.size(0), tokens = k.size(1), kv_heads = k.size(2), dk = k.size(3);
  const size_t dv = fresh_values.size(3);
  if (q.rank() != 4 || q.size(0) != batch || q.size(1) != tokens || q.size(3) != dk ||
      fresh_values.size(1) != tokens) {
    fail("softmax_attention: q {}, k {} and v {} don't fit together", to_string(q.shape()),
         to_string(k.shape()), to_string(fresh_values.shape()));
  }
  const size_t heads = q.size(2);
  if (heads == 0 || heads % kv_heads != 0) {
    fail("softmax_attention: {} query heads can't share {} key and value heads evenly", heads, kv_heads);
  }
  const Shape want_f{batch, tokens, heads};
  if (log_f.defined() != (gates != nullptr)) {
    fail("softmax_attention: log_f is {}given, the cache was made {} forget gates", gates ? "not " : "",
         gates ? "for" : "without");
  }
  if (gates && (!(log_f.shape() == want_f) || gates->size(2) != heads)) {
    fail("softmax_attention: log_f is {}, wanted {}, the cache holds gates of {} heads",
         to_string(log_f.shape()), to_string(want_f), gates->size(2));
  }
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(dk)));
  if (!std::isfinite(scale)) fail("softmax_attention: the scale is {}, wanted a finite number", scale);
  const double softcap = internal::checked_softcap(options.softcap, gates != nullptr);

  const size_t length = cache.length;
  const size_t kept = options.window ? std::min(length, options.window - 1) : length;
  if (kept > keys.size(1)) {
    fail("softmax_attention: {} earlier tokens are wanted, the cache holds {}", kept, keys.size(1));
  }
  Tensor<T> o({batch, tokens, heads, dv});
  reserve(keys, kept + tokens, length, kept, options.window);
  copy_tokens(k, length, length, length + tokens, keys);
  if (values) {
    reserve(*values, kept + tokens, length, kept, options.window);
    copy_tokens(v, length, length, length + tokens, *values);
  }
  if (gates) {
    reserve(*gates, kept + tokens, length, kept, options.window);
    copy_tokens(log_f.reshape({batch, tokens, heads, 1}), length, length, length + tokens, *gates);
  }

  SoftmaxAttentionArgs<T> args{};
  args.batch = batch;
  args.heads = heads;
  args.kv_heads = kv_heads;
  args.queries = tokens;
  args.keys = length + tokens;
  args.dk = dk;
  args.dv = dv;
  args.offset = length;
  args.window = options.window;
  args.scale = static_cast<T>(scale);
  args.softcap = static_cast<T>(softcap);
  args.q = q.data();
  args.k = std::as_const(keys).data();
  args.v = values ? std::as_const(*values).data() : args.k;
  args.q_rows = tokens;
  args.kv_rows = keys.size(1);
  if (gates) args.log_f = std::as_const(*gates).data();
  if (tokens < kTileQueries) {
    softmax_attention_rows_forward(args, o.data());
  } else {
    softmax_attention_forward(args, o.data(), SoftmaxAttentionStats<T>{});
  }
  cache.length = length + tokens;
  return o;
}

template <class T>
size_t softmax_attention_bytes(const State<T>& cache, size_t window) {
  const size_t tokens = window ? std::min(cache.length, window - 1) : cache.length;
  size_t bytes = 0;
  for (const auto& [name, tensor] : cache.tensors()) {
    bytes += tokens * tensor.size(0) * tensor.size(2) * tensor.size(3) * sizeof(T);
  }
  return bytes;
}

#define STORYTAPE_SOFTMAX_CACHE(T)                                                              \
  template State<T> softmax_attention_state(size_t, size_t, size_t, size_t, size_t);            \
  template Tensor<T> softmax_attention_extend(State<T>&, const Tensor<T>&, const Tensor<T>&,    \
                                              const Tensor<T>&, const SoftmaxAttentionOptions&, \
                                              const Tensor<T>&);                                \
  template size_t softmax_attention_bytes(const State<T>&, size_t);
STORYTAPE_SOFTMAX_CACHE(float)
STORYTAPE_SOFTMAX_CACHE(double)
#undef STORYTAPE_SOFTMAX_CACHE

}  // namespace storytape
