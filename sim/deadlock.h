// Ranks that wait for each other for ever: who waits for what.
#pragma once

#include <vector>

#include "base/result.h"
#include "sim/step_schedule.h"

namespace windtunnel {

// Where a rank was when nothing could go on.
struct RankSnapshot {
  struct Queue {
    int32_t issued = 0, done = 0;
    bool has_arrived = false;  // its head
  };
  bool is_waiting = false;  // inside `action`, a kWait
  int32_t action = 0;
  std::vector<Queue> queues;  // as the rank's RoleSchedule::queues
};

// One line for each rank that has not finished: the operator that its host waits for, and the operators at the heads of its
// queues with the ranks that have not come, or the operator of another queue that they wait for.
Error DeadlockError(const StepSchedule& schedule, const std::vector<RankSnapshot>& ranks);

}  // namespace windtunnel
