#include "train/run.h"

#include <set>

#include "train/checkpoint.h"
#include "train/files.h"
#include "train/json.h"

namespace storytape {
namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 1;

// Files that a run writes; --overwrite touches these alone.
constexpr const char* kRunFiles[] = {"config.json", "tokenizer.json", "metrics.jsonl"};

}  // namespace

void RunSettings::check() const {
  model.check();
  recipe.check();
  if (accumulate < 1 || accumulate > 4096) fail_usage("accumulate must be in 1..4096, got {}", accumulate);
  if (log_every < 1) fail_usage("log-every must be at least 1, got {}", log_every);
  if (keep < 1) fail_usage("keep must be at least 1, got {}", keep);
  if (recipe.context > model.context_limit()) {
    fail_usage("context {} is longer than the position table of {}", recipe.context, model.max_seq);
  }
}

nlohmann::json to_json(const RunSettings& s) {
  return {{"format", kFormat},
          {"model", to_json(s.model)},
          {"recipe", to_json(s.recipe)},
          {"seed", s.seed},
          {"accumulate", s.accumulate},
          {"log_every", s.log_every},
          {"eval_every", s.eval_every},
          {"eval_windows", s.eval_windows},
          {"sample_every", s.sample_every},
          {"save_every", s.save_every},
          {"keep", s.keep},
          {"data",
           {{"train_files", s.data.train_files},
            {"valid_files", s.data.valid_files},
            {"corpus_seed", s.data.corpus_seed},
            {"train_sha256", s.data.train_sha256},
            {"valid_sha256", s.data.valid_sha256}}}};
}

RunSettings run_settings_from_json(const nlohmann::json& json, const std::string& what) {
  if (!json.is_object()) fail("{}: wants an object", what);
  const nlohmann::json known = to_json(RunSettings());
  const auto same_members = [&](const nlohmann::json& have, const nlohmann::json& wanted,
                                const std::string& prefix) {
    if (!have.is_object()) fail("{}: \"{}\" wants an object", what, prefix);
    for (const auto& [key, value] : have.items()) {
      if (!wanted.contains(key)) fail("{}: unknown member \"{}{}\"", what, prefix, key);
    }
    for (const auto& [key, value] : wanted.items()) {
      if (!have.contains(key)) fail("{}: member \"{}{}\" is missing", what, prefix, key);
    }
  };
  same_members(json, known, "");
  if (json["format"] != kFormat)
    fail("{}: format {}; this program reads {}", what, json["format"].dump(), kFormat);
  RunSettings s;
  const auto whole = [&](const nlohmann::json& value, const std::string& name) {
    if (!value.is_number_unsigned())
      fail("{}: \"{}\" wants a whole number, got {}", what, name, value.dump());
    return value.get<uint64_t>();
  };
  s.model = model_config_from_json(json["model"], what);
  s.recipe = recipe_from_json(json["recipe"], what);
  s.seed = whole(json["seed"], "seed");
  s.accumulate = whole(json["accumulate"], "accumulate");
  s.log_every = whole(json["log_every"], "log_every");
  s.eval_every = whole(json["eval_every"], "eval_every");
  s.eval_windows = whole(json["eval_windows"], "eval_windows");
  s.sample_every = whole(json["sample_every"], "sample_every");
  s.save_every = whole(json["save_every"], "save_every");
  s.keep = whole(json["keep"], "keep");
  const nlohmann::json& data = json["data"];
  same_members(data, known["data"], "data.");
  try {
    s.data.train_files = data["train_files"].get<std::vector<std::string>>();
    s.data.valid_files = data["valid_files"].get<std::vector<std::string>>();
    s.data.corpus_seed = whole(data["corpus_seed"], "data.corpus_seed");
    s.data.train_sha256 = data["train_sha256"].get<std::string>();
    s.data.valid_sha256 = data["valid_sha256"].get<std::string>();
    s.check();
  } catch (const nlohmann::json::exception& error) {
    fail("{}: \"data\": {}", what, error.what());
  } catch (const UsageError& error) {
    fail("{}: {}", what, error.what());
  }
  return s;
}

bool holds_run(const fs::path& run) {
  return fs::exists(run / "config.json");
}

void create_run(const fs::path& run, const RunSettings& settings, const Tokenizer& tokenizer,
                bool overwrite) {
  std::error_code error;
  if (fs::exists(run, error) && !fs::is_directory(run))
    fail("{} is no folder; --out wants one", run.string());
  if (holds_run(run)) {
    if (!overwrite) {
      fail("{} holds a run already: go on with it by --resume, or replace it by --overwrite", run.string());
    }
    for (const char* name : kRunFiles) fs::remove(run / name);
    for (const auto& [step, path] : list_checkpoints(run)) fs::remove(path);
  }
  fs::create_directories(run / "checkpoints", error);
  if (error) fail("cannot make the folder {}: {}", (run / "checkpoints").string(), error.message());
  remove_leftover_temporaries(run);
  remove_leftover_temporaries(run / "checkpoints");
  tokenizer.save(run / "tokenizer.json");
  // Last, since it makes the folder a run.
  write_file_atomic(run / "config.json", to_json(settings).dump(2) + "\n");
}

RunSettings read_run_settings(const fs::path& run) {
  const fs::path path = run / "config.json";
  if (!fs::is_directory(run)) fail("{} is no folder of a run", run.string());
  if (!fs::exists(path)) fail("{} holds no run: {} is missing", run.string(), path.string());
  return run_settings_from_json(parse_json(read_file(path), path.string()), path.string());
}

LoadedModel load_model(const fs::path& path, const std::function<void(const std::string&)>& notice) {
  if (!fs::exists(path))
    fail("{} does not exist; wanted the folder of a run or a checkpoint in it", path.string());
  const bool folder = fs::is_directory(path);
  const fs::path absolute = fs::absolute(path);
  const fs::path run = folder ? absolute
                       : absolute.parent_path().filename() == "checkpoints"
                           ? absolute.parent_path().parent_path()
                           : absolute.parent_path();
  const RunSettings settings = read_run_settings(run);
  Tokenizer tokenizer = Tokenizer::load(run / "tokenizer.json");
  if (static_cast<size_t>(tokenizer.vocab_size()) != settings.model.vocab) {
    fail("{}: the tokenizer has {} tokens, the model {}", run.string(), tokenizer.vocab_size(),
         settings.model.vocab);
  }
  LoadedModel loaded{
      settings.model, std::move(tokenizer), std::make_unique<HybridLM<float>>(settings.model, 0), {}, 0};
  if (!folder) {
    loaded.checkpoint = path;
    loaded.step = load_checkpoint(path, loaded.model->parameters(), nullptr).value_or(0);
    return loaded;
  }
  auto checkpoints = list_checkpoints(run);
  if (checkpoints.empty()) fail("{} has no checkpoint yet; train it first", run.string());
  // Told only if an earlier one can be had; else the newest one's fault is the error.
  std::vector<std::string> faults;
  while (!checkpoints.empty()) {
    const auto [step, file] = checkpoints.back();
    checkpoints.pop_back();
    try {
      loaded.step = load_checkpoint(file, loaded.model->parameters(), nullptr).value_or(step);
      loaded.checkpoint = file;
      for (const std::string& fault : faults) notice(fmt::format("{}; taking an earlier checkpoint", fault));
      return loaded;
    } catch (const Error& error) {
      faults.push_back(error.what());
    }
  }
  fail("{}", faults.front());
}

}  // namespace storytape
