// What all executors take for the time of work that has a speed.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace windtunnel {

// Virtual time has room for twice as much.
inline constexpr Duration kLongestStep = Seconds(50.0 * 24 * 3600);

// The time that `work` (picoseconds at speed 1) takes at `speed`, in whole picoseconds: rounded up, so that an activity never ends before
// its work is done, but for a thousandth of a picosecond, which is more than floating point makes of nothing left. At most kLongestStep.
inline Duration TimeFor(double work, double speed) {
  constexpr double kNothing = 1e-3;
  const double exact = work / speed - kNothing;
  if (exact >= static_cast<double>(kLongestStep.picoseconds())) return kLongestStep;
  const auto whole = static_cast<int64_t>(exact);
  return Picoseconds(whole + (static_cast<double>(whole) < exact ? 1 : 0));
}

}  // namespace windtunnel
