// The step of a sharded model in one stage (FSDP), of which few layers and micro-batches are compiled: those in the middle do the same, and are
// repeated. Operators that are done once a step come from the strategy alone, called with all layers' parameters. What the host does is then
// that of the whole plan, operator by operator, and the time is StepExecutor's.
//
//   WT_ASSIGN_OR_RETURN(const OncePerStep once, OnceOf(scenario, model));       // shared by all of one OnceKey
//   WT_ASSIGN_OR_RETURN(const StretchedStep step, Stretch(scenario, model, once, capacity));
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "cost_models/cost_model.h"
#include "scenarios/scenario.h"
#include "sim/composed/step_tape.h"

namespace windtunnel::composed {

// What a strategy does once a step, and what is held between steps. Bytes of device memory, as the allocator rounds them.
struct OncePerStep {
  struct Item {
    std::string name;  // of an operator that is issued: OperatorName and its stream's; of host time: empty
    int64_t amount = 0;
    double efficiency = 1;
    bool holds_multiprocessors = false;
  };
  std::vector<Item> items;                     // without those of memory
  std::map<std::string, int64_t> temporaries;  // by name; of several of one name the sum
  std::map<std::string, Bytes> scratch;        // of collectives: by name, not rounded
  int64_t resident = 0;                        // when a step begins: without the scratch and the losses
  int64_t freed = 0;                           // of it, then: gradients
};

// By what of it a search chooses `OncePerStep` depends on.
std::string OnceKey(const Scenario& scenario);
Result<OncePerStep> OnceOf(const Scenario& scenario, const CostModel& model);

struct StretchedStep {
  int64_t peak = 0;  // bytes: the largest MemoryPeak::requested
  Duration time;     // where that is within the capacity
};

// Where memory is more than `capacity` it is said to be so, perhaps less than it is. Errors: Unsupported for what is not stretched; the model's.
Result<StretchedStep> Stretch(const Scenario& scenario, const CostModel& model, const OncePerStep& once,
                              int64_t capacity);

// Unsupported: for models, strategies and stages that Stretch is not made for. (Clusters and costs are the caller's business.)
Status CheckStretchable(const Scenario& scenario);

}  // namespace windtunnel::composed
