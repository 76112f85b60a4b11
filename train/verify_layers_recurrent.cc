// Golden cases of the layers around the linear and recurrent cores.
#include <cmath>

#include "nn/layers/deltanet.h"
#include "nn/layers/gated_deltanet.h"
#include "nn/layers/gated_deltaproduct.h"
#include "nn/layers/gla.h"
#include "nn/layers/kda.h"
#include "nn/layers/mamba2.h"
#include "nn/layers/retention.h"
#include "train/verify_layers.h"

namespace storytape {
namespace {

template <class T>
size_t count(const GoldenRun<T>& r, const char* attribute) {
  return static_cast<size_t>(r.golden.number(attribute));
}

template <class T>
ConvolutionConfig convolution(const GoldenRun<T>& r, const char* bias, bool silu_alone = true) {
  return {count(r, "conv"), r.has(bias), silu_alone};
}

template <class T>
OutputGate gate_of(const GoldenRun<T>& r) {
  const std::string name = r.golden.text("gate");
  if (name == "none") return OutputGate::kNone;
  if (name == "silu") return OutputGate::kSilu;
  if (name == "sigmoid") return OutputGate::kSigmoid;
  fail("a gate \"{}\" is not known", name);
}

template <template <class> class L, class T, class Config>
GoldenLayer<T> layer_of(const Config& config, ParameterList<T>& parameters, const std::string& name,
                        size_t seen = 0) {
  GoldenLayer<T> golden;
  golden.layer = std::make_unique<L<T>>(config, parameters, name);
  golden.seen = seen;
  return golden;
}

struct MakeGatedDeltaNet {
  template <class T>
  GoldenLayer<T> operator()(const GoldenRun<T>& r, ParameterList<T>& parameters,
                            const std::string& name) const {
    GatedDeltaNetConfig config{.dim = r.shape("x")[2],
                               .key_heads = count(r, "H_k"),
                               .value_heads = count(r, "H_v"),
                               .key_dim = count(r, "d_k"),
                               .value_dim = count(r, "d_v")};
    config.convolution = convolution(r, "conv_q_b");
    config.gate = gate_of(r);
    config.beta_scale = r.golden.number("beta_scale");
    config.norm_eps = r.golden.number("norm_eps");
    return layer_of<GatedDeltaNet, T>(config, parameters, name);
  }
};

struct MakeKda {
  template <class T>
  GoldenLayer<T> operator()(const GoldenRun<T>& r, ParameterList<T>& parameters,
                            const std::string& name) const {
    KdaConfig config{.dim = r.shape("x")[2],
                     .key_heads = count(r, "H_k"),
                     .value_heads = count(r, "H_v"),
                     .key_dim = count(r, "d_k"),
                     .value_dim = count(r, "d_v")};
    config.rank = r.shape("W_f1")[1];
    config.convolution = convolution(r, "conv_q_b");
    config.gate_bias = r.has("b_g2");
    config.beta_scale = r.golden.number("beta_scale");
    config.lower_bound = r.golden.number("lower_bound");
    config.norm_eps = r.golden.number("norm_eps");
    return layer_of<KimiDeltaAttention, T>(config, parameters, name);
  }
};

struct MakeDeltaNet {
  template <class T>
  GoldenLayer<T> operator()(const GoldenRun<T>& r, ParameterList<T>& parameters,
                            const std::string& name) const {
    DeltaNetConfig config{.dim = r.shape("x")[2],
                          .heads = count(r, "H"),
                          .key_dim = count(r, "d_k"),
                          .value_dim = count(r, "d_v")};
    config.convolution = convolution(r, "conv_q_b");
    config.gate = r.has("W_g") ? OutputGate::kSilu : OutputGate::kNone;
    config.beta_scale = r.golden.number("beta_scale");
    config.norm_eps = r.golden.number("norm_eps");
    return layer_of<DeltaNet, T>(config, parameters, name);
  }
};

struct MakeGatedDeltaProduct {
  template <class T>
  GoldenLayer<T> operator()(const GoldenRun<T>& r, ParameterList<T>& parameters,
                            const std::string& name) const {
    GatedDeltaProductConfig config{.dim = r.shape("x")[2],
                                   .key_heads = count(r, "H_k"),
                                   .value_heads = count(r, "H_v"),
                                   .key_dim = count(r, "d_k"),
                                   .value_dim = count(r, "d_v")};
    config.steps = count(r, "n_h");
    config.convolution = convolution(r, "conv_q_b");
    config.forget = r.has("W_a");
    config.gate = r.has("W_g") ? OutputGate::kSilu : OutputGate::kNone;
    config.beta_scale = r.golden.number("beta_scale");
    config.norm_eps = r.golden.number("norm_eps");
    return layer_of<GatedDeltaProduct, T>(config, parameters, name);
  }
};

struct MakeGla {
  template <class T>
  GoldenLayer<T> operator()(const GoldenRun<T>& r, ParameterList<T>& parameters,
                            const std::string& name) const {
    GlaConfig config{.dim = r.shape("x")[2],
                     .heads = count(r, "H"),
                     .kv_heads = count(r, "H_kv"),
                     .key_dim = count(r, "d_k"),
                     .value_dim = count(r, "d_v")};
    config.rank = r.shape("W_gk1")[1];
    config.tau = r.golden.number("tau");
    config.convolution = convolution(r, "conv_q_b", false);
    config.norm_eps = r.golden.number("norm_eps");
    return layer_of<GatedLinearAttention, T>(config, parameters, name);
  }
};

struct MakeRetention {
  template <class T>
  GoldenLayer<T> operator()(const GoldenRun<T>& r, ParameterList<T>& parameters,
                            const std::string& name) const {
    RetentionConfig config{.dim = r.shape("x")[2],
                           .heads = count(r, "H"),
                           .kv_heads = count(r, "H_kv"),
                           .key_dim = count(r, "d_k"),
                           .value_dim = count(r, "d_v")};
    config.group_norm = r.golden.text("norm") == "group";
    config.rope_base = r.golden.number("rope_base");
    config.norm_eps = r.golden.number("norm_eps");
    return layer_of<Retention, T>(config, parameters, name, count(r, "offset"));
  }
};

struct MakeMamba2 {
  template <class T>
  GoldenLayer<T> operator()(const GoldenRun<T>& r, ParameterList<T>& parameters,
                            const std::string& name) const {
    constexpr double kNoLimit = 1e30;
    Mamba2Config config{.dim = r.shape("x")[2],
                        .heads = count(r, "H"),
                        .head_dim = count(r, "d_head"),
                        .state_dim = count(r, "d_state"),
                        .groups = count(r, "G")};
    config.convolution = convolution(r, "conv_x_b");
    config.bias = r.has("b_z");
    config.dt_min = r.golden.number("dt_min");
    if (r.golden.number("dt_max") < kNoLimit) config.dt_max = r.golden.number("dt_max");
    config.norm_eps = r.golden.number("norm_eps");
    return layer_of<Mamba2, T>(config, parameters, name);
  }
};

}  // namespace

void add_recurrent_layers(GoldenFaces& faces) {
  faces["gated_deltanet_layer"] = layer_faces(MakeGatedDeltaNet());
  faces["kda_layer"] = layer_faces(MakeKda());
  faces["deltanet_layer"] = layer_faces(MakeDeltaNet());
  faces["gated_deltaproduct_layer"] = layer_faces(MakeGatedDeltaProduct());
  faces["gla_layer"] = layer_faces(MakeGla());
  faces["retention_layer"] = layer_faces(MakeRetention());
  faces["mamba2_layer"] = layer_faces(MakeMamba2());
}

}  // namespace storytape
