// How long a schedule takes: each rank runs its list in order, and an action starts once the rank is free and
// its input is there.
#pragma once

#include <functional>
#include <vector>

#include "base/units.h"
#include "plan/schedule.h"

namespace windtunnel {

// Times of one stage and one micro-batch. (With v virtual stages a stage is 1/v of a rank's layers.)
struct StageTimes {
  Duration forward;
  Duration input_gradient;
  Duration weight_gradient;

  Duration backward() const { return input_gradient + weight_gradient; }
  Duration all() const { return forward + backward(); }
  Duration Of(ActionKind kind) const;  // zero for sends and receives
};

struct ScheduleTimes {
  // By rank and position in its list; both actions of a pair start at the same time.
  std::vector<std::vector<Duration>> starts;
  std::vector<Duration> work, done;  // by rank: the total time of its actions; the end of the last one
  Duration makespan;
};

// Runs `schedule` with `time` for every action and `message` for every message between ranks.
// REQUIRES: computation only, and no fault (plan/schedule_check.h).
using ActionTime = std::function<Duration(const Action&)>;
ScheduleTimes RunSchedule(const Schedule& schedule, const ActionTime& time, Duration message = {});
// Every stage takes the same time, and messages are free.
ScheduleTimes RunSchedule(const Schedule& schedule, const StageTimes& times);

}  // namespace windtunnel
