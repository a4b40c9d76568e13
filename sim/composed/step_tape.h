// One rank's steady step as the sequence of what its host does, with all costs, so that equal parts of it can
// be recognized and repeated. A wait names its operator by how far back in a queue it is, so that it reads
// the same anywhere in the step.
//
//   WT_ASSIGN_OR_RETURN(const TapedPlan taped, TapeOf(plan, model));
//   WT_ASSIGN_OR_RETURN(const Duration time, RunTape(taped.tape, taped.schedule));   // what PredictStepTime says of the plan
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "cost_models/cost_model.h"
#include "plan/plan.h"
#include "sim/step_schedule.h"

namespace windtunnel::composed {

// All but the last `back` operators that have been issued to the queue so far must be done.
struct TapeNeed {
  int32_t queue = 0;
  int32_t back = 0;
  bool operator==(const TapeNeed&) const = default;
};

struct TapeItem {
  enum class Kind : uint8_t { kHost, kIssue, kWait, kMemory };
  Kind kind = Kind::kHost;
  Engine engine = Engine::kKernels;  // kIssue
  int32_t queue = 0;                 // kIssue; kWait: see `back`
  int32_t back = 0;                  // kWait: for all but the last `back` operators issued to the queue
  // Picoseconds of the host (kHost) or of the operator (kIssue); bytes of device memory as the allocator
  // rounds them, negative if freed (kMemory).
  int64_t amount = 0;
  double efficiency = 1;               // kIssue: of kernels beside it
  double beside_communication = 0;     // kIssue: of a kernel, as KernelCost's
  bool holds_multiprocessors = false;  // kIssue: of communication, as CommunicationCost's
  int32_t first_need = 0, needs = 0;   // kIssue: into StepTape::needs
  OpIndex op = -1;  // in the plan that the tape was made from; kMemory: index into Program::memory
};

struct StepTape {
  std::vector<TapeItem> items;
  std::vector<TapeNeed> needs;
  int32_t queues = 0;

  std::span<const TapeNeed> NeedsOf(const TapeItem& item) const {
    return std::span(needs).subspan(static_cast<size_t>(item.first_need), static_cast<size_t>(item.needs));
  }
};

// Whether two runs of items do the same, at the same cost.
bool AreAlike(const StepTape& tape, std::span<const TapeItem> a, std::span<const TapeItem> b);

struct TapedPlan {
  StepSchedule schedule;
  StepTape tape;
};
// For a plan whose ranks all do the same, on devices that run kernels in queues of their own. The plan must
// outlive the result.
// Errors: Unsupported for another plan, and for costs that are no constants; the model's.
Result<TapedPlan> TapeOf(const Plan& plan, const CostModel& model);

// The time of a step that does what the tape says. `like` is the schedule of the plan that the tape was made
// from. Errors: StepExecutor's.
Result<Duration> RunTape(const StepTape& tape, const StepSchedule& like);

}  // namespace windtunnel::composed
