// The rules of the house, read from the tree: which folder may include which, that every cited formula is
// written down somewhere, that files stay small, that documents point at what exists.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/catch.h"

namespace storytape {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

// From the bottom to the top: a folder may include itself and what stands before it.
const std::vector<std::string> kFolders = {"tensor", "autograd", "nn", "models", "train", "cli"};
constexpr size_t kLongestFile = 450;

fs::path root() {
  return STORYTAPE_SOURCE_DIR;
}

Lines lines_of(const fs::path& file) {
  std::ifstream in(file);
  Lines lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Paths relative to the root, sorted.
std::vector<fs::path> files_below(const std::string& folder, const std::set<std::string>& extensions) {
  std::vector<fs::path> files;
  if (!fs::is_directory(root() / folder)) return files;
  for (const auto& entry : fs::recursive_directory_iterator(root() / folder)) {
    if (entry.is_regular_file() && extensions.count(entry.path().extension().string())) {
      files.push_back(fs::relative(entry.path(), root()));
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<fs::path> files_below(const std::vector<std::string>& folders,
                                  const std::set<std::string>& extensions) {
  std::vector<fs::path> files;
  for (const std::string& folder : folders) {
    for (const fs::path& file : files_below(folder, extensions)) files.push_back(file);
  }
  return files;
}

std::vector<fs::path> sources() {
  return files_below(kFolders, {".h", ".cc"});
}

std::vector<fs::path> documents() {
  std::vector<fs::path> files = files_below("docs", {".md"});
  files.push_back("README.md");
  return files;
}

std::vector<std::string> matches(const std::string& line, const std::regex& regex, size_t group = 1) {
  std::vector<std::string> found;
  for (std::sregex_iterator m(line.begin(), line.end(), regex), end; m != end; ++m)
    found.push_back((*m)[group]);
  return found;
}

std::string joined(const Lines& problems) {
  std::string text;
  for (const std::string& problem : problems) text += problem + "\n";
  return text;
}

// ---------------------------------------------------------------------------------------------------------------------

// What is wrong with the includes of a file of `folder`.
Lines include_problems(const std::string& folder, const Lines& lines) {
  static const std::regex include(R"re(^\s*#\s*include\s*"([^"]+)")re");
  const auto own = std::find(kFolders.begin(), kFolders.end(), folder);
  Lines problems;
  for (const std::string& line : lines) {
    for (const std::string& path : matches(line, include)) {
      const std::string first = path.substr(0, path.find('/'));
      if (first == "hwy") continue;
      const auto target = std::find(kFolders.begin(), kFolders.end(), first);
      if (target == kFolders.end()) {
        problems.push_back(path + " is no path from the root into one of the library's folders");
      } else if (target > own) {
        problems.push_back(path + " lies above " + folder + "/");
      }
    }
  }
  return problems;
}

TEST_CASE("includes point down: tensor, autograd, nn, models, train, cli") {
  CHECK(
      include_problems("nn", {"#include \"tensor/shape.h\"", "#include \"nn/linear.h\"", "#include <vector>"})
          .empty());
  CHECK(include_problems("nn", {"#include \"models/config.h\""}).size() == 1);
  CHECK(include_problems("nn", {"#include \"linear.h\""}).size() == 1);
  CHECK(include_problems("tensor", {"#include \"tests/catch.h\""}).size() == 1);

  const std::vector<fs::path> files = sources();
  REQUIRE(files.size() > 50);
  for (const fs::path& file : files) {
    INFO(file.string());
    CHECK(joined(include_problems(file.begin()->string(), lines_of(root() / file))) == "");
  }
}

TEST_CASE("files can be read in one sitting") {
  std::vector<std::string> folders = kFolders;
  folders.insert(folders.end(), {"tests", "bench", "scripts"});
  for (const fs::path& file : files_below(folders, {".h", ".cc", ".py", ".sh", ""})) {
    INFO(file.string());
    CHECK(lines_of(root() / file).size() <= kLongestFile);
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Tags of formulas, "(L3)". A formula's line defines its tag; a comment "// (L3)" in the code cites it. A tag
// that a file cites must be defined in that file, in a file of its folder that it includes (or that one
// includes ...), in the header of the same name one folder up, or in a file that a comment of one of these
// names.

const std::regex kTag(R"re((?:^|[^A-Za-z0-9_>\]])\(([A-Z]{1,2}[0-9]{1,2}[a-z]?)\))re");

// The comment of a line, or "" if it has none; in Markdown every line counts whole.
std::string comment_of(const std::string& line) {
  const size_t at = line.find("//");
  return at == std::string::npos ? "" : line.substr(at + 2);
}

std::set<std::string> cited(const Lines& lines) {
  std::set<std::string> tags;
  for (const std::string& line : lines) {
    for (const std::string& tag : matches(comment_of(line), kTag)) tags.insert(tag);
  }
  return tags;
}

// A tag is defined where it begins a comment, a sentence or a column and a formula or a statement follows; in
// a .cc file, where comments such as "(H1) the bias" name the step that follows, only where a formula
// follows.
std::set<std::string> defined(const Lines& lines, const std::string& extension) {
  static const std::regex definition(
      R"re((?:^[\s|*]*|[.:|]\s+\**|\s{2,})\(([A-Z]{1,2}[0-9]{1,2}[a-z]?)\)\**\s+((?!to \(|and \()[^\s(][^()]*.*))re");
  static const std::regex in_code(R"re(^\s*//.*)re");
  std::set<std::string> tags;
  for (const std::string& line : lines) {
    std::string rest = line;
    if (extension != ".md") {
      if (!std::regex_match(line, in_code)) continue;
      rest = comment_of(line);
    }
    for (std::smatch m; std::regex_search(rest, m, definition);) {
      const std::string said = m[2];
      const bool formula = said.find('=') != std::string::npos;
      if (formula || extension != ".cc") tags.insert(m[1]);
      rest = said;
    }
  }
  return tags;
}

// The files in which the tags of `file` may be defined.
std::set<fs::path> reachable(const fs::path& file) {
  static const std::regex include(R"re(^\s*#\s*include\s*"([^"]+)")re");
  static const std::regex named(R"re(([A-Za-z0-9_./-]+\.(?:h|md))\b)re");
  std::set<fs::path> reached;
  std::vector<fs::path> open = {file, file.parent_path().parent_path() / (file.stem().string() + ".h")};
  while (!open.empty()) {
    const fs::path next = open.back();
    open.pop_back();
    if (!fs::is_regular_file(root() / next) || !reached.insert(next).second) continue;
    if (next.extension() == ".md") continue;
    for (const std::string& line : lines_of(root() / next)) {
      for (const std::string& path : matches(line, include)) {
        const fs::path from = fs::path(path).parent_path();
        if (next == file || from == next.parent_path()) open.emplace_back(path);
      }
      for (const std::string& path : matches(comment_of(line), named)) {
        open.emplace_back(path.find('/') == std::string::npos ? next.parent_path() / path : fs::path(path));
      }
    }
  }
  return reached;
}

TEST_CASE("tags are told apart: defined, cited or a call") {
  using Set = std::set<std::string>;
  CHECK(cited({"x = y;  // (A1), as (A2) says", "f(A3);", "// see f(A4) and B064"}) == Set{"A1", "A2"});
  CHECK(defined({"//   (A1) y = x + 1    (A2) z = y", "// (A3)", "// (A4) to (A6) follow",
                 "x = 1;  // (A5) y = 2"},
                ".h") == Set{"A1", "A2"});
  CHECK(defined({"// so that: (T1) each text is cut. (T2) The rest is counted, unlike in (T3) and"}, ".h") ==
        Set{"T1", "T2"});
  CHECK(defined({"  // (H1) the bias", "  // (H2) y = x + b"}, ".cc") == Set{"H2"});
  CHECK(defined({"(L1)  S = 0", "by (L2) we have", "**(L3)** o = n / d"}, ".md") == Set{"L1", "L3"});
}

TEST_CASE("every formula that the code cites is written down") {
  std::map<fs::path, std::set<std::string>> definitions;
  size_t citations = 0;
  for (const fs::path& file : sources()) {
    const std::set<std::string> tags = cited(lines_of(root() / file));
    if (tags.empty()) continue;
    std::set<std::string> known;
    for (const fs::path& from : reachable(file)) {
      if (!definitions.count(from)) {
        definitions[from] = defined(lines_of(root() / from), from.extension().string());
      }
      known.insert(definitions[from].begin(), definitions[from].end());
    }
    for (const std::string& tag : tags) {
      ++citations;
      INFO(file.string() << " cites (" << tag << "), which no file within its reach defines");
      CHECK(known.count(tag) == 1);
    }
  }
  CHECK(citations > 20);
}

// ---------------------------------------------------------------------------------------------------------------------

TEST_CASE("every source file is in its folder's build file") {
  for (const fs::path& file : files_below(kFolders, {".cc"})) {
    const std::string folder = file.begin()->string();
    const std::string name = fs::relative(file, folder).string();
    INFO(file.string() << " is not in " << folder << "/meson.build");
    const std::string build = joined(lines_of(root() / folder / "meson.build"));
    CHECK(build.find("'" + name + "'") != std::string::npos);
  }
}

TEST_CASE("B122 B130 no build file loosens arithmetic or ties the program to one CPU") {
  static const std::regex flag(
      R"re(['"=\s]-(ffast-math|Ofast|f(?:in)?finite-math-only|funsafe-math[a-z-]*|)re"
      R"re(fassociative-math|march=[a-z0-9-]+|mtune=native|mavx[a-z0-9]*)['"\s])re");
  CHECK(matches("args: ['-march=native', '-O2']", flag) == Lines{"march=native"});
  std::vector<fs::path> files = {"meson.build", "quickstart", "check", "scripts/setup.sh"};
  for (const std::string& folder : kFolders) files.push_back(fs::path(folder) / "meson.build");
  for (const fs::path& file : files) {
    for (const std::string& line : lines_of(root() / file)) {
      const std::string code = line.substr(0, line.find('#'));
      // The lines that refuse such flags.
      if (code.find("error(") != std::string::npos || code.find("get_option(") != std::string::npos) continue;
      INFO(file.string() << ": " << line);
      CHECK(matches(code, flag).empty());
    }
  }
}

TEST_CASE("links and paths in documents lead somewhere") {
  static const std::regex link(R"re(\]\(([^)#\s]+)(?:#[^)]*)?\))re");
  static const std::regex path(
      R"re(`((?:tensor|autograd|nn|models|train|cli|tests|bench|scripts|docs)/[\w./-]*)`)re");
  for (const fs::path& file : documents()) {
    REQUIRE(fs::is_regular_file(root() / file));
    for (const std::string& line : lines_of(root() / file)) {
      INFO(file.string() << ": " << line);
      for (const std::string& target : matches(line, link)) {
        if (target.find("://") == std::string::npos) CHECK(fs::exists(root() / file.parent_path() / target));
      }
      for (const std::string& target : matches(line, path)) CHECK(fs::exists(root() / target));
    }
  }
}

TEST_CASE("commands in documents exist") {
  static const std::regex command(R"re((?:^|[\s`$/])storytape +(?:--json +|--threads +\d+ +)*([a-z]+)\b)re");
  std::string program;
  for (const fs::path& file : files_below("cli", {".cc"})) program += joined(lines_of(root() / file));
  program = std::regex_replace(program, std::regex(R"(\s+)"), "");  // a call may be broken into lines
  size_t found = 0;
  for (const fs::path& file : documents()) {
    bool code = false;
    for (const std::string& line : lines_of(root() / file)) {
      if (line.rfind("```", 0) == 0) code = !code;
      const bool inline_code = line.find("`storytape ") != std::string::npos;
      if (!code && !inline_code) continue;
      for (const std::string& name : matches(line, command)) {
        ++found;
        INFO(file.string() << ": " << line);
        CHECK(program.find("command(\"" + name + "\"") != std::string::npos);
      }
    }
  }
  CHECK(found > 5);
}

}  // namespace
}  // namespace storytape
