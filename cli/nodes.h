// Jobs on several nodes as the options describe them: the same command is given on each node.
#pragma once

#include <memory>

#include "base/result.h"
#include "cli/options.h"
#include "plan/plan.h"
#include "runtime/node_group.h"

namespace windtunnel {

// Whether all of the plan's ranks are on this machine, or the options say which node this is. If neither,
// nothing can be run here alone.
bool IsOfThisMachine(const Options& options, const Plan& plan);

// Meets the other nodes; null if there is only one. Errors: InvalidInput (options that are missing, or that
// contradict the scenario), and those of NodeGroup::Meet.
Result<std::unique_ptr<NodeGroup>> MeetNodes(const Options& options, const Plan& plan);

}  // namespace windtunnel
