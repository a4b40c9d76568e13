// The pipeline that a scenario describes: its schedule, and which layers each stage has. If the scenario does
// not say the latter, layers are balanced by their cost, or by their number as the framework does it.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "plan/schedule.h"
#include "plan/step_program.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// The times of operators, all in the same unit, whichever that is.
struct OperatorTimes {
  std::function<double(const Op&)> work;
  // The time of a host that issues the operator to a device. Empty: the host computes.
  std::function<double(const Op&)> host = {};
  // The time of a collective over the axis of that name ("tensor", "context", "expert"), which is assumed to
  // overlap with nothing. Empty: collectives do not count.
  std::function<double(const Op&, std::string_view axis)> collective = {};
};
// The time where nothing is measured: arithmetic plus memory traffic, at 50 operations per byte, which is
// between a CPU's and a GPU's balance.
double RoughTime(const Op& op);

// The schedule that the scenario names, generated or read from its file, without communication.
// REQUIRES: parallel.pipeline.size > 1.
// Errors: InvalidInput for a number of micro-batches or virtual stages that the schedule does not run with,
// or a faulty file.
Result<Schedule> ScheduleOf(const Scenario& scenario);

// The number of layers of each stage, balanced by the time of a micro-batch's forward and backward
// (BalanceStages; BalanceRanks where ranks have several stages); embedding and head count in the stages that
// they are in, and may be all that a transformer's first and last stages have. The time of each part is the
// device's or the host's, whichever is longer.
// If `capacity`, a device's memory, is known and each rank has one stage, no stage gets more than fits, as
// far as parameters' states and, beside them, activations in flight or the optimizer's conversions tell, and
// unless nothing fits at all. Megatron and DeepSpeed do not look at costs: all stages have the same number of
// layers; where these do not divide evenly, embedding and head count as a layer each (and are stages by
// themselves where there are two stages more than layers).
// Errors: those of ScheduleOf and CheckSplits; InvalidInput for more stages than layers.
Result<std::vector<int64_t>> ChooseBalance(const Scenario& scenario, const OperatorTimes& times,
                                           Bytes capacity = Bytes::Max());

}  // namespace windtunnel
