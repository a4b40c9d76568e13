// Independent pieces of work in parallel.
//
//   ForEachInParallel(Cores(), roles.size(), [&](size_t i) { memory[i] = SimulateMemory(roles[i]); });
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace windtunnel {

// The number of cores of this machine; at least one.
inline int Cores() { return static_cast<int>(std::max(std::thread::hardware_concurrency(), 1u)); }

namespace parallel_internal {

// Threads that take numbers from [0, count) in order, until a call throws or `stop` returns true. Each time a
// thread takes one `portion`-th of the numbers that are left, at least one.
template <typename Work, typename Stop>
class Pool {
 public:
  Pool(size_t count, size_t portion, const Work& work, const Stop& stop)
      : count_(count), portion_(portion), work_(work), stop_(stop) {}
  ~Pool() { is_over_ = true; }  // if the owner leaves by an exception, no more work begins

  // Starts further threads; fewer if the machine has no more.
  void Start(size_t threads) {
    for (size_t i = 0; i < threads; ++i) {
      try {
        ++running_;
        threads_.emplace_back([this] { Run(); });
      } catch (...) {  // the system has no thread left, or no memory for one
        --running_;
        return;
      }
    }
  }
  // Also works on the calling thread.
  void Join() {
    ++running_;
    Run();
  }
  // Waits up to `time`; whether all threads have ended.
  bool EndsWithin(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return ends_.wait_for(lock, time, [&] { return running_ == 0; });
  }
  bool has_threads() const { return !threads_.empty(); }
  // Call after all threads have ended. Rethrows an exception of the work.
  void Finish() {
    threads_.clear();
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  void Run() {
    std::exception_ptr thrown;
    try {
      for (Numbers taken = Take(); taken.begin < taken.end; taken = Take()) {
        for (size_t i = taken.begin; i < taken.end; ++i) {
          if (is_over_ || stop_()) {
            is_over_ = true;
            break;
          }
          work_(i);
        }
      }
    } catch (...) {
      is_over_ = true;
      thrown = std::current_exception();
    }
    std::lock_guard lock(mutex_);
    if (thrown) thrown_ = thrown;
    if (--running_ == 0) ends_.notify_all();
  }

  struct Numbers {
    size_t begin, end;
  };
  Numbers Take() {
    size_t begin = next_, end = 0;
    do end = begin + std::max<size_t>((count_ - begin) / portion_, begin < count_);
    while (!next_.compare_exchange_weak(begin, end));
    return {begin, end};
  }

  const size_t count_, portion_;
  const Work& work_;
  const Stop& stop_;
  std::atomic<size_t> next_ = 0, running_ = 0;
  std::atomic<bool> is_over_ = false;
  std::mutex mutex_;
  std::condition_variable ends_;
  std::exception_ptr thrown_;
  std::vector<std::jthread> threads_;
};

}  // namespace parallel_internal

// Calls work(i) once for each i in [0, count), on at most `threads` threads including the calling one. Which
// thread makes which call is not specified. Rethrows an exception of one of the calls; calls that had not
// begun by then are not made.
template <typename Work>
void ForEachInParallel(int threads, size_t count, const Work& work) {
  const auto never = [] { return false; };
  parallel_internal::Pool pool(count, /*portion=*/count + 1, work, never);
  const size_t most = std::min(static_cast<size_t>(std::max(threads, 1)), count);
  if (most > 1) pool.Start(most - 1);
  pool.Join();
  pool.Finish();
}

// The same on other threads, while the calling thread calls `idle` every now and then, at least once unless
// count is 0. Once `stop` returns true on any thread, no further call begins. A thread takes many consecutive
// numbers at a time, which may share what the first of them made, and one at a time towards the end.
template <typename Work, typename Idle, typename Stop>
void ForEachInParallel(int threads, size_t count, const Work& work, const Idle& idle, const Stop& stop) {
  if (count == 0) return;
  constexpr size_t kTurns = 8;  // per thread, if it always took equally many
  const size_t most = std::min(static_cast<size_t>(std::max(threads, 1)), count);
  parallel_internal::Pool pool(count, /*portion=*/kTurns * most, work, stop);
  pool.Start(most);
  if (!pool.has_threads()) pool.Join();
  do idle();
  while (!pool.EndsWithin(std::chrono::milliseconds(20)));
  pool.Finish();
}

}  // namespace windtunnel
