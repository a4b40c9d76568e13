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
  // Monte Carlo; odd, so that the median is one of them. If no cost has spread, only one is run; if a step
  // has more than 50,000 items (operators, dispatches, transfers, memory), fewer (at least five).
  int replicates = 101;
  bool fold = true;  // ranks that cannot be told apart are simulated once (sim/folding.h)
  int threads = 1;   // at most; results do not depend on it
};

struct PredictedMemory {
  std::vector<int> ranks;  // the role's
  MemoryPeak steady;
  Bytes initial_peak;             // start-up: initialisation and the first steps
  Bytes reserved, host_reserved;  // at the end of the last steady step simulated
};

struct Prediction {
  std::vector<Duration> step_times;  // one per replicate, ascending
  Duration p10, p50, p90;
  // By rank, of the replicate whose step time is the median. If ranks are folded, one of each class
  // (sim/folding.h).
  std::vector<Timeline> timelines;
  // By rank as `timelines`, the mean over the replicates between p25 and p75, scaled such that the mean over
  // ranks, `breakdown`, has the step time p50.
  std::vector<RankBreakdown> by_rank;
  StepBreakdown breakdown;
  // The part of the computation's time by which communication beside it slows it down (decision 27), in the
  // mean over ranks; of the median replicate. 0 where ranks share cores.
  Duration slowed;
  // Where the compute stream's time goes, by operator kind ("gemm", "wait all_reduce", "dispatch", …): mean
  // over ranks and over the replicates between p25 and p75. Adds up to their mean step time, but for a
  // picosecond each.
  // (AttributeTime of plan/timeline.h.)
  std::map<std::string, Duration> by_operator;
  std::vector<PredictedMemory> memory;  // by role
  Bytes initial_peak, peak_reserved;    // the largest over roles; of steady.reserved
  Bytes outside_allocator;
  Bytes device_memory;  // for the allocator and what is outside it; 0: not known
  double measured_share = 0, interpolated_share = 0, modelled_share = 0;  // of the busy time
  int64_t events = 0;  // of the event engine, over all runs
};

Result<Prediction> Predict(const Plan& plan, const CostModel& costs, const PredictOptions& options);

// Its memory alone: memory, initial_peak, peak_reserved, outside_allocator and device_memory.
Result<Prediction> PredictMemory(const Plan& plan, const CostModel& costs);

// The part of the device's memory that its allocator may use; Bytes::Max() if the memory is not known.
Bytes RoomForAllocator(const Plan& plan, const CostModel& costs);

// Prediction::p50 alone.
Result<Duration> PredictStepTime(const Plan& plan, const CostModel& costs, const PredictOptions& options);

}  // namespace windtunnel
