// Work on independent pieces.
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

// Of this machine; at least one.
inline int Cores() { return static_cast<int>(std::max(std::thread::hardware_concurrency(), 1u)); }

namespace parallel_internal {

// Threads that take numbers from [0, count) in order, until one of the calls throws or `stop` says so.
template <typename Work, typename Stop>
class Pool {
 public:
  Pool(size_t count, const Work& work, const Stop& stop) : count_(count), work_(work), stop_(stop) {}
  ~Pool() { next_ = count_; }  // whoever leaves by an exception wants no more of it

  // Further threads; fewer where the machine gives no more.
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
  // On the calling thread.
  void Join() {
    ++running_;
    Run();
  }
  // Whether all have ended, within that time.
  bool EndsWithin(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return ends_.wait_for(lock, time, [&] { return running_ == 0; });
  }
  bool has_threads() const { return !threads_.empty(); }
  // After all have ended.
  void Finish() {
    threads_.clear();
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  void Run() {
    std::exception_ptr thrown;
    try {
      for (size_t i = next_++; i < count_ && !stop_(); i = next_++) work_(i);
    } catch (...) {
      next_ = count_;
      thrown = std::current_exception();
    }
    std::lock_guard lock(mutex_);
    if (thrown) thrown_ = thrown;
    if (--running_ == 0) ends_.notify_all();
  }

  const size_t count_;
  const Work& work_;
  const Stop& stop_;
  std::atomic<size_t> next_ = 0, running_ = 0;
  std::mutex mutex_;
  std::condition_variable ends_;
  std::exception_ptr thrown_;
  std::vector<std::jthread> threads_;
};

}  // namespace parallel_internal

// Calls work(i) once for each i in [0, count), on at most so many threads, this one among them; which one is left open. Throws what one of
// the calls has thrown; of those that had not begun by then, none does.
template <typename Work>
void ForEachInParallel(int threads, size_t count, const Work& work) {
  const auto never = [] { return false; };
  parallel_internal::Pool pool(count, work, never);
  const size_t most = std::min(static_cast<size_t>(std::max(threads, 1)), count);
  if (most > 1) pool.Start(most - 1);
  pool.Join();
  pool.Finish();
}

// The same on other threads, in order of i as far as threads go, with a call of `idle` on this one every now and then, at least one unless
// there is nothing to do. Nothing more begins once `stop` says so, on any thread.
template <typename Work, typename Idle, typename Stop>
void ForEachInParallel(int threads, size_t count, const Work& work, const Idle& idle, const Stop& stop) {
  if (count == 0) return;
  parallel_internal::Pool pool(count, work, stop);
  pool.Start(std::min(static_cast<size_t>(std::max(threads, 1)), count));
  if (!pool.has_threads()) pool.Join();
  do idle();
  while (!pool.EndsWithin(std::chrono::milliseconds(20)));
  pool.Finish();
}

}  // namespace windtunnel
