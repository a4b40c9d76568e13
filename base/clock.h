// The times of the system's clocks as Duration, to the nanosecond.
#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>

#include "base/units.h"

namespace windtunnel {

constexpr Duration DurationOf(std::chrono::nanoseconds time) { return Picoseconds(time.count() * 1000); }

// What one of clock_gettime's clocks shows.
inline int64_t NanosecondsOn(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}
inline Duration TimeOn(clockid_t clock) { return Picoseconds(NanosecondsOn(clock) * 1000); }

}  // namespace windtunnel
