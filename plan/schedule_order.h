// A total order of a schedule's computations and messages: whatever an event waits for comes before it.
//
// Events are sorted by when they happen if F, I and W take one unit of time each, and messages none.
#pragma once

#include <vector>

#include "plan/schedule.h"

namespace windtunnel {

struct ScheduleEvent {
  Action action;  // a computation; or a send, which stands for the whole message
  int rank = 0;   // the rank that computes or sends
};

// The computations of `schedule`, plus a message for each result that another rank needs.
// REQUIRES: computation only, and no fault (plan/schedule_check.h).
std::vector<ScheduleEvent> InOneOrder(const Schedule& schedule);

}  // namespace windtunnel
