// Several nodes, as the options name them: the same command on each.
#pragma once

#include <memory>

#include "base/result.h"
#include "cli/options.h"
#include "plan/plan.h"
#include "runtime/node_group.h"

namespace windtunnel {

// Whether the plan's ranks are on this machine as far as the options say; if not, nothing can be run here alone.
bool IsOfThisMachine(const Options& options, const Plan& plan);

// Meets the other nodes; null where there is only one. Errors: InvalidInput (options that are missing, or that contradict the scenario),
// those of NodeGroup::Meet.
Result<std::unique_ptr<NodeGroup>> MeetNodes(const Options& options, const Plan& plan);

}  // namespace windtunnel
