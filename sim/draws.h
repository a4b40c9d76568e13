// Random numbers of a replicate. Each (rank, operator) owns four counters of the replicate's stream, one for
// each Draw, so that no draw depends on another.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/random.h"
#include "plan/step_program.h"

namespace windtunnel {

enum class Draw : uint64_t { kKernel, kDispatch, kTransfer, kLateness };
constexpr uint64_t CounterOf(int32_t rank, OpIndex op, Draw what) {
  return (static_cast<uint64_t>(rank) << 34) + (static_cast<uint64_t>(op) << 2) + static_cast<uint64_t>(what);
}

// A factor with mean 1 and relative standard deviation `jitter`, at least kLeast: never close to 0 or
// negative.
inline double JitterFactor(uint64_t bits, double jitter) {
  constexpr double kLeast = 0.05;
  return jitter == 0 ? 1 : std::max(kLeast, 1 + jitter * RandomStream(bits, 1).Normal());
}

}  // namespace windtunnel
