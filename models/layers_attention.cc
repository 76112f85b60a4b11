// The softmax layers of patterns.
#include "models/layer_entries.h"
#include "nn/layers/attention.h"
#include "nn/layers/forgetting_attention.h"
#include "nn/layers/mla.h"

namespace storytape::layer_entries {
namespace {

// What full attention and attention in a window have in common.
std::vector<LayerOption> attention_options() {
  return {heads(),
          kv_heads(),
          size("head_dim", "channels of a head (D / heads)", 1, kManyChannels),
          size("rotary", "channels of a head that rotate (head_dim with rope positions, else 0)", 0,
               kManyChannels),
          {"base", Type::kNumber, "of the rotation's angles (10000)", 1, 1e12},
          choice("qk_norm", "RMS norm of queries and keys", {"none", "head", "full"}),
          {"offset", Type::kNumber, "added to the weights of that norm (0)", 0, 1},
          {"eps", Type::kNumber, "of that norm (1e-6)", 1e-30, 1},
          flag("gate", "a sigmoid gate on the output (false)"),
          {"softcap", Type::kNumber, "limit of the scores; 0: none", 0, 1e6},
          flag("bias", "of queries, keys and values (false)"),
          choice("place", "of the block's norms", {"input", "output"})};
}

AttentionConfig attention_config(const Given& g, const ModelConfig& model) {
  AttentionConfig c{};
  c.dim = g.dim();
  c.heads = g.heads();
  c.kv_heads = g.count("kv_heads", 0);
  c.head_dim = g.thin("head_dim");
  c.rotary_dim = g.count("rotary", model.positions == "rope" ? c.head_dim : 0);
  c.rope_base = g.number("base", c.rope_base);
  c.qk_norm = g.is("qk_norm", "head")   ? QkNorm::kHead
              : g.is("qk_norm", "full") ? QkNorm::kFull
                                        : QkNorm::kNone;
  c.norm_offset = g.number("offset", 0);
  c.norm_eps = g.number("eps", c.norm_eps);
  c.gate = g.flag("gate", false);
  c.softcap = g.number("softcap", 0);
  c.bias = g.flag("bias", false);
  return c;
}

}  // namespace

std::vector<Entry> attention_entries() {
  std::vector<Entry> all;
  all.push_back(entry("attention", "softmax attention as in today's models", attention_options(),
                      []<class T>(const Given& g, const ModelConfig& model, ParameterList<T>& p,
                                  const std::string& name) -> Made<T> {
                        return std::make_unique<Attention<T>>(attention_config(g, model), p, name);
                      }));
  std::vector<LayerOption> window = attention_options();
  window.insert(window.begin(), size("size", "tokens that one sees, its own included (64)", 1, kLongContext));
  all.push_back(entry("window", "the same within a sliding window", std::move(window),
                      []<class T>(const Given& g, const ModelConfig& model, ParameterList<T>& p,
                                  const std::string& name) -> Made<T> {
                        AttentionConfig c = attention_config(g, model);
                        c.window = g.count("size", 64);
                        return std::make_unique<Attention<T>>(c, p, name);
                      }));
  all.push_back(entry("fox", "forgetting attention (FoX)",
                      {heads(), kv_heads(), flag("qk_norm", "RMS norm of queries and keys (false)"),
                       flag("gate", "a sigmoid gate on the output (false)")},
                      []<class T>(const Given& g, const ModelConfig&, ParameterList<T>& p,
                                  const std::string& name) -> Made<T> {
                        ForgettingAttentionConfig c{};
                        c.dim = g.dim();
                        c.heads = g.heads();
                        c.kv_heads = g.count("kv_heads", 0);
                        c.qk_norm = g.flag("qk_norm", false);
                        c.gate = g.flag("gate", false);
                        return std::make_unique<ForgettingAttention<T>>(c, p, name);
                      }));
  all.push_back(entry("mla", "multi-head latent attention",
                      {heads(),
                       size("nope", "channels of a head without rotation (D / heads)", 1, kManyChannels),
                       size("rope", "channels shared by all heads (half as many)", 1, kManyChannels),
                       value_dim(),
                       size("latent", "channels of what the cache keeps (D / 4)", 1, kManyChannels),
                       size("query_latent", "0: none", 0, kManyChannels),
                       {"base", Type::kNumber,
                        "of the rotation's angles; 0: none (10000 with rope positions, else 0)", 0, 1e12}},
                      []<class T>(const Given& g, const ModelConfig& model, ParameterList<T>& p,
                                  const std::string& name) -> Made<T> {
                        MlaConfig c{};
                        c.dim = g.dim();
                        c.heads = g.heads();
                        c.nope_dim = g.thin("nope");
                        c.rope_dim = g.count("rope", std::max<size_t>(2, c.nope_dim / 4 * 2));
                        c.value_dim = g.thin("value_dim");
                        c.latent = g.count("latent", std::max<size_t>(1, g.dim() / 4));
                        c.query_latent = g.count("query_latent", 0);
                        c.rope_base = g.number("base", model.positions == "rope" ? 10000 : 0);
                        return std::make_unique<LatentAttention<T>>(c, p, name);
                      }));
  return all;
}

}  // namespace storytape::layer_entries
