// A fixed set of threads for data-parallel work, and how many to use.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace storytape {

// Calls a function that lives on the caller's stack; allocates nothing.
class IndexFunction {
 public:
  template <class F>
  explicit IndexFunction(const F& f)
      : object_(&f), call_([](const void* object, size_t i) { (*static_cast<const F*>(object))(i); }) {}
  void operator()(size_t i) const { call_(object_, i); }

 private:
  const void* object_;
  void (*call_)(const void*, size_t);
};

class ThreadPool {
 public:
  // `threads` ≥ 1 workers, the calling thread among them; an Error otherwise.
  explicit ThreadPool(size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t threads() const { return workers_.size() + 1; }

  // Runs f(0) … f(n-1), each once, on whichever thread is free, and returns when all are done. The first
  // exception is thrown again here; tasks not yet begun are then dropped. What f(i) computes must not depend
  // on who runs it. A call from within a task runs on that task's thread alone.
  template <class F>
  void parallel_for(size_t n, const F& f) {
    run(n, IndexFunction(f));
  }

  // Task i always runs on the thread that ran task i of the last call with as many tasks: so that a thread
  // finds its buffers again. Blocks of tasks are contiguous.
  template <class F>
  void parallel_for_static(size_t n, const F& f) {
    const size_t share = (n + threads() - 1) / threads();
    run_on_each([&](size_t thread) {
      const size_t end = (thread + 1) * share < n ? (thread + 1) * share : n;
      for (size_t i = thread * share; i < end; ++i) f(i);
    });
  }

  // Runs f(t) on each thread t.
  template <class F>
  void run_on_each(const F& f) {
    run_each(IndexFunction(f));
  }

 private:
  void run(size_t n, IndexFunction f);
  void run_each(IndexFunction f);
  void work(size_t thread);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  const IndexFunction* task_ = nullptr;
  uint64_t round_ = 0;
  size_t running_ = 0;
  bool stop_ = false;
  std::exception_ptr error_;
  std::vector<std::thread> workers_;
};

// Threads that this process may use: the CPUs of its affinity mask, at most the cgroup's quota rounded down,
// at least 1.
size_t default_threads();

}  // namespace storytape
