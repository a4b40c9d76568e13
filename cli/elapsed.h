// How long something has taken.
#pragma once

#include <chrono>

#include "base/units.h"

namespace windtunnel {

inline double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

inline Duration TimeSince(std::chrono::steady_clock::time_point begin) {
  return Seconds(SecondsSince(begin));
}

}  // namespace windtunnel
