// Why a predicted pipeline idles as long as it does: the bubble of equal stages with free messages, and what
// unequal stages, messages and the end of the step add to it. Each of these is found by running the schedule
// again with one more effect that the prediction has.
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

// A stage's mean times over the micro-batches of the predicted step. Backwards that are not split count as
// input gradients.
struct StageUse {
  StageTimes times;
  // Whether it has backwards of both gradients, and backwards split into input and weight gradients.
  bool has_backward = false, has_split = false;
};

// Messages of one data-parallel replica (and one tensor rank of it) in a step.
struct MessageUse {
  Bytes bytes;  // of the largest one
  int64_t count = 0;
  Duration time;  // the median, from when a message is made to when it has arrived
};

struct PipelineUse {
  std::vector<StageUse> stages;
  std::map<Action, Duration> actions;
  MessageUse messages;
  std::vector<Duration> tail;  // by pipeline rank: compute and exposed collectives after its last action
};
// Of the pipeline ranks that have a timeline. REQUIRES: plan.pipeline.
PipelineUse PipelineUseOf(const Plan& plan, const std::vector<Timeline>& timelines);

// The time that a rank waits for another, as a mean over pipeline ranks. From equal_stages on, each member
// has one more effect than the one before.
struct BubbleParts {
  // Of equal stages and free messages, where the schedule has a closed form (plan/schedule_bubble.h).
  std::optional<Duration> closed_form;
  Duration equal_stages;   // the same, found by running the schedule
  Duration own_times;      // with each stage's own times, as means over micro-batches
  Duration own_actions;    // with each micro-batch's own times: first forwards may wait for parameters
  Duration with_messages;  // and with messages that take time
  Duration with_end;       // and with the end of the step: optimizer, exposed collectives, a barrier
  Duration predicted;
};
BubbleParts BubblePartsOf(const Plan& plan, const Prediction& prediction, const PipelineUse& use);

// The arguments from which a named generator made the plan's schedule; nothing if none did. REQUIRES:
// plan.pipeline.
struct ScheduleRequest;
std::optional<ScheduleRequest> RequestOf(const Plan& plan);

}  // namespace windtunnel
