#include "tests/program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "train/sha256.h"

namespace storytape::test {
namespace {

namespace fs = std::filesystem;

constexpr auto kLongest = std::chrono::minutes(2);

// Lives as long as the tests.
const TemporaryFolder& common_folder() {
  static const TemporaryFolder folder;
  return folder;
}

fs::path home() {
  const fs::path path = common_folder() / "home";
  fs::create_directories(path);
  return path;
}

void make_pipe(int ends[2]) {
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
}

}  // namespace

nlohmann::json Outcome::json() const {
  const nlohmann::json value = nlohmann::json::parse(out);
  if (!value.is_object()) throw std::runtime_error("no JSON object: " + out);
  if (out.find('\n') != out.size() - 1) throw std::runtime_error("not one line: " + out);
  return value;
}

std::vector<std::string> Outcome::messages() const {
  std::vector<std::string> lines;
  std::istringstream text(err);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

Running::Running(const std::vector<std::string>& argv, const Setup& setup)
    : input_(setup.input), deadline_(std::chrono::steady_clock::now() + kLongest) {
  int in[2], out[2], err[2];
  make_pipe(in);
  make_pipe(out);
  make_pipe(err);
  std::vector<char*> arguments;
  for (const std::string& word : argv) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::map<std::string, std::string> environment = {{"HOME", home().string()},
                                                    {"STORYTAPE", STORYTAPE_PROGRAM}};
  for (const auto& [name, value] : setup.environment) environment[name] = value;
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    std::signal(SIGPIPE, SIG_DFL);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("NO_COLOR");
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    if (!setup.folder.empty() && chdir(setup.folder.c_str()) != 0) _exit(126);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  close(err[1]);
  in_ = in[1];
  out_.fd = out[0];
  err_.fd = err[0];
  // A child that reads nothing must not end the test.
  std::signal(SIGPIPE, SIG_IGN);
  fcntl(in_, F_SETFL, O_NONBLOCK);
}

Running::~Running() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const int fd : {in_, out_.fd, err_.fd}) {
    if (fd >= 0) close(fd);
  }
}

bool Running::read_some() {
  if (in_ >= 0 && input_.empty()) {
    close(in_);
    in_ = -1;
  }
  pollfd fds[] = {{out_.fd, POLLIN, 0}, {err_.fd, POLLIN, 0}, {in_, POLLOUT, 0}};
  if (out_.fd < 0 && err_.fd < 0) return false;
  if (std::chrono::steady_clock::now() > deadline_) throw std::runtime_error("the program takes too long");
  poll(fds, 3, 100);
  for (Pipe* pipe : {&out_, &err_}) {
    if (!(fds[pipe == &err_].revents & (POLLIN | POLLHUP))) continue;
    char buffer[1 << 16];
    const ssize_t n = read(pipe->fd, buffer, sizeof(buffer));
    if (n > 0) {
      pipe->text.append(buffer, static_cast<size_t>(n));
    } else if (n == 0 || errno != EINTR) {
      close(pipe->fd);
      pipe->fd = -1;
    }
  }
  if (in_ >= 0 && fds[2].revents) {
    const ssize_t n = ::write(in_, input_.data(), input_.size());
    input_.erase(0, n > 0 ? static_cast<size_t>(n) : errno == EAGAIN ? 0 : input_.size());
  }
  return true;
}

bool Running::wait_for(Pipe& pipe, const std::string& text) {
  while (pipe.text.find(text) == std::string::npos) {
    if (!read_some()) return pipe.text.find(text) != std::string::npos;
  }
  return true;
}

void Running::signal(int number) {
  kill(pid_, number);
}

void Running::close_out() {
  if (out_.fd >= 0) close(out_.fd);
  out_.fd = -1;
}

Outcome Running::wait() {
  while (read_some()) {
  }
  Outcome outcome;
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
  outcome.out = std::move(out_.text);
  outcome.err = std::move(err_.text);
  return outcome;
}

std::vector<std::string> program(const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {STORYTAPE_PROGRAM};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return argv;
}

Outcome run(const std::vector<std::string>& arguments, const Setup& setup) {
  return Running(program(arguments), setup).wait();
}

Outcome shell(const std::string& command, const Setup& setup) {
  return Running({"sh", "-c", command}, setup).wait();
}

std::string refusal(const Outcome& outcome, int code, const std::vector<std::string>& texts) {
  const std::string seen = "exit " + std::to_string(outcome.code) + ", signal " +
                           std::to_string(outcome.signal) + ", stdout \"" + outcome.out + "\", stderr \"" +
                           outcome.err + "\"";
  if (outcome.code != code) return "wanted exit " + std::to_string(code) + ": " + seen;
  if (!outcome.out.empty()) return "wanted nothing on stdout: " + seen;
  if (outcome.messages().size() != 1 || !outcome.err.starts_with("storytape: ") ||
      !outcome.err.ends_with("\n")) {
    return "wanted one line on stderr: " + seen;
  }
  for (const std::string& text : texts) {
    if (outcome.err.find(text) == std::string::npos) return "wanted \"" + text + "\": " + seen;
  }
  return "";
}

const fs::path& small_text() {
  static const fs::path path = [] {
    const fs::path folder = common_folder() / "text";
    const Outcome made = run({"data", "make", "--out", folder.string(), "--bytes", "60000"});
    if (made.code != 0) throw std::runtime_error("data make: " + made.err);
    return folder / "train.txt";
  }();
  return path;
}

const fs::path& small_valid_text() {
  static const fs::path path = small_text().parent_path() / "valid.txt";
  return path;
}

std::vector<std::string> small_training(const fs::path& run, const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"train",
                                        "--out",
                                        run.string(),
                                        "--data",
                                        small_text().string(),
                                        "--valid",
                                        small_valid_text().string(),
                                        "--model",
                                        "storylm-1m"};
  // In this order, so that `more` may say otherwise.
  const std::vector<std::pair<std::string, std::string>> defaults = {
      {"--vocab", "300"}, {"--batch", "3"}, {"--context", "16"}, {"--max-seq", "32"}, {"--steps", "6"}};
  for (const auto& [name, value] : defaults) {
    if (std::find(more.begin(), more.end(), name) != more.end()) continue;
    arguments.push_back(name);
    arguments.push_back(value);
  }
  if (std::find(more.begin(), more.end(), "--cache") == more.end()) arguments.push_back("--no-cache");
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

const fs::path& trained_run() {
  static const fs::path path = [] {
    const fs::path folder = common_folder() / "run";
    const Outcome trained = run(small_training(folder, {"--save-every", "2"}));
    if (trained.code != 0) throw std::runtime_error("train: " + trained.err);
    return folder;
  }();
  return path;
}

std::map<std::string, std::string> file_hashes(const fs::path& folder) {
  std::map<std::string, std::string> hashes;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file())
      hashes[fs::relative(entry.path(), folder).string()] = sha256_hex(contents(entry.path()));
  }
  return hashes;
}

std::string contents(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const fs::path& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary);
  out << text;
  if (!out.flush()) throw std::runtime_error("cannot write " + file.string());
}

}  // namespace storytape::test
