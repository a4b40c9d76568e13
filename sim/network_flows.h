// A plan's transfers as flows over the links of cluster.topology: which groups cannot be told apart by the links that they use, and what the
// transfers of a schedule take of which links.
#pragma once

#include "base/result.h"
#include "cost_models/cost_model.h"
#include "plan/plan.h"
#include "sim/folding.h"
#include "sim/link_sharing.h"
#include "sim/step_schedule.h"

namespace windtunnel {

// The coarsest equitable partition of ranks, groups and links: as sim/folding.h's, and groups of one class cross, by each of their
// operators, as many links of each class and take as much of them; links of one class are crossed by as many groups of each class.
// So groups of a class have links that are as busy as each other's at every instant. REQUIRES: model.has_links(). Errors: the model's.
Result<Folding> FoldWithLinks(const Plan& plan, const CostModel& model);

// A folded transfer stands for those of all groups of its class, and takes what they take together. Links that every transfer
// uses alike are one. Errors: the model's.
Result<NetworkFlows> FlowsOf(const StepSchedule& schedule, const CostModel& model);

}  // namespace windtunnel
