// The step of a sharded model in one stage (FSDP). Only few layers and micro-batches are compiled; those in
// the middle do the same, and are repeated. Operators that run once a step come from the strategy alone,
// called with all layers' parameters. The host then does what it does in the whole plan, operator by
// operator, and the time is StepExecutor's.
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

namespace windtunnel::composed {

// The operators that a strategy runs once a step, and the memory held between steps. Memory is in bytes of
// device memory, as the allocator rounds them.
struct OncePerStep {
  struct Item {
    std::string name;  // of an issued operator: OperatorName and stream; of host time: empty
    int64_t amount = 0;
    double efficiency = 1;
    bool holds_multiprocessors = false;
  };
  std::vector<Item> items;                     // without memory operators
  std::map<std::string, int64_t> temporaries;  // by name; the sum over all of one name
  std::map<std::string, Bytes> scratch;        // of collectives: by name, not rounded
  int64_t resident = 0;                        // when a step begins, without the scratch and the losses
  int64_t freed = 0;                           // of `resident`, when a step begins: gradients
};

// A key of everything that a search chooses and OncePerStep depends on, besides the model's costs.
std::string OnceKey(const Scenario& scenario);
Result<OncePerStep> OnceOf(const Scenario& scenario, const CostModel& model);

struct StretchedStep {
  int64_t peak = 0;  // bytes: the largest MemoryPeak::requested
  Duration time;     // if `peak` is within the capacity
};

// If the step needs more memory than `capacity`, `peak` is more than `capacity`, too, but may be less than
// the real peak. Errors: Unsupported for what is not stretched; the model's.
Result<StretchedStep> Stretch(const Scenario& scenario, const CostModel& model, const OncePerStep& once,
                              int64_t capacity);

// Unsupported for models, strategies and stages that Stretch does not cover: names them. (Not checked:
// clusters, costs.)
Status CheckStretchable(const Scenario& scenario);
// Whether the step has more layers or micro-batches than Stretch compiles. REQUIRES: it can be stretched.
bool IsLonger(const Scenario& scenario);

}  // namespace windtunnel::composed
