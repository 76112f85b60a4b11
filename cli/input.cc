#include "cli/input.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "train/corpus.h"
#include "train/text.h"

namespace storytape::cli {

namespace fs = std::filesystem;

Program command_group(const Program& program, const std::string& name, const std::string& description,
                      const std::string& examples) {
  CLI::App* group = program.command(name, description, examples);
  group->require_subcommand(0, 1);
  // Runs after the callback of the command that was named below it.
  group->callback([group, &run = program.run] {
    if (run) return;
    std::vector<std::string> names;
    for (const CLI::App* command : group->get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(command->get_name());
    }
    fail_usage("{} wants one of {} (see storytape {} --help)", group->get_name(), fmt::join(names, ", "),
               group->get_name());
  });
  return {*group, program.global, program.run};
}

Tokenizer load_tokenizer(const fs::path& path) {
  return Tokenizer::load(fs::is_directory(path) ? path / "tokenizer.json" : path);
}

std::string text_of(const std::vector<std::string>& files) {
  if (files == std::vector<std::string>{"embedded"}) return embedded_corpus(0).train;
  return load_text({files.begin(), files.end()});
}

std::string read_stdin() {
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (n == 0) return text;
    if (n > 0) text.append(buffer, static_cast<size_t>(n));
    if (n < 0 && errno != EINTR) fail("cannot read standard input: {}", std::strerror(errno));
  }
}

void refuse_existing(const fs::path& file, bool overwrite) {
  if (fs::is_directory(file)) fail("{} is a folder; wanted a file to write", file.string());
  if (fs::is_regular_file(file) && !overwrite)
    fail("{} is there already; replace it by --overwrite", file.string());
  const fs::path folder = fs::absolute(file).parent_path();
  if (!fs::is_directory(folder))
    fail("cannot write {}: there is no folder {}", file.string(), folder.string());
}

}  // namespace storytape::cli
