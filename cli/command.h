// What the commands of the program share: global options, number options, output.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/error.h"
#include "tensor/threads.h"

namespace storytape::cli {

// The global options, taken before or after the command's name.
struct Global {
  bool json = false;                // one JSON object on stdout instead of text
  std::optional<uint64_t> threads;  // --threads; else default_threads()

  size_t thread_count() const { return threads ? static_cast<size_t>(*threads) : default_threads(); }
};

// Each adds its command to the program; what runs it throws Error or UsageError, or returns the exit code.
using Run = std::function<int()>;
struct Program {
  CLI::App& app;
  Global& global;
  Run& run;  // set by the callback of the command that was named

  // A command with its one-line description and the examples of its --help.
  CLI::App* command(const std::string& name, const std::string& description,
                    const std::string& examples) const;
};

void add_train(const Program& program);
void add_generate(const Program& program);
void add_eval(const Program& program);
void add_tokenizer(const Program& program);
void add_data(const Program& program);
void add_data_batches(const Program& program);
void add_gradcheck(const Program& program);
void add_faces(const Program& program);
void add_verify(const Program& program);
void add_demo(const Program& program);
void add_inspect(const Program& program);
void add_bench(const Program& program);

// Number options. Whole numbers are decimal digits alone (no sign, point, exponent or blank); reals are
// decimal, finite, with an optional exponent. Anything else, and what lies outside [low, high], is refused
// naming the option, what it got and what it wanted. `target` keeps its value where the option is not given;
// the current value is shown as default.
CLI::Option* whole_option(CLI::App* app, const std::string& name, uint64_t& target, uint64_t low,
                          uint64_t high, const std::string& help);
CLI::Option* whole_option(CLI::App* app, const std::string& name, std::optional<uint64_t>& target,
                          uint64_t low, uint64_t high, const std::string& help);
CLI::Option* real_option(CLI::App* app, const std::string& name, double& target, double low, double high,
                         const std::string& help);
CLI::Option* real_option(CLI::App* app, const std::string& name, std::optional<double>& target, double low,
                         double high, const std::string& help);

// Results go to stdout, whole lines; a reader that went away ends the program quietly (exit 0), any other
// write error is an Error.
void print(std::string_view text);
void print_json(const nlohmann::json& json);
// Messages go to stderr, one line each.
void note(std::string_view line);

// Whether to draw progress bars: stderr is a terminal that can, and NO_COLOR is not set.
bool draws_progress();
size_t terminal_width();

// SIGINT and SIGTERM: the first sets a flag, the second ends the program at once.
void catch_interrupts();
bool interrupted();

// "1,354,496", "12.3 MB", "2 m 05 s" ("-" for what is not known).
std::string grouped(uint64_t n);
std::string bytes_text(uint64_t bytes);
std::string seconds_text(double seconds);

// Rows of cells, columns aligned: numbers to the right, the first row is the heading.
std::string table(const std::vector<std::vector<std::string>>& rows);

}  // namespace storytape::cli
