// A step's time and memory without its operators one by one: layers, stages and schedules are composed of what repeats. Equal to what
// Predict says of the scenario, to the picosecond and the byte.
//
//   ComposedSteps steps;                                                                   // keeps what configurations share
//   WT_ASSIGN_OR_RETURN(const auto step, steps.Compose(scenario, model, capacity));        // Unsupported: Predict it
//   if (step.memory() <= capacity) Duration time = step.Time();
//
// For devices that run kernels in queues of their own, with costs that are constants: transformers, with experts in all layers, some or none,
// in stages of at least a layer, under schedules of whole backwards on loop placements; tensor and context parallelism; data.kind none, ddp or
// zero1; one type throughout, but for autocast, fp8 products by a recipe that leaves gradients to one operator each, and reductions in fp32.
// FSDP in one stage is stretched instead (stretched_step.h). What else there is, is Unsupported.
#pragma once

#include <memory>

#include "base/result.h"
#include "base/units.h"
#include "cost_models/cost_model.h"
#include "scenarios/scenario.h"

namespace windtunnel {

class ComposedSteps {
 public:
  ComposedSteps();
  ~ComposedSteps();

  // What the scenario is made of, shared with others. From any thread.
  class Step;
  // `capacity`, in bytes, of a device's allocator: memory beyond it may be said to be less than it is, but not to be within it.
  // `model`: one of the same costs for every scenario of one cluster. Errors: Unsupported; the model's.
  Result<Step> Compose(const Scenario& scenario, const CostModel& model, Bytes capacity);

  // Step::Time alone, which is known of some more steps. Errors: as above.
  Result<Duration> ComposeTime(const Scenario& scenario, const CostModel& model);

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

class ComposedSteps::Step {
 public:
  // The largest MemoryPeak::requested over roles.
  Bytes memory() const;
  // REQUIRES: memory() within the capacity.
  Duration Time() const;

  struct Content;
  explicit Step(std::unique_ptr<Content> content);
  ~Step();
  Step(Step&&) noexcept;
  Step& operator=(Step&&) noexcept;

 private:
  std::unique_ptr<Content> content_;
};

}  // namespace windtunnel
