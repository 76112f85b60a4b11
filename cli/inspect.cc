// storytape inspect
#include <cmath>

#include "cli/command.h"
#include "train/checkpoint.h"
#include "train/run.h"

namespace storytape::cli {
namespace {

struct Options {
  std::string run;
  std::string model = "storylm-1m";
  std::string pattern = "full";
  std::optional<uint64_t> vocab, max_seq;
  uint64_t seed = 1;
};

int inspect(const Options& o, const Global& global) {
  std::unique_ptr<HybridLM<float>> model;
  nlohmann::json json;
  if (o.run.empty()) {
    ModelConfig config = preset(o.model);
    if (o.vocab) config.vocab = static_cast<size_t>(*o.vocab);
    if (o.max_seq) config.max_seq = static_cast<size_t>(*o.max_seq);
    config.pattern = parse_pattern(o.pattern, config.layers());
    model = std::make_unique<HybridLM<float>>(config, o.seed);
  } else {
    LoadedModel loaded = load_model(o.run, [](const std::string& line) { note(line); });
    model = std::move(loaded.model);
    json["checkpoint"] = loaded.checkpoint.string();
    json["step"] = loaded.step;
  }
  const ModelConfig& config = model->config();
  const ParameterList<float>& parameters = std::as_const(*model).parameters();
  json["params"] = parameters.elements();
  json["pattern"] = pattern_text(config.pattern);
  json["config"] = to_json(config);
  json["weights_sha256"] = weights_sha256(parameters);
  json["tensors"] = nlohmann::json::array();
  json["decays"] = nlohmann::json::object();
  std::vector<std::vector<std::string>> rows = {{"tensor", "shape", "weights", "rms"}};
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter<float>& p = parameters[i];
    json["tensors"].push_back({{"name", p.name()},
                               {"shape", std::vector<size_t>(p.shape().begin(), p.shape().end())},
                               {"dtype", "F32"}});
    double squares = 0;
    for (const float x : p.value().values()) squares += static_cast<double>(x) * static_cast<double>(x);
    rows.push_back({p.name(), to_string(p.shape()), grouped(p.size()),
                    fmt::format("{:.4f}", std::sqrt(squares / static_cast<double>(p.size())))});
    if (p.name().ends_with(".gamma_logit")) {
      auto& decays = json["decays"][p.name().substr(0, p.name().rfind(".mixer"))] = nlohmann::json::array();
      for (const float logit : p.value().values())
        decays.push_back(1 / (1 + std::exp(-static_cast<double>(logit))));
    }
  }
  // A state that has seen a full context.
  json["state_bytes_per_layer"] = nlohmann::json::array();
  LMState<float> state = model->init_state();
  const std::vector<int32_t> tokens(config.max_seq, 0);
  model->extend(state, tokens);
  std::vector<std::vector<std::string>> states = {
      {"layer", "mixer", "state at context " + grouped(config.max_seq)}};
  for (size_t i = 0; i < state.blocks.size(); ++i) {
    json["state_bytes_per_layer"].push_back(state.blocks[i].bytes());
    states.push_back({std::to_string(i), config.pattern[i], bytes_text(state.blocks[i].bytes())});
  }
  if (global.json) {
    print_json(json);
    return 0;
  }
  std::string text =
      fmt::format("{} weights, pattern {}\n", grouped(parameters.elements()), pattern_text(config.pattern));
  if (json.contains("step"))
    text += fmt::format("{}, step {}\n", json["checkpoint"].get<std::string>(), json["step"].get<size_t>());
  text += fmt::format("weights_sha256 {}\n\n{}\n{}", json["weights_sha256"].get<std::string>(), table(rows),
                      table(states));
  for (const auto& [name, decays] : json["decays"].items()) {
    text += fmt::format("{} decay per head:", name);
    for (const auto& decay : decays) text += fmt::format(" {:.6f}", decay.get<double>());
    text += "\n";
  }
  print(text);
  return 0;
}

}  // namespace

void add_inspect(const Program& program) {
  CLI::App* command = program.command("inspect", "configuration, weights, decays and state sizes of a model",
                                      "  storytape inspect runs/first\n"
                                      "  storytape inspect --model storylm-1m --pattern [L,L,L,F]\n");
  auto o = std::make_shared<Options>();
  command->add_option("run", o->run, "folder of a run, or a checkpoint in it (default: a new model)")
      ->type_name("RUN");
  command->add_option("--model", o->model, "storylm-1m, storylm-5m or storylm-30m")->capture_default_str();
  command->add_option("--pattern", o->pattern, "mixers of the layers")->capture_default_str();
  whole_option(command, "--vocab", o->vocab, 1, 1u << 20, "vocabulary of a new model (default: 4096)");
  whole_option(command, "--max-seq", o->max_seq, 1, 1u << 24, "rows of the position table (default: 256)");
  whole_option(command, "--seed", o->seed, 0, UINT64_MAX, "of a new model's weights");
  command->callback([o, &run = program.run, &global = program.global] {
    run = [o, &global] { return inspect(*o, global); };
  });
}

}  // namespace storytape::cli
