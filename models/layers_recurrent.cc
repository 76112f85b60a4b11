// The recurrent layers of patterns.
#include "models/layer_entries.h"
#include "nn/layers/deltanet.h"
#include "nn/layers/gated_deltanet.h"
#include "nn/layers/gated_deltaproduct.h"
#include "nn/layers/gla.h"
#include "nn/layers/kda.h"
#include "nn/layers/mamba2.h"
#include "nn/layers/retention.h"
#include "nn/layers/rwkv4.h"

namespace storytape::layer_entries {

std::vector<Entry> recurrent_entries() {
  std::vector<Entry> all;
  all.push_back(
      entry("retention", "multi-scale retention (RetNet)",
            {heads(), kv_heads(), key_dim(), value_dim(), choice("norm", "behind the core", {"rms", "group"}),
             flag("rotate", "queries and keys (true)")},
            []<class T>(const Given& g, const ModelConfig&, ParameterList<T>& p,
                        const std::string& name) -> Made<T> {
              RetentionConfig c{};
              c.dim = g.dim();
              c.heads = g.heads();
              c.kv_heads = g.count("kv_heads", 0);
              c.key_dim = g.thin("key_dim");
              c.value_dim = g.thin("value_dim");
              c.group_norm = g.is("norm", "group");
              c.rotation = g.flag("rotate", true);
              return std::make_unique<Retention<T>>(c, p, name);
            }));
  all.push_back(entry("gla", "gated linear attention",
                      {heads(),
                       kv_heads(),
                       key_dim(),
                       value_dim(),
                       size("rank", "of the map to the decay (16)", 1, kManyChannels),
                       {"tau", Type::kNumber, "temperature of the decay (16)", 0x1p-10, 1e6},
                       conv(),
                       gate()},
                      []<class T>(const Given& g, const ModelConfig&, ParameterList<T>& p,
                                  const std::string& name) -> Made<T> {
                        GlaConfig c{};
                        c.dim = g.dim();
                        c.heads = g.heads();
                        c.kv_heads = g.count("kv_heads", 0);
                        c.key_dim = g.share("key_dim", std::max<size_t>(g.dim() / 2, g.heads()));
                        c.value_dim = g.thin("value_dim");
                        c.rank = g.count("rank", 16);
                        c.tau = g.number("tau", 16);
                        c.convolution.width = g.count("conv", c.convolution.width);
                        c.gate = g.gate(c.gate);
                        return std::make_unique<GatedLinearAttention<T>>(c, p, name);
                      }));
  all.push_back(entry("deltanet", "DeltaNet", {heads(), key_dim(), value_dim(), conv(), gate(), beta()},
                      []<class T>(const Given& g, const ModelConfig&, ParameterList<T>& p,
                                  const std::string& name) -> Made<T> {
                        DeltaNetConfig c{g.dim(), g.heads(), g.thin("key_dim"), g.thin("value_dim")};
                        c.convolution = convolution(g, c.convolution);
                        c.gate = g.gate(c.gate);
                        c.beta_scale = g.number("beta", c.beta_scale);
                        return std::make_unique<DeltaNet<T>>(c, p, name);
                      }));
  all.push_back(entry("gated_deltanet", "Gated DeltaNet (Qwen3-Next, OLMo hybrid)",
                      {heads(), key_heads(), key_dim(), value_dim(), conv(), gate(), beta(), norm_eps()},
                      []<class T>(const Given& g, const ModelConfig&, ParameterList<T>& p,
                                  const std::string& name) -> Made<T> {
                        GatedDeltaNetConfig c{g.dim(), g.count("key_heads", g.heads()), g.heads(),
                                              g.thin("key_dim"), g.thin("value_dim")};
                        c.convolution = convolution(g, c.convolution);
                        c.gate = g.gate(c.gate);
                        c.beta_scale = g.number("beta", c.beta_scale);
                        c.norm_eps = g.number("eps", c.norm_eps);
                        return std::make_unique<GatedDeltaNet<T>>(c, p, name);
                      }));
  all.push_back(entry("kda", "Kimi delta attention",
                      {heads(), key_heads(), key_dim(), value_dim(),
                       size("rank", "of the maps to decay and gate (value_dim)", 1, kManyChannels), conv(),
                       beta(), norm_eps()},
                      []<class T>(const Given& g, const ModelConfig&, ParameterList<T>& p,
                                  const std::string& name) -> Made<T> {
                        KdaConfig c{g.dim(), g.count("key_heads", g.heads()), g.heads(), g.thin("key_dim"),
                                    g.thin("value_dim")};
                        c.rank = g.count("rank", 0);
                        c.convolution = convolution(g, c.convolution);
                        c.beta_scale = g.number("beta", c.beta_scale);
                        c.norm_eps = g.number("eps", c.norm_eps);
                        return std::make_unique<KimiDeltaAttention<T>>(c, p, name);
                      }));
  all.push_back(
      entry("deltaproduct", "Gated DeltaProduct",
            {heads(), key_heads(), key_dim(), value_dim(), size("steps", "writes per token (2)", 1, 64),
             flag("forget", "a scalar gate per token (true)"), conv(), gate(), beta()},
            []<class T>(const Given& g, const ModelConfig&, ParameterList<T>& p,
                        const std::string& name) -> Made<T> {
              GatedDeltaProductConfig c{g.dim(), g.count("key_heads", g.heads()), g.heads(),
                                        g.thin("key_dim"), g.thin("value_dim")};
              c.steps = g.count("steps", c.steps);
              c.forget = g.flag("forget", true);
              c.convolution = convolution(g, c.convolution);
              c.gate = g.gate(c.gate);
              c.beta_scale = g.number("beta", c.beta_scale);
              return std::make_unique<GatedDeltaProduct<T>>(c, p, name);
            }));
  all.push_back(entry("mamba2", "Mamba-2",
                      {heads(), size("head_dim", "channels of a head (D / heads)", 1, kManyChannels),
                       size("state", "channels of the state's keys (head_dim)", 1, kManyChannels),
                       size("groups", "of keys and queries, a divisor of heads (1)", 1, kManyHeads), conv()},
                      []<class T>(const Given& g, const ModelConfig&, ParameterList<T>& p,
                                  const std::string& name) -> Made<T> {
                        Mamba2Config c{g.dim(), g.heads(), g.thin("head_dim"), 0};
                        c.state_dim = g.count("state", c.head_dim);
                        c.groups = g.count("groups", 1);
                        c.convolution = convolution(g, c.convolution);
                        return std::make_unique<Mamba2<T>>(c, p, name);
                      }));
  all.push_back(entry("rwkv4", "RWKV-4's time mix", {},
                      []<class T>(const Given& g, const ModelConfig& model, ParameterList<T>& p,
                                  const std::string& name) -> Made<T> {
                        TimeMixConfig c{};
                        c.dim = g.dim();
                        c.place = {g.index(), model.layers()};
                        return std::make_unique<TimeMix<T>>(c, p, name);
                      }));
  return all;
}

}  // namespace storytape::layer_entries
