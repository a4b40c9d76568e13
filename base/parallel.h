// Work on independent pieces.
//
//   ForEachInParallel(Cores(), roles.size(), [&](size_t i) { memory[i] = SimulateMemory(roles[i]); });
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace windtunnel {

// Of this machine; at least one.
inline int Cores() { return static_cast<int>(std::max(std::thread::hardware_concurrency(), 1u)); }

// Calls work(i) once for each i in [0, count), on at most so many threads, this one among them; which one is left open. Throws what one of
// the calls has thrown; of those that had not begun by then, none does.
template <typename Work>
void ForEachInParallel(int threads, size_t count, const Work& work) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr thrown;
  const auto loop = [&] {
    try {
      for (size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      next = count;
      std::lock_guard lock(mutex);
      thrown = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    const size_t most = std::min(static_cast<size_t>(std::max(threads, 1)), count);
    for (size_t i = 1; i < most; ++i) others.emplace_back(loop);
    loop();
  }
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace windtunnel
