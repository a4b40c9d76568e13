// A step's time and memory without running every operator: layers, stages and schedules are composed of the
// parts that repeat. The results equal Predict's for the scenario, to the picosecond and the byte.
//
//   ComposedSteps steps;                                                             // keeps what is shared
//   WT_ASSIGN_OR_RETURN(const auto step, steps.Compose(scenario, model, capacity));  // Unsupported: Predict it
//   if (step.memory() <= capacity) Duration time = step.Time();
//
// Supported: devices that run kernels in queues of their own, with constant costs; transformers with experts
// in all, some or no layers; stages of at least a layer (the ends of the pipeline may have none); schedules
// with whole or split backwards, in loops or V's; tensor and context parallelism; data.kind none, ddp or
// zero1; one type throughout, except for autocast, fp8 GEMMs by a recipe that computes each gradient in one
// operator, and reductions in fp32. FSDP in one stage is stretched instead (stretched_step.h). The rest is
// Unsupported.
#pragma once

#include <memory>

#include "base/result.h"
#include "base/units.h"
#include "cost_models/cost_model.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// Unsupported for what is never composed: names it, such as "cluster.jitter" or "zero2". Compose may refuse
// other scenarios for their costs, or for parts that are not alike.
Status CheckComposable(const Scenario& scenario);

class ComposedSteps {
 public:
  ComposedSteps();
  ~ComposedSteps();

  // A composed step, which shares its parts with others.
  class Step;
  // `capacity`: what a device's allocator may use. If the step needs more, Step::memory may be less than the
  // real peak, but is more than `capacity`. `model`: one of the same profile for all calls. Errors:
  // Unsupported; the model's. From any thread.
  Result<Step> Compose(const Scenario& scenario, const CostModel& model, Bytes capacity);

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
