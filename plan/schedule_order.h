// One order of all that a pipeline's schedule does, computations and messages of all ranks: whatever one of them waits for comes before it.
//
// By the time at which things happen when F, I and W take one unit of time each, and messages none.
#pragma once

#include <vector>

#include "plan/schedule.h"

namespace windtunnel {

struct ScheduleEvent {
  Action action;  // a computation; or a send, which stands for the whole message
  int rank = 0;   // that does it
};

// A message for each result that another rank needs. REQUIRES: computation only, and no fault (plan/schedule_check.h).
std::vector<ScheduleEvent> InOneOrder(const Schedule& schedule);

}  // namespace windtunnel
