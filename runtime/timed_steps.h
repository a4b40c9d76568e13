// The time of each measured step on a rank, and the timelines of some of them, since training may
// go on for millions of steps.
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
  std::vector<Timeline> timelines;  // of every stride-th step, from the first on

  // Adds a step. When `most` timelines are kept already, every second one is dropped. Ranks that add
  // the same number of steps with the same `most` keep the timelines of the same steps. REQUIRES: most
  // >= 2, the same in every call.
  void Add(Timeline timeline, int64_t most);
};

// The number of timelines that a rank of `plan` keeps: about 260,000 spans together, and
// 32 timelines at least.
int64_t KeptTimelines(const Plan& plan);

}  // namespace windtunnel
