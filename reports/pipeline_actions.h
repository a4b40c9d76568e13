// A pipeline's schedule as it ran: which rank worked on which stage and micro-batch when, out of a timeline.
//
//   for (const ActionSpan& span : ActionSpans(plan, timeline))
//     fmt::print("{} {}\n", FormatAction(span.action), FormatDuration(span.end - span.start));  // 0F0 12.3 ms, 0F1 …
#pragma once

#include <string>
#include <vector>

#include "base/units.h"
#include "plan/plan.h"
#include "plan/timeline.h"

namespace windtunnel {

// A computation of the schedule: a forward, a backward, an input-gradient or a weight-gradient. From the start of its first
// operator on the compute stream to the end of its last: what it waited for before it began is not in it. Of a pair that takes turns: a
// turn of either.
struct ActionSpan {
  Action action;
  Duration start, end;
};
// In time order. Empty without a pipeline.
std::vector<ActionSpan> ActionSpans(const Plan& plan, const Timeline& timeline);

// The same, but each computation once, from its first turn to its last; by its start. What runs beside another has `half`: forwards of a pair
// the upper, backwards the lower.
struct WholeActionSpan : ActionSpan {
  enum class Half : uint8_t { kNone, kUpper, kLower } half = Half::kNone;
};
std::vector<WholeActionSpan> WholeActionSpans(const Plan& plan, const Timeline& timeline);

// The computation that an operator of a role belongs to, where it has one.
class ActionLookup {
 public:
  // REQUIRES: plan.pipeline. The role is that of pipeline rank `pipeline_rank`.
  ActionLookup(const Plan& plan, int pipeline_rank);
  // False: none, such as the optimizer's, and communication but for that of activations among tensor-parallel ranks.
  bool Find(const Op& op, Action& action) const;

 private:
  int64_t micro_batches_;
  std::vector<bool> is_split_;  // by stage and micro-batch: the backward makes gradients of inputs alone
};

// Pipeline ranks' timelines, one each: of the first data-parallel and first tensor rank, or of a rank that stands for it (where one
// rank of each role was simulated). Null where there is none. REQUIRES: plan.pipeline.
std::vector<const Timeline*> TimelinesByPipelineRank(const Plan& plan,
                                                     const std::vector<Timeline>& timelines);

// Stages of a pipeline rank, ascending. REQUIRES: plan.pipeline.
std::vector<int> StagesOfRank(const Plan& plan, int pipeline_rank);

// The computations of the schedule, without sends and receives. REQUIRES: plan.pipeline.
Schedule ComputationsOf(const Plan& plan);

// A role's name in at most `columns` columns: the last stages give way to "…".
std::string ShortRoleName(const Role& role, size_t columns);

}  // namespace windtunnel
