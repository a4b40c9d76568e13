// A prediction: the plan's programs executed in virtual time, with costs drawn from their distributions.
//
// The same plan, costs and seed give the same prediction to the last bit on any machine.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "cost_models/cost_model.h"
#include "plan/plan.h"
#include "plan/timeline.h"

namespace windtunnel {

struct PredictOptions {
  uint64_t seed = 0;
  int replicates =
      101;  // Monte Carlo; odd, so that the median is one of them. One run does where no cost has spread, and fewer (at least
            // five) where a step has more than 50,000 operators.
  bool fold = true;  // ranks that cannot be told apart are simulated once (sim/folding.h)
  int threads = 1;   // at most; no number depends on it
};

struct PredictedMemory {
  std::vector<int> ranks;  // the role's
  MemoryPeak steady;
  Bytes initial_peak;             // start-up: initialisation and the first steps
  Bytes reserved, host_reserved;  // at the end of the first steady step
};

struct Prediction {
  std::vector<Duration> step_times;  // one a replicate, ascending
  Duration p10, p50, p90;
  // By rank, of the replicate whose step time is the median. Of one rank of each class where it stands for all (sim/folding.h).
  std::vector<Timeline> timelines;
  StepBreakdown breakdown;  // of those, averaged over ranks
  // Where the compute stream's time goes, by operator kind ("gemm", "wait all_reduce", "dispatch", …): mean over ranks and
  // over the replicates between p25 and p75. Adds up to their mean step time. (AttributeTime of plan/timeline.h.)
  std::map<std::string, Duration> by_operator;
  std::vector<PredictedMemory> memory;  // by role
  Bytes initial_peak, peak_reserved;    // the largest of those over roles
  Bytes outside_allocator;
  Bytes device_memory;                                                    // for both of them; 0: not known
  double measured_share = 0, interpolated_share = 0, modelled_share = 0;  // of the busy time
  int64_t events = 0;  // of the event engine, over all runs
};

Result<Prediction> Predict(const Plan& plan, const CostModel& costs, const PredictOptions& options);

// Its memory alone: memory, initial_peak, peak_reserved, outside_allocator and device_memory.
Result<Prediction> PredictMemory(const Plan& plan, const CostModel& costs);

// What the allocator has of the device's memory; Bytes::Max() where that is not known.
Bytes RoomForAllocator(const Plan& plan, const CostModel& costs);

// Prediction::p50 alone.
Result<Duration> PredictStepTime(const Plan& plan, const CostModel& costs, const PredictOptions& options);

}  // namespace windtunnel
