// Why a predicted pipeline idles as long as it does: the bubble of equal stages with free messages, and what unequal stages, messages,
// and the end of the step add to it. Each of these is the schedule run again with one more thing that it has in the prediction.
#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "base/units.h"
#include "plan/plan.h"
#include "plan/schedule_times.h"
#include "sim/predict.h"

namespace windtunnel {

// Means over micro-batches, of the predicted step. Backwards that are not split count as input gradients.
struct StageUse {
  StageTimes times;
  bool has_backward = false, has_split = false;  // backwards of both gradients; of inputs and weights apart
};

// Messages of one data-parallel replica (and one tensor rank of it) in a step.
struct MessageUse {
  Bytes bytes;  // of the largest one
  int64_t count = 0;
  Duration time;  // the median: from when it is made to when it has arrived
};

struct PipelineUse {
  std::vector<StageUse> stages;
  std::map<Action, Duration> actions;
  MessageUse messages;
  std::vector<Duration> tail;  // by pipeline rank: computing and exposed collectives after its last action
};
// Of the ranks that have a timeline. REQUIRES: plan.pipeline.
PipelineUse PipelineUseOf(const Plan& plan, const std::vector<Timeline>& timelines);

// Means over pipeline ranks of the time that a rank waits for another.
struct BubbleParts {
  std::optional<Duration>
      closed_form;  // of equal stages and free messages, where the schedule has one (plan/schedule_bubble.h)
  Duration equal_stages;   // the same, by running the schedule
  Duration own_times;      // with each stage's own times, their means over micro-batches
  Duration own_actions;    // with each micro-batch's: first forwards may wait for parameters
  Duration with_messages;  // and messages that take their time
  Duration with_end;       // and the end of the step: optimizer, exposed collectives, a barrier
  Duration predicted;
};
BubbleParts BubblePartsOf(const Plan& plan, const Prediction& prediction, const PipelineUse& use);

// The arguments that made the plan's schedule, where a named generator did. REQUIRES: plan.pipeline.
struct ScheduleRequest;
std::optional<ScheduleRequest> RequestOf(const Plan& plan);

}  // namespace windtunnel
