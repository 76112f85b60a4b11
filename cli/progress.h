// Progress on stderr: a bar that is redrawn on a terminal, whole lines now and then elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace storytape::cli {

class ProgressBar {
 public:
  // `label` stands before the bar.
  explicit ProgressBar(std::string label);
  // Removes the bar from the screen.
  ~ProgressBar() { finish(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // done of all, and what to say beside it. On a terminal redrawn at most ten times a second. Elsewhere
  // nothing without a text; with one, a line when `important`, and at most every ten seconds.
  void update(uint64_t done, uint64_t all, const std::string& text = "", bool important = false);
  // A whole line above the bar.
  void line(const std::string& text);
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  bool draws_;
  bool shown_ = false;
  Clock::time_point last_;
  bool first_ = true;
};

}  // namespace storytape::cli
