// Checkpoints: weights, optimizer moments and step as one safetensors file that other tools open.
//
// Tensors: each parameter under its name ("blocks.0.mixer.q.weight", W stored [in, out]), its AdamW moments
// under "optimizer.m.NAME" and "optimizer.v.NAME". Metadata: "format", "step" (steps done), "weights_sha256",
// "data_sha256" over every tensor. Random state and data position are functions of the seed and the step.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "models/hybrid_lm.h"
#include "train/optimizer.h"
#include "train/safetensors.h"

namespace storytape {

// SHA-256 of all weights as little-endian float32, in the order of the model's list.
std::string weights_sha256(const ParameterList<float>& parameters);

// Writes a temporary file, syncs it and renames it. `optimizer` may be null: weights alone.
void save_checkpoint(const std::filesystem::path& path, const ParameterList<float>& parameters,
                     AdamWOptimizer* optimizer, size_t step);

// Reads the weights of a file into a model: every parameter must be there with its shape, and nothing but
// parameters and moments; an Error lists what is missing, unexpected or of another shape. float32, or any
// float type that converts. With `optimizer`, the moments too. All checks, checksums included, are made
// before anything is changed. Returns the step, or nothing for a file without one (weights written by another
// program).
std::optional<size_t> load_checkpoint(const std::filesystem::path& path, ParameterList<float>& parameters,
                                      AdamWOptimizer* optimizer);

// The checkpoints of a run, by rising step: RUN/checkpoints/step-N.safetensors.
std::vector<std::pair<size_t, std::filesystem::path>> list_checkpoints(const std::filesystem::path& run);
std::filesystem::path checkpoint_path(const std::filesystem::path& run, size_t step);

}  // namespace storytape
