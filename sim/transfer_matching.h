// Which operators of which ranks belong together, as a communication library decides it: the k-th collective
// of a group on one rank meets the k-th on every other; the k-th send from a to b meets b's k-th receive from
// a.
#pragma once

#include "base/result.h"
#include "sim/step_schedule.h"

namespace windtunnel {

// Fills in the schedule's transfers, participants and transfer_of_position. REQUIRES: ranks and queues are
// laid out.
// Errors: Failed when operators that meet differ in kind, element type, size or root (names both).
Status MatchTransfers(StepSchedule& schedule);

}  // namespace windtunnel
