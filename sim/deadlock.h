// Ranks that wait for each other for ever: who waits for what.
#pragma once

#include <vector>

#include "base/result.h"
#include "sim/step_schedule.h"

namespace windtunnel {

// Where a rank stands when nothing can proceed.
struct RankSnapshot {
  struct Queue {
    int32_t issued = 0, done = 0;
    bool has_arrived = false;  // its head, whose prerequisites on the rank are done
  };
  bool is_waiting = false;  // in `action`, which is a kWait
  int32_t action = 0;
  std::vector<Queue> queues;  // in the order of the rank's RoleSchedule::queues
};

// Lists for each rank that has not finished the operator that its host waits for, and the operators at the
// heads of its queues, each with the ranks that have not arrived or the operator of another queue that it
// waits for.
Error DeadlockError(const StepSchedule& schedule, const std::vector<RankSnapshot>& ranks);

}  // namespace windtunnel
