// Changes that would make a step fit in memory: more recomputation, sharding, smaller micro-batches or
// offload, alone and together.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "plan/plan.h"
#include "scenarios/scenario.h"
#include "sim/predict.h"

namespace windtunnel {

// Compiles a scenario's plan as a prediction does: CompilePlan, or the same with balanced stages.
using CompileScenario = std::function<Result<Plan>(const Scenario&)>;
using PredictPlan = std::function<Result<Prediction>(const Plan&)>;

// The scenario with only as many micro-batches as fill the pipeline and repeat: many schedules hold no more
// memory with more. A plan of few micro-batches is compiled faster than one of many.
Scenario WithFewMicroBatches(Scenario scenario);

struct Remedy {
  std::vector<std::string> settings;  // as arguments of --set: "recompute=full"
  Scenario scenario;
};

// The remedies that change the scenario, that its other keys allow, and that its framework runs; those that
// tend to cost little time come first.
std::vector<Remedy> RemediesFor(const Scenario& scenario);

// Takes micro-batches of `micro` sequences, and more of them; false if the remedy's are not a larger multiple.
bool TakeSequences(int64_t micro, Remedy& remedy);

// Whether the framework does not run `changed` (FrameworkDoubts) for a reason that `scenario` has not.
bool AddsDoubts(const Scenario& scenario, const Scenario& changed);

// The most memory that the allocator reserves in the remedy's steps if memory is unlimited. The plan has few
// micro-batches (WithFewMicroBatches) if its schedule holds no more with more. Errors: those of `compile`.
Result<Bytes> ReservedWith(const Remedy& remedy, const CompileScenario& compile);

// The remedies that fit and whose steps are predicted to be the shortest, each with the memory of a device and
// the step time, as text; if none fits, the one that needs least. `room` is the memory for the allocator,
// `outside` what is taken beside it.
std::string DescribeRemedies(const Scenario& scenario, Bytes room, Bytes outside,
                             const CompileScenario& compile, const PredictPlan& predict);

}  // namespace windtunnel
