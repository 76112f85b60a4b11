#include "train/checkpoint.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <map>

#include "train/sha256.h"

static_assert(std::endian::native == std::endian::little,
              "checkpoints are written as the values lie in memory");

namespace storytape {
namespace {

constexpr const char* kFormat = "storytape.checkpoint.1";

std::string m_name(const std::string& parameter) {
  return "optimizer.m." + parameter;
}
std::string v_name(const std::string& parameter) {
  return "optimizer.v." + parameter;
}

std::vector<uint64_t> file_shape(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

std::string shape_text(const std::vector<uint64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// Everything of a checkpoint that was read, before any of it is used.
using Values = std::map<std::string, std::vector<float>, std::less<>>;

void read_tensor(const SafetensorsFile& file, const std::string& name, const Shape& shape, Values& values) {
  const TensorInfo& info = file.at(name);
  if (info.shape != file_shape(shape)) {
    fail("{}: tensor \"{}\" has shape {}, the model wants {}", file.name(), name, shape_text(info.shape),
         to_string(shape));
  }
  std::vector<float> v = file.read_values<float>(name);
  for (size_t i = 0; i < v.size(); ++i) {
    if (!std::isfinite(v[i])) fail("{}: tensor \"{}\" holds {} at element {}", file.name(), name, v[i], i);
  }
  values.emplace(name, std::move(v));
}

std::string list_some(const std::vector<std::string>& names) {
  const size_t shown = std::min<size_t>(names.size(), 5);
  std::string text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<long>(shown), ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

}  // namespace

std::string weights_sha256(const ParameterList<float>& parameters) {
  Sha256 sha;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor<float>& value = parameters[i].value();
    sha.update(value.data(), value.bytes());
  }
  return sha.hex();
}

void save_checkpoint(const std::filesystem::path& path, const ParameterList<float>& parameters,
                     AdamWOptimizer* optimizer, size_t step) {
  std::vector<TensorView> tensors;
  Sha256 sha;
  const auto add = [&](std::string name, const Shape& shape, const float* data) {
    sha.update(data, shape.elements() * sizeof(float));
    tensors.push_back({std::move(name), Dtype::F32, file_shape(shape), data});
  };
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter<float>& p = parameters[i];
    add(p.name(), p.shape(), p.value().data());
  }
  if (optimizer) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Parameter<float>& p = parameters[i];
      add(m_name(p.name()), p.shape(), optimizer->m().data() + parameters.offsets()[i]);
      add(v_name(p.name()), p.shape(), optimizer->v().data() + parameters.offsets()[i]);
    }
  }
  write_safetensors(path, std::move(tensors),
                    {{"format", kFormat},
                     {"step", std::to_string(step)},
                     {"weights_sha256", weights_sha256(parameters)},
                     {"data_sha256", sha.hex()}});
}

std::optional<size_t> load_checkpoint(const std::filesystem::path& path, ParameterList<float>& parameters,
                                      AdamWOptimizer* optimizer) {
  const SafetensorsFile file(path);
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  std::map<std::string, int, std::less<>> known;
  const auto want = [&](const std::string& name, bool needed) {
    known[name] = 1;
    if (needed && !file.find(name)) missing.push_back(name);
  };
  for (size_t i = 0; i < parameters.size(); ++i) {
    want(parameters[i].name(), true);
    want(m_name(parameters[i].name()), optimizer != nullptr);
    want(v_name(parameters[i].name()), optimizer != nullptr);
  }
  for (const TensorInfo& info : file.tensors()) {
    if (!known.contains(info.name)) unexpected.push_back(info.name);
  }
  if (!missing.empty()) fail("{}: missing tensors: {}", file.name(), list_some(missing));
  if (!unexpected.empty())
    fail("{}: tensors that the model does not have: {}", file.name(), list_some(unexpected));

  Values values;
  Sha256 sha;
  const auto take = [&](const std::string& name, const Shape& shape) {
    read_tensor(file, name, shape, values);
    sha.update(values[name].data(), values[name].size() * sizeof(float));
  };
  const bool moments = optimizer || file.find(m_name(parameters[0].name()));
  for (size_t i = 0; i < parameters.size(); ++i) take(parameters[i].name(), parameters[i].shape());
  for (size_t i = 0; moments && i < parameters.size(); ++i) {
    take(m_name(parameters[i].name()), parameters[i].shape());
    take(v_name(parameters[i].name()), parameters[i].shape());
  }
  const auto& metadata = file.metadata();
  if (const auto sum = metadata.find("data_sha256"); sum != metadata.end() && sum->second != sha.hex()) {
    fail("{}: the checksum does not fit the tensors; the file is damaged", file.name());
  }
  std::optional<size_t> step;
  if (const auto text = metadata.find("step"); text != metadata.end()) {
    size_t number = 0;
    const char* end = text->second.data() + text->second.size();
    const auto [stop, error] = std::from_chars(text->second.data(), end, number);
    if (error != std::errc() || stop != end)
      fail("{}: metadata \"step\" is \"{}\", no number", file.name(), text->second);
    step = number;
  }
  if (optimizer && !step) fail("{}: metadata \"step\" is missing; it can't be resumed", file.name());

  for (size_t i = 0; i < parameters.size(); ++i) {
    Parameter<float>& p = parameters[i];
    const std::vector<float>& value = values[p.name()];
    std::copy(value.begin(), value.end(), p.mutable_value().data());
    if (!optimizer) continue;
    const auto offset = static_cast<long>(parameters.offsets()[i]);
    const std::vector<float>& m = values[m_name(p.name())];
    const std::vector<float>& v = values[v_name(p.name())];
    std::copy(m.begin(), m.end(), optimizer->m().begin() + offset);
    std::copy(v.begin(), v.end(), optimizer->v().begin() + offset);
  }
  return step;
}

std::filesystem::path checkpoint_path(const std::filesystem::path& run, size_t step) {
  return run / "checkpoints" / fmt::format("step-{}.safetensors", step);
}

std::vector<std::pair<size_t, std::filesystem::path>> list_checkpoints(const std::filesystem::path& run) {
  std::vector<std::pair<size_t, std::filesystem::path>> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(run / "checkpoints", error)) {
    const std::string name = entry.path().filename().string();
    constexpr std::string_view kPrefix = "step-";
    constexpr std::string_view kSuffix = ".safetensors";
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix) ||
        name.size() <= kPrefix.size() + kSuffix.size()) {
      continue;
    }
    size_t step = 0;
    const char* end = name.data() + name.size() - kSuffix.size();
    const auto [stop, parse_error] = std::from_chars(name.data() + kPrefix.size(), end, step);
    if (parse_error == std::errc() && stop == end) found.emplace_back(step, entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace storytape
