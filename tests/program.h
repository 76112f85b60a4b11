// The built program as a process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"

namespace storytape::test {

struct Outcome {
  int code = -1;    // exit code; -1 if a signal ended it
  int signal = 0;   // that signal
  std::string out;  // standard output
  std::string err;  // standard error

  // Standard output as one JSON object. Throws if it is anything else.
  nlohmann::json json() const;
  // Lines of standard error.
  std::vector<std::string> messages() const;
};

// How a process is set up. Its HOME is an empty folder, so that no test meets another's cache.
struct Setup {
  std::string input = {};                               // standard input
  std::map<std::string, std::string> environment = {};  // on top of the test's own
  std::filesystem::path folder = {};                    // current folder; empty: the test's
};

// A process that is running.
class Running {
 public:
  // argv[0] is looked up in PATH.
  explicit Running(const std::vector<std::string>& argv, const Setup& setup = {});
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  // Kills it if it still runs.
  ~Running();

  // Waits until standard error, or standard output, holds the text. False if the process ended before.
  bool wait_for_err(const std::string& text) { return wait_for(err_, text); }
  bool wait_for_out(const std::string& text) { return wait_for(out_, text); }
  void signal(int number);
  // No reader for standard output any more.
  void close_out();
  // Throws if it takes longer than two minutes.
  Outcome wait();

 private:
  struct Pipe {
    int fd = -1;
    std::string text;
  };
  bool wait_for(Pipe& pipe, const std::string& text);
  // Reads what there is; false when both ends are closed or the time is over.
  bool read_some();

  pid_t pid_ = -1;
  Pipe out_, err_;
  int in_ = -1;
  std::string input_;
  std::chrono::steady_clock::time_point deadline_;
};

// The program with these arguments.
Outcome run(const std::vector<std::string>& arguments, const Setup& setup = {});
// A command line of the shell, in which $STORYTAPE is the program.
Outcome shell(const std::string& command, const Setup& setup = {});
std::vector<std::string> program(const std::vector<std::string>& arguments);

// The contract of a failure: this exit code, nothing on standard output, one line on standard error that
// begins with "storytape: " and holds each of the texts. What is wrong, or "".
std::string refusal(const Outcome& outcome, int code, const std::vector<std::string>& texts);

// A text of a few hundred stories, made once: two files, and arguments for a model that trains in a moment.
const std::filesystem::path& small_text();
const std::filesystem::path& small_valid_text();
// "train --data ... --out RUN" with `more` behind.
std::vector<std::string> small_training(const std::filesystem::path& run,
                                        const std::vector<std::string>& more = {});
// A run of 6 steps that tests may read, and not change.
const std::filesystem::path& trained_run();

// SHA-256 of every file below a folder, by path.
std::map<std::string, std::string> file_hashes(const std::filesystem::path& folder);
std::string contents(const std::filesystem::path& file);
void write(const std::filesystem::path& file, const std::string& text);

}  // namespace storytape::test
