#include "tensor/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>

#include "tensor/error.h"

namespace storytape {
namespace {

thread_local bool inside_task = false;

}  // namespace

ThreadPool::ThreadPool(size_t threads) {
  if (threads < 1) fail("a thread pool wants at least 1 thread, got {}", threads);
  workers_.reserve(threads - 1);
  for (size_t i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::work(size_t thread) {
  uint64_t seen = 0;
  for (;;) {
    const IndexFunction* task;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || round_ != seen; });
      if (stop_) return;
      seen = round_;
      task = task_;
    }
    inside_task = true;
    std::exception_ptr error;
    try {
      (*task)(thread);
    } catch (...) {
      error = std::current_exception();
    }
    inside_task = false;
    std::lock_guard lock(mutex_);
    if (error && !error_) error_ = error;
    if (--running_ == 0) done_.notify_one();
  }
}

void ThreadPool::run_each(IndexFunction f) {
  if (inside_task || workers_.empty()) {
    for (size_t i = 0; i < threads(); ++i) f(i);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    task_ = &f;
    running_ = workers_.size();
    error_ = nullptr;
    ++round_;
  }
  wake_.notify_all();
  std::exception_ptr error;
  inside_task = true;
  try {
    f(0);
  } catch (...) {
    error = std::current_exception();
  }
  inside_task = false;
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return running_ == 0; });
  task_ = nullptr;
  if (!error) error = error_;
  error_ = nullptr;
  lock.unlock();
  if (error) std::rethrow_exception(error);
}

void ThreadPool::run(size_t n, IndexFunction f) {
  std::atomic<size_t> next{0};
  run_each(IndexFunction([&](size_t) {
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) {
      try {
        f(i);
      } catch (...) {
        next.store(n, std::memory_order_relaxed);
        throw;
      }
    }
  }));
}

namespace {

// The cgroup's CPU quota in CPUs, or infinity. Version 2 has "quota period" in cpu.max, version 1 two files.
double cgroup_cpus() {
  double least = INFINITY;
  const auto consider = [&](double quota, double period) {
    if (quota > 0 && period > 0) least = std::min(least, quota / period);
  };
  std::string line;
  for (std::ifstream groups("/proc/self/cgroup"); std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    if (!v2 && controllers.find("cpu") == std::string::npos) continue;
    // A quota of any ancestor holds too.
    for (std::string path = line.substr(second + 1);; path = path.substr(0, path.rfind('/'))) {
      if (v2) {
        std::ifstream max("/sys/fs/cgroup" + path + "/cpu.max");
        std::string quota;
        double period = 0;
        if (max >> quota >> period && quota != "max") consider(std::atof(quota.c_str()), period);
      } else {
        const std::string folder = "/sys/fs/cgroup/" + controllers + path;
        double quota = 0;
        double period = 0;
        std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
        std::ifstream(folder + "/cpu.cfs_period_us") >> period;
        consider(quota, period);
      }
      if (path.empty() || path == "/") break;
    }
  }
  return least;
}

}  // namespace

size_t default_threads() {
  size_t threads = std::max(1u, std::thread::hardware_concurrency());
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0)
    threads = static_cast<size_t>(std::max(1, CPU_COUNT(&set)));
  const double quota = cgroup_cpus();
  if (std::isfinite(quota))
    threads = std::min(threads, static_cast<size_t>(std::max(1.0, std::floor(quota))));
  return threads;
}

}  // namespace storytape
