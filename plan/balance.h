// What the scenario or its framework says of a pipeline: its schedule, and which layers are in which stage where the scenario does
// not say, by what layers cost or as the framework counts them.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "plan/op.h"
#include "plan/schedule.h"
#include "plan/stages.h"
#include "plan/step_program.h"

namespace windtunnel {

// What operators take, in any unit, which is the same for all.
struct OperatorTimes {
  std::function<double(const Op&)> work;
  // Of a host that issues them to a device. None: the host computes.
  std::function<double(const Op&)> host = {};
  // Of collectives over the axis of that name ("tensor", "context", "expert"), which nothing is taken to hide. None: they do not count.
  std::function<double(const Op&, std::string_view axis)> collective = {};
};
// Where nothing is measured: arithmetic and memory traffic, at a balance of 50 operations a byte that is between a CPU's and a GPU's.
double RoughTime(const Op& op);

// The schedule that the scenario names, made or read, without communication. REQUIRES: parallel.pipeline.size > 1.
// Errors: InvalidInput for a number of micro-batches or virtual stages that it does not run with, or a faulty file.
Result<Schedule> ScheduleOf(const Scenario& scenario);

// Layers for each stage, by the time of a micro-batch's forward and backward in them (BalanceStages): embedding and head count where they are.
// Of each part the device's time or the host's, whichever is longer.
// Where `capacity`, of a device, is known and each rank has one stage, no stage is given more than fits, as far as states of
// parameters and activations in flight tell, and as long as anything fits at all. Megatron and DeepSpeed know no costs: each stage has as
// many layers as the next; where that does not come out, embedding and head count as a layer each (and are stages by themselves where
// there are two stages more than layers).
// Errors: those of ScheduleOf and CheckSplits; InvalidInput for more stages than layers.
Result<std::vector<int64_t>> ChooseBalance(const Scenario& scenario, const OperatorTimes& times,
                                           Bytes capacity = Bytes::Max());

}  // namespace windtunnel
