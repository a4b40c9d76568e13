// Answers to what people ask before they start a run: will it fit, how large may a micro-batch be, what do resharding after forward
// and a fused loss save and cost. Each is another plan, compiled and simulated.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "plan/plan.h"
#include "reports/ink.h"
#include "reports/remedies.h"
#include "sim/predict.h"

namespace windtunnel {

struct Capacity {
  Bytes bytes;     // that one rank may use
  std::string of;  // "the device's memory", "this machine's memory over 2 ranks"
};

// A batch.micro with which the scenario's steps fit `capacity` (what the allocator reserves, beside `outside` the allocator) and one more
// does not; 0 when not even 1 does. Searched up to `most` sequences, and found to fit there when nothing smaller fails. `fits_now`: whether
// the scenario as it is fits, where that is known.
Result<int64_t> LargestMicroBatch(const Scenario& scenario, const CompileScenario& compile, Bytes capacity,
                                  Bytes outside, int64_t most, std::optional<bool> fits_now = {});

// What a way of doing something comes to: the largest rank's peak of allocated memory, and the median step.
struct StepAndPeak {
  Bytes peak{};
  Duration step{};
};

// What becomes of parameters between forward and backward, and what comes of it.
struct Resharding : StepAndPeak {
  int64_t ranks = 1;  // that a unit is then in parts over; 1: whole on each (reshard_after_forward: false)
  int gathers = 0;  // of a step
};
using PredictPlan = std::function<Result<Prediction>(const Plan&)>;
// Whole; over all ranks of a shard group; and with FSDP 2 over as many as the scenario says, or, where a group has several nodes, those of
// one. Empty where the question does not arise: no FSDP that shards parameters.
Result<std::vector<Resharding>> WaysOfResharding(const Scenario& scenario, const CompileScenario& compile,
                                                 const PredictPlan& predict);

// With cross_entropy: fused. Nothing where the scenario has it, or its framework has no such loss.
Result<std::optional<StepAndPeak>> WithFusedLoss(const Scenario& scenario, const CompileScenario& compile,
                                                 const PredictPlan& predict);

// All of it as text; `prediction` is the scenario's. What cannot be answered says why in its place.
std::string AnswerQuestions(const Scenario& scenario, const Prediction& prediction,
                            const std::optional<Capacity>& capacity, const CompileScenario& compile,
                            const PredictPlan& predict, Ink ink);

}  // namespace windtunnel
