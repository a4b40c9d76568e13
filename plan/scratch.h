// When the live runtime sums in one step instead of around a ring. plan/scratch.cc gives such sums no
// scratch, and runtime/direct.cc runs them.
#pragma once

#include "base/units.h"

namespace windtunnel {

// The most bytes that a rank sends the direct way; beyond it rings win (bench/collective_bench.cc).
inline constexpr Bytes kDirectBytes = KiB(256);
// The most ranks of a group that send each other whole messages.
inline constexpr int kDirectRanks = 8;

}  // namespace windtunnel
