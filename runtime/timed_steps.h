// How long each measured step took on a rank, and the timelines of as many of them as are worth keeping: training may go on for
// millions of steps.
//
//   TimedSteps steps;
//   steps.Add(std::move(timeline), KeptTimelines(plan));   // after each step
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"
#include "plan/plan.h"
#include "plan/timeline.h"

namespace windtunnel {

struct TimedSteps {
  std::vector<Duration> times;      // of every step
  int64_t stride = 1;               // a power of two
  std::vector<Timeline> timelines;  // of every stride-th step, the first one's first

  // Where `most` timelines are kept already, every second is dropped. Ranks that add as many steps with the same `most` keep those of the
  // same steps. REQUIRES: most >= 2, the same in every call.
  void Add(Timeline timeline, int64_t most);
};

// How many a rank of `plan` keeps: about 260,000 spans, and 32 timelines at least.
int64_t KeptTimelines(const Plan& plan);

}  // namespace windtunnel
