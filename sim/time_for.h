// The time that work takes at a speed, computed in the same way by all executors.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace windtunnel {

// Virtual time can represent twice as much.
inline constexpr Duration kLongestStep = Seconds(50.0 * 24 * 3600);

// The time that `work` (picoseconds at speed 1) takes at `speed`, in whole picoseconds. It is rounded up, so
// that an activity never ends before its work is done. A remainder of up to a thousandth of a picosecond is
// ignored: floating point leaves less than that of finished work. At most kLongestStep.
inline Duration TimeFor(double work, double speed) {
  constexpr double kNothing = 1e-3;
  const double exact = work / speed - kNothing;
  if (exact >= static_cast<double>(kLongestStep.picoseconds())) return kLongestStep;
  const auto whole = static_cast<int64_t>(exact);
  return Picoseconds(whole + (static_cast<double>(whole) < exact ? 1 : 0));
}

}  // namespace windtunnel
