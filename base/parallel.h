// Work on independent pieces.
//
//   ForEachInParallel(Cores(), roles.size(), [&](size_t i) { memory[i] = SimulateMemory(roles[i]); });
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace windtunnel {

// Of this machine; at least one.
inline int Cores() { return static_cast<int>(std::max(std::thread::hardware_concurrency(), 1u)); }

// Calls work(i) once for each i in [0, count), on at most so many threads, this one among them; which one is left open.
template <typename Work>
void ForEachInParallel(int threads, size_t count, const Work& work) {
  std::atomic<size_t> next = 0;
  const auto loop = [&] {
    for (size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::jthread> others;
  const size_t most = std::min(static_cast<size_t>(std::max(threads, 1)), count);
  for (size_t i = 1; i < most; ++i) others.emplace_back(loop);
  loop();
}

}  // namespace windtunnel
