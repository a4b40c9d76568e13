// Where a predicted step's time and memory go, as text: the answers of `windtunnel explain`.
#pragma once

#include <string>

#include "base/result.h"
#include "cost_models/cost_model.h"
#include "plan/plan.h"
#include "reports/ink.h"
#include "sim/predict.h"

namespace windtunnel {

// Time by phase and operator, the critical path, exposed communication and bubbles of the replicate with the
// median step.
std::string ExplainTime(const Plan& plan, const Prediction& prediction, Ink ink);

// The times of the first rank's collectives and messages, by group, kind and algorithm; those that the step
// waits for longest come first. Empty if there are none. Errors: those of `costs`.
Result<std::string> ExplainCollectives(const Plan& plan, const Prediction& prediction, const CostModel& costs,
                                       Ink ink);

// The bytes and parameters of each collective that carries gradients, in launch order. Of several roles whose
// collectives have the same bytes and numbers of tensors, only the first is listed. Empty when there are
// none.
std::string ExplainBuckets(const Plan& plan, Ink ink);

// The peaks of device and host memory in start-up and in the steady step: their categories, when they are
// reached, and the largest buffers then. The device has `room` for the allocator. kLargest: where more than
// two roles differ, this is printed for the role that allocates most, with a table of the totals of all.
// Errors: those of ReplayMemory.
enum class MemoryDetail { kLargest, kAll };
Result<std::string> ExplainMemory(const Plan& plan, Bytes room, MemoryDetail detail, Ink ink);

}  // namespace windtunnel
