// How long a schedule takes when every stage takes the same time and communication is free: each rank runs its list in order,
// and an action starts once the rank is free and its input exists.
#pragma once

#include <vector>

#include "base/units.h"
#include "plan/schedule.h"

namespace windtunnel {

// Times of one stage and one micro-batch. (With v virtual stages a stage is a v-th of a rank's layers.)
struct StageTimes {
  Duration forward;
  Duration input_gradient;
  Duration weight_gradient;

  Duration backward() const { return input_gradient + weight_gradient; }
  Duration all() const { return forward + backward(); }
  Duration Of(ActionKind kind) const;  // zero for sends and receives
};

struct ScheduleTimes {
  std::vector<std::vector<Duration>> starts;  // by rank and position in its list
  Duration makespan;
};

// REQUIRES: computation only, and no fault (plan/schedule_check.h).
ScheduleTimes RunSchedule(const Schedule& schedule, const StageTimes& times);

// The makespan less one rank's own work: what a rank idles, waiting for others, before its first action, between its actions
// and after its last. All ranks have the same work.
Duration Bubble(const Schedule& schedule, const StageTimes& times);

}  // namespace windtunnel
