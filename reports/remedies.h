// What would make a step fit that does not: other recomputation, sharding, micro-batches or offload, alone and together.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "plan/plan.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// A scenario's plan, as a prediction of it has it: CompilePlan, or with stages balanced for it.
using CompileScenario = std::function<Result<Plan>(const Scenario&)>;

// As many micro-batches as fill a pipeline and repeat: most schedules hold no more later. Few are compiled sooner than many.
Scenario WithFewMicroBatches(Scenario scenario);

struct Remedy {
  std::vector<std::string> settings;  // as --set takes them: "recompute=full"
  Scenario scenario;
};

// Those that the scenario leaves open and its other keys allow; what costs little time comes first.
std::vector<Remedy> RemediesFor(const Scenario& scenario);

// Of a remedy's steps, what the allocator reserves at most, however much there is. Pipelines are compiled with as few micro-batches as fill
// them. Errors: those of `compile`.
Result<Bytes> ReservedWith(const Remedy& remedy, const CompileScenario& compile);

// The first few remedies that fit, as text; or the one that needs least. `room`: for the allocator, beside what is `outside` it.
std::string DescribeRemedies(const Scenario& scenario, Bytes room, Bytes outside,
                             const CompileScenario& compile);

}  // namespace windtunnel
