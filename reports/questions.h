// Answers to what people ask before they start a run: will it fit, how large may a micro-batch be, what do
// resharding after forward, a fused loss and activations on the host save and cost. Each answer compiles and
// simulates another plan.
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
  Bytes bytes;     // what one rank may use
  std::string of;  // "the device's memory", "this machine's memory over 2 ranks"
};

// Returns a batch.micro with which the scenario's steps fit while one more does not; 0 when not even 1 fits.
// Steps fit if what the allocator reserves and the bytes `outside` it are within `capacity`. The search goes
// up to `most` sequences and returns `most` when no size that it tries fails. `fits_now`: whether the
// scenario as it is fits, if that is known.
Result<int64_t> LargestMicroBatch(const Scenario& scenario, const CompileScenario& compile, Bytes capacity,
                                  Bytes outside, int64_t most, std::optional<bool> fits_now = {});

// What a variant of the scenario takes: the largest rank's peak of allocated memory, and the median step.
struct StepAndPeak {
  Bytes peak{};
  Duration step{};
};

// How parameters are kept between forward and backward, and what that takes.
struct Resharding : StepAndPeak {
  // The ranks over which a unit is sharded in between; 1: whole on each rank (reshard_after_forward: false).
  int64_t ranks = 1;
  int gathers = 0;  // all-gathers in a step
};
// The choices: whole; sharded over all ranks of a shard group; and, with FSDP 2, over as many ranks as the
// scenario says or, where a group spans several nodes, over those of one node. Empty without FSDP that shards
// parameters.
Result<std::vector<Resharding>> WaysOfResharding(const Scenario& scenario, const CompileScenario& compile,
                                                 const PredictPlan& predict);

// The scenario with cross_entropy: fused. Nothing if the scenario has that already, or if its framework has
// no such loss.
Result<std::optional<StepAndPeak>> WithFusedLoss(const Scenario& scenario, const CompileScenario& compile,
                                                 const PredictPlan& predict);

// What activation_offload takes, and what it takes without; the host memory of a node with it.
struct Offloading {
  StepAndPeak on_host, on_device;
  Bytes of_node{};
};
// `prediction` is the scenario's. Nothing if activations cannot leave the device, or if the framework does not
// move them (FrameworkDoubts).
Result<std::optional<Offloading>> ActivationsOnHost(const Scenario& scenario, const Prediction& prediction,
                                                    const CompileScenario& compile,
                                                    const PredictPlan& predict);

// "  will it fit?  yes: 71.2 GiB reserved and 1.45 GiB outside the allocator, of the device's memory, …"
std::string DescribeFit(const Prediction& prediction, const Capacity& capacity);

// All answers as text; `plan` and `prediction` are the scenario's. Where there is no answer, the text says why.
// What a loss, activations on the host and resharding save and cost is compared with the plan's stages.
std::string AnswerQuestions(const Scenario& scenario, const Plan& plan, const Prediction& prediction,
                            const std::optional<Capacity>& capacity, const CompileScenario& compile,
                            const PredictPlan& predict, Ink ink);

}  // namespace windtunnel
