// Runs the gradient checks under one mutant after another. The sources it is linked with are the mutated
// copies that mutate.py writes.
//
//   mutants known            the numbers of the mutants that exist, one a line
//   mutants run JOBS         reads "NUMBER PATTERN[|PATTERN...]" lines: checks the unmutated program first,
//   then each
//                            mutant in a process of its own, stops at the first case that fails, and answers
//                            "NUMBER noticed|survived|unreached CASE OR REASON"
//
// A crash is noticed, as is a check that takes far more processor time than the unmutated one.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <iostream>
#include <map>
#include <sstream>

#include "autograd/gradcheck.h"
#include "autograd/ops.h"
#include "nn/examples.h"
#include "nn/mixers/registry.h"
#include "tests/mutants/cases.h"
#include "tests/mutants/mutation.h"

namespace storytape {
namespace {

struct Case {
  GradCase check;
  double seconds;
};

// The cases of one set of patterns, cheapest first; those that noticed the latest mutants come before them.
struct Suite {
  std::vector<Case> cases;
  std::vector<size_t> order;
  double seconds = 0;
};

// What a child process tells its parent.
struct Report {
  size_t position;  // of the case at work, in the suite's order at the start
  bool hit, noticed, finished;
};

double processor_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

bool passes(const GradCase& c, std::string* why = nullptr) {
  for (const GradRow& row : check_case(c)) {
    if (row.ok) continue;
    if (why) *why = row.input + ": " + row.why;
    return false;
  }
  return true;
}

std::map<std::string, Case>& measured() {
  static std::map<std::string, Case> all;
  return all;
}

// An Error if a case fails unmutated.
Suite make_suite(const std::string& patterns) {
  Suite suite;
  std::istringstream list(patterns);
  for (std::string pattern; std::getline(list, pattern, '|');) {
    for (GradCase& c : gradient_cases(pattern)) {
      const std::string name = c.name();
      auto found = measured().find(name);
      if (found == measured().end()) {
        const double start = processor_seconds();
        std::string why;
        if (!passes(c, &why)) fail("the unmutated program fails: {}: {}", name, why);
        const double seconds = processor_seconds() - start;
        found = measured().emplace(name, Case{std::move(c), seconds}).first;
      }
      suite.cases.push_back(found->second);
      suite.seconds += found->second.seconds;
    }
  }
  std::stable_sort(suite.cases.begin(), suite.cases.end(),
                   [](const Case& a, const Case& b) { return a.seconds < b.seconds; });
  for (size_t i = 0; i < suite.cases.size(); ++i) suite.order.push_back(i);
  return suite;
}

[[noreturn]] void run_child(const Suite& suite, const std::vector<size_t>& order, int mutant,
                            Report* report) {
  const rlim_t limit = static_cast<rlim_t>(5 + 20 * suite.seconds);
  const rlimit processor{limit, limit}, none{0, 0}, memory{rlim_t{4} << 30, rlim_t{4} << 30};
  setrlimit(RLIMIT_CPU, &processor);
  setrlimit(RLIMIT_CORE, &none);
  setrlimit(RLIMIT_AS, &memory);
  std::freopen("/dev/null", "w", stderr);
  mutation::active = mutant;
  for (size_t i = 0; i < order.size(); ++i) {
    report->position = i;
    const bool ok = passes(suite.cases[order[i]].check);
    report->hit = mutation::hit;
    if (!ok) {
      report->noticed = true;
      break;
    }
  }
  report->finished = true;
  _exit(0);
}

struct Slot {
  pid_t pid = 0;
  int mutant = 0;
  Suite* suite = nullptr;
  std::vector<size_t> order;
};

void finish(Slot& slot, const Report& report) {
  const size_t at = slot.order[report.position];
  const bool survived = report.finished && !report.noticed;
  const std::string name = slot.suite->cases[at].check.name();
  if (survived) {
    std::cout << slot.mutant << (report.hit ? " survived" : " unreached") << "\n";
  } else {
    std::cout << slot.mutant << " noticed " << (report.finished ? "" : "(crash or hang) ") << name << "\n";
    auto& order = slot.suite->order;
    order.erase(std::find(order.begin(), order.end(), at));
    order.insert(order.begin(), at);
  }
  slot.pid = 0;
}

void wait_for_one(std::vector<Slot>& slots, const Report* reports) {
  const pid_t pid = wait(nullptr);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].pid == pid) finish(slots[i], reports[i]);
  }
}

void run(size_t jobs) {
  auto* reports = static_cast<Report*>(
      mmap(nullptr, jobs * sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (reports == MAP_FAILED) fail("no shared memory");
  std::vector<std::pair<int, std::string>> tasks;
  int mutant = 0;
  std::string patterns;
  while (std::cin >> mutant && std::getline(std::cin >> std::ws, patterns))
    tasks.emplace_back(mutant, patterns);
  std::map<std::string, Suite> suites;
  for (const auto& task : tasks) {
    if (!suites.count(task.second)) suites.emplace(task.second, make_suite(task.second));
  }
  std::cerr << "the unmutated program passes " << measured().size() << " cases" << std::endl;

  std::vector<Slot> slots(jobs);
  for (const auto& [number, which] : tasks) {
    auto slot = std::find_if(slots.begin(), slots.end(), [](const Slot& s) { return s.pid == 0; });
    if (slot == slots.end()) {
      wait_for_one(slots, reports);
      slot = std::find_if(slots.begin(), slots.end(), [](const Slot& s) { return s.pid == 0; });
    }
    Report* report = reports + (slot - slots.begin());
    *report = {};
    slot->mutant = number;
    slot->suite = &suites.at(which);
    slot->order = slot->suite->order;
    std::cout.flush();
    slot->pid = fork();
    if (slot->pid == 0) run_child(*slot->suite, slot->order, number, report);
    if (slot->pid < 0) fail("can't start a process: {}", std::strerror(errno));
  }
  while (std::any_of(slots.begin(), slots.end(), [](const Slot& s) { return s.pid != 0; })) {
    wait_for_one(slots, reports);
  }
}

}  // namespace
}  // namespace storytape

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  try {
    if (command == "known") {
      for (int i = 0; i < mutation::kMaxMutants; ++i) {
        if (mutation::known[i]) std::cout << i << "\n";
      }
      return 0;
    }
    if (command != "run" || argc != 3) storytape::fail_usage("usage: mutants known | mutants run JOBS");
    storytape::register_basic_ops();
    storytape::register_nn_ops();
    storytape::register_mixers();
    storytape::register_mutant_cases();
    storytape::run(std::max<size_t>(1, std::stoul(argv[2])));
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "mutants: " << error.what() << "\n";
    return 2;
  }
}
