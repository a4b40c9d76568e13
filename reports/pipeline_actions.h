// A pipeline's schedule as it ran, from a timeline: when each rank worked on which stage and micro-batch.
//
//   for (const ActionSpan& span : ActionSpans(plan, timeline))  // prints 0F0 12.3 ms, 0F1 …
//     fmt::print("{} {}\n", FormatAction(span.action), FormatDuration(span.end - span.start));
#pragma once

#include <string>
#include <vector>

#include "base/units.h"
#include "plan/plan.h"
#include "plan/timeline.h"

namespace windtunnel {

// A computation of the schedule: a forward, a backward, an input-gradient or a weight-gradient. The span goes
// from the start of its first operator on the compute stream to the end of its last, so waiting before the
// first is not included. Where a forward and a backward are paired and take turns, each turn is one span.
struct ActionSpan {
  Action action;
  Duration start, end;
};
// In time order. Empty without a pipeline.
std::vector<ActionSpan> ActionSpans(const Plan& plan, const Timeline& timeline);

// The same with one span per computation, from its first turn to its last, ordered by start. `half` is set
// for computations in pairs: upper for the forward, lower for the backward.
struct WholeActionSpan : ActionSpan {
  enum class Half : uint8_t { kNone, kUpper, kLower } half = Half::kNone;
};
std::vector<WholeActionSpan> WholeActionSpans(const Plan& plan, const Timeline& timeline);

// Finds the computation that an operator of a role belongs to.
class ActionLookup {
 public:
  // The role is that of pipeline rank `pipeline_rank`. REQUIRES: plan.pipeline.
  ActionLookup(const Plan& plan, int pipeline_rank);
  // Returns false if the operator belongs to none. The optimizer's operators do not, nor does communication,
  // except that of activations among tensor-parallel ranks.
  bool Find(const Op& op, Action& action) const;

 private:
  int64_t micro_batches_;
  std::vector<bool> is_split_;  // by stage and micro-batch: the backward computes input gradients only
};

// One timeline per pipeline rank: that of the first data-parallel and first tensor rank, or of a rank that
// stands for it (where one rank of each role was simulated). Null where there is none. REQUIRES:
// plan.pipeline.
std::vector<const Timeline*> TimelinesByPipelineRank(const Plan& plan,
                                                     const std::vector<Timeline>& timelines);

// Stages of a pipeline rank, ascending. REQUIRES: plan.pipeline.
std::vector<int> StagesOfRank(const Plan& plan, int pipeline_rank);

// The computations of the schedule, without sends and receives. REQUIRES: plan.pipeline.
Schedule ComputationsOf(const Plan& plan);

// A role's name in at most `columns` columns: as many of the last stages as necessary are replaced by "…".
std::string ShortRoleName(const Role& role, size_t columns);

}  // namespace windtunnel
