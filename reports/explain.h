// Where a predicted step's time and memory go, as text: the answers of `windtunnel explain`.
#pragma once

#include <string>

#include "base/result.h"
#include "cost_models/cost_model.h"
#include "plan/plan.h"
#include "reports/ink.h"
#include "sim/predict.h"

namespace windtunnel {

// Time by phase and operator, the critical path, exposed communication, bubbles: of the replicate with the
// median step.
std::string ExplainTime(const Plan& plan, const Prediction& prediction, Ink ink);

// What the first rank's collectives and messages take, by group, kind and what they run by, those first that the step waits for longest.
// Empty where there are none. Errors: those of `costs`.
Result<std::string> ExplainCollectives(const Plan& plan, const Prediction& prediction, const CostModel& costs,
                                       Ink ink);

// Each collective that carries gradients: its bytes and parameters, in launch order; of roles whose collectives are alike in bytes and numbers
// of tensors those of the first. Empty when there are none.
std::string ExplainBuckets(const Plan& plan, Ink ink);

// The peaks of start-up and of the steady step by category, of the device's memory and of the host's, when they are reached, and
// the largest buffers then, on a device that has `room` for the allocator. kLargest: where more than two roles differ, of the one that
// allocates most, and the others' sums. Errors: those of ReplayMemory.
enum class MemoryDetail { kLargest, kAll };
Result<std::string> ExplainMemory(const Plan& plan, Bytes room, MemoryDetail detail, Ink ink);

}  // namespace windtunnel
