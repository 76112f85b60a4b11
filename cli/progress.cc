#include "cli/progress.h"

#include <unistd.h>

#include <algorithm>

#include "cli/command.h"

namespace storytape::cli {
namespace {

void to_stderr(const std::string& text) {
  [[maybe_unused]] const auto n = write(STDERR_FILENO, text.data(), text.size());
}

constexpr const char* kClearLine = "\r\x1b[K";

}  // namespace

ProgressBar::ProgressBar(std::string label) : label_(std::move(label)), draws_(draws_progress()) {}

void ProgressBar::update(uint64_t done, uint64_t all, const std::string& text, bool important) {
  const auto now = Clock::now();
  const double since = first_ ? 1e9 : std::chrono::duration<double>(now - last_).count();
  if (draws_) {
    if (since < 0.1 && !important && done != all) return;
    const size_t width = std::clamp<size_t>(terminal_width(), 20, 200) - 1;
    const size_t cells = 20;
    const size_t full = all ? std::min<uint64_t>(cells, done * cells / all) : 0;
    std::string bar = label_ + " [" + std::string(full, '=') + std::string(cells - full, ' ') + "] " + text;
    if (text.empty()) bar += fmt::format("{}%", all ? done * 100 / all : 0);
    bar.resize(std::min(bar.size(), width));
    to_stderr(kClearLine + bar);
    shown_ = true;
  } else {
    if (text.empty() || (since < 10 && !important)) return;
    note(text);
  }
  first_ = false;
  last_ = now;
}

void ProgressBar::line(const std::string& text) {
  if (shown_) to_stderr(kClearLine);
  shown_ = false;
  note(text);
}

void ProgressBar::finish() {
  if (shown_) to_stderr(kClearLine);
  shown_ = false;
}

}  // namespace storytape::cli
