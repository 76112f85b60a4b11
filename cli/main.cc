// The program: parses the command line, runs one command, and turns errors into one line and an exit code.
//
// Exit codes: 0 success, 1 the check or the run failed, 2 wrong usage, 130 interrupted (after saving, where
// there is something to save).
#include <algorithm>
#include <csignal>
#include <new>

#include "cli/command.h"
#include "cli/version.h"
#include "tensor/names.h"
#include "tensor/simd.h"
#include "train/files.h"

namespace storytape::cli {
namespace {

// The command that was named, as deep as the words went.
const CLI::App* named_command(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  return command;
}

// "storytape tokenizer encode"
std::string full_name(const CLI::App& command) {
  return (command.get_parent() ? full_name(*command.get_parent()) + " " : "") + command.get_name();
}

std::string suggestion(const CLI::App& app, const CLI::App& command, const std::string& word) {
  std::vector<std::string> known;
  for (const CLI::App* from : {&app, &command}) {
    for (const CLI::Option* option : from->get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
    for (const CLI::App* sub : from->get_subcommands([](const CLI::App*) { return true; })) {
      known.push_back(sub->get_name());
    }
  }
  const std::string nearest = nearest_name(word.substr(0, word.find('=')), known);
  return nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
}

std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// An error is one line, whatever is in a path or a file.
void complain(const std::string& what) {
  note("storytape: " + printable(what, 4000));
}

int run(int argc, char** argv) {
  CLI::App app(
      "Storytape: an autodiff engine and SIMD tensor library that trains small story models with softmax and "
      "linear "
      "attention on a CPU.",
      "storytape");
  app.require_subcommand(0, 1);
  Global global;
  bool version = false;
  app.add_flag("--json", global.json, "print one JSON object on stdout");
  app.add_flag("--version", version, "print the version, compiler, SIMD target and matrix kernels");
  whole_option(&app, "--threads", global.threads, 1, 4096,
               "threads to use (default: the CPUs this process may use); results do not depend on it");
  Run command;
  const Program program{app, global, command};
  add_train(program);
  add_generate(program);
  add_eval(program);
  add_tokenizer(program);
  add_data(program);
  add_inspect(program);
  add_gradcheck(program);
  add_faces(program);
  add_verify(program);
  add_demo(program);
  add_bench(program);

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    print(named_command(app)->help());
    return 0;
  } catch (const CLI::CallForAllHelp&) {
    print(app.help("", CLI::AppFormatMode::All));
    return 0;
  } catch (const CLI::ExtrasError&) {
    const CLI::App* named = named_command(app);
    const std::vector<std::string> rest = app.remaining(true);
    const std::string word = rest.empty() ? "" : rest.front();
    fail_usage("unknown {} \"{}\"{} (see {} --help)", word.starts_with("-") ? "option" : "argument",
               printable(word), suggestion(app, *named, word), full_name(*named));
  } catch (const CLI::ParseError& error) {
    fail_usage("{}", one_line(error.what()));
  }
  prepare_simd();
  if (version) {
    print_version(global);
    return 0;
  }
  if (!command) {
    print(app.help());
    return 2;
  }
  return command();
}

}  // namespace
}  // namespace storytape::cli

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  storytape::ignore_file_size_signal();
  try {
    return storytape::cli::run(argc, argv);
  } catch (const storytape::UsageError& error) {
    storytape::cli::complain(error.what());
    return 2;
  } catch (const std::bad_alloc&) {
    storytape::cli::complain("out of memory");
    return 1;
  } catch (const std::exception& error) {
    storytape::cli::complain(error.what());
    return 1;
  }
}
