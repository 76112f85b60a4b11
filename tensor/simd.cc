#include "tensor/simd.h"

#include <cstdint>
#include <cstdlib>
#include <mutex>

#include "tensor/error.h"
#include "tensor/simd_targets.h"
// After simd_targets.h.
#include "hwy/highway.h"

namespace storytape {
namespace internal {

std::atomic<bool> simd_chosen{false};

}  // namespace internal

namespace {

// Targets that kernels are compiled for and that this CPU has. hwy::SupportedTargets() honours an earlier
// choice, so the first answer, taken while nothing is forced, is kept.
int64_t available() {
  static const int64_t targets = [] {
    const int64_t both = HWY_SUPPORTED_TARGETS & HWY_TARGETS;
    return both ? both : int64_t{HWY_STATIC_TARGET};
  }();
  return targets;
}

std::vector<int64_t> bits(int64_t targets) {
  std::vector<int64_t> result;
  for (; targets != 0; targets &= targets - 1) result.push_back(targets & -targets);
  return result;
}

std::string names(int64_t targets) {
  std::string text;
  for (const int64_t target : bits(targets))
    text += (text.empty() ? "" : ", ") + std::string(hwy::TargetName(target));
  return text;
}

std::mutex choice;

// REQUIRES: `choice` is held.
void choose(const std::string& name, const char* source) {
  int64_t found = name.empty() ? available() : 0;
  for (const int64_t target : bits(available())) {
    if (name == hwy::TargetName(target)) found = target;
  }
  if (!found) {
    fail_usage("{}: no SIMD target '{}' on this machine, there are: {}", source, name, names(available()));
  }
  hwy::SetSupportedTargetsForTest(name.empty() ? 0 : found);
  hwy::GetChosenTarget().Update(found);
  internal::simd_chosen.store(true, std::memory_order_release);
}

}  // namespace

void internal::choose_simd() {
  const std::lock_guard lock(choice);
  if (simd_chosen.load(std::memory_order_acquire)) return;
  const char* name = std::getenv("STORYTAPE_SIMD");
  choose(name ? name : "", "STORYTAPE_SIMD");
}

std::vector<std::string> simd_targets() {
  std::vector<std::string> result;
  for (const int64_t target : bits(available())) result.emplace_back(hwy::TargetName(target));
  return result;
}

std::string simd_target() {
  prepare_simd();
  const int64_t usable = HWY_SUPPORTED_TARGETS & available();
  return hwy::TargetName(bits(usable ? usable : available()).front());
}

void force_simd_target(const std::string& name) {
  const std::lock_guard lock(choice);
  choose(name, "SIMD target");
}

}  // namespace storytape
