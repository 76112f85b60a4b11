#include "cli/command.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>

namespace storytape::cli {

CLI::App* Program::command(const std::string& name, const std::string& description,
                           const std::string& examples) const {
  CLI::App* command = app.add_subcommand(name, description);
  command->fallthrough();
  command->footer("\nExamples:\n" + examples);
  return command;
}

namespace {

uint64_t parse_whole(const std::string& name, const std::string& text, uint64_t low, uint64_t high) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end || value < low || value > high) {
    fail_usage("{} wants a whole number from {} to {}, got \"{}\"", name, low, high, text);
  }
  return value;
}

double parse_real(const std::string& name, const std::string& text, double low, double high) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end || !std::isfinite(value) || value < low ||
      value > high) {
    fail_usage("{} wants a number from {} to {}, got \"{}\"", name, low, high, text);
  }
  return value;
}

template <class Target, class Parse>
CLI::Option* number_option(CLI::App* app, const std::string& name, Target& target, const std::string& help,
                           Parse parse) {
  CLI::Option* option = app->add_option_function<std::string>(
      name, [&target, name, parse](const std::string& text) { target = parse(name, text); }, help);
  return option->type_name("N");
}

}  // namespace

CLI::Option* whole_option(CLI::App* app, const std::string& name, uint64_t& target, uint64_t low,
                          uint64_t high, const std::string& help) {
  return number_option(app, name, target, help,
                       [low, high](const std::string& option, const std::string& text) {
                         return parse_whole(option, text, low, high);
                       })
      ->default_str(std::to_string(target));
}

CLI::Option* whole_option(CLI::App* app, const std::string& name, std::optional<uint64_t>& target,
                          uint64_t low, uint64_t high, const std::string& help) {
  return number_option(app, name, target, help,
                       [low, high](const std::string& option, const std::string& text) {
                         return parse_whole(option, text, low, high);
                       });
}

CLI::Option* real_option(CLI::App* app, const std::string& name, double& target, double low, double high,
                         const std::string& help) {
  return number_option(app, name, target, help,
                       [low, high](const std::string& option, const std::string& text) {
                         return parse_real(option, text, low, high);
                       })
      ->default_str(fmt::format("{}", target));
}

CLI::Option* real_option(CLI::App* app, const std::string& name, std::optional<double>& target, double low,
                         double high, const std::string& help) {
  return number_option(app, name, target, help,
                       [low, high](const std::string& option, const std::string& text) {
                         return parse_real(option, text, low, high);
                       });
}

void print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(STDOUT_FILENO, text.data(), text.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EPIPE) _exit(0);
      fail("cannot write to standard output: {}", std::strerror(errno));
    }
    text.remove_prefix(static_cast<size_t>(n));
  }
}

void print_json(const nlohmann::json& json) {
  // Text from models and files need not be UTF-8.
  print(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void note(std::string_view line) {
  std::string text(line);
  text += '\n';
  // Nobody to tell if stderr is gone.
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
}

bool draws_progress() {
  const char* term = std::getenv("TERM");
  const char* no_color = std::getenv("NO_COLOR");
  return isatty(STDERR_FILENO) && term && std::strcmp(term, "dumb") != 0 && !(no_color && *no_color);
}

size_t terminal_width() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

namespace {

volatile std::sig_atomic_t interrupt_seen = 0;

void on_interrupt(int) {
  if (interrupt_seen) _exit(130);
  interrupt_seen = 1;
}

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() {
  return interrupt_seen != 0;
}

std::string grouped(uint64_t n) {
  std::string text = std::to_string(n);
  for (size_t i = text.size(); i > 3; i -= 3)
    text.insert(text.begin() + static_cast<std::ptrdiff_t>(i - 3), ',');
  return text;
}

std::string bytes_text(uint64_t bytes) {
  const char* units[] = {"B", "KB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(units)) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

std::string seconds_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e8) return "-";
  const auto s = static_cast<uint64_t>(seconds + 0.5);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} m {:02} s", s / 60, s % 60);
  return fmt::format("{} h {:02} m", s / 3600, s / 60 % 60);
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  std::vector<bool> numeric;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (i == widths.size()) {
        widths.push_back(0);
        numeric.push_back(rows.size() > 1);
      }
      widths[i] = std::max(widths[i], row[i].size());
      const bool number =
          row[i].empty() || row[i].find_first_not_of("0123456789.,+-e%x ") == std::string::npos;
      if (&row != &rows.front() && !number) numeric[i] = false;
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i) line += "  ";
      line +=
          numeric[i] ? fmt::format("{:>{}}", row[i], widths[i]) : fmt::format("{:<{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace storytape::cli
