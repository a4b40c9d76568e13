// A plan's transfers as flows over the network's links (CostModel::has_links): which groups cannot be told
// apart by the links that they use, and how much of each link the transfers of a schedule take.
#pragma once

#include "base/result.h"
#include "cost_models/cost_model.h"
#include "plan/plan.h"
#include "sim/folding.h"
#include "sim/link_sharing.h"
#include "sim/step_schedule.h"

namespace windtunnel {

// The coarsest equitable partition of ranks, groups and links. It satisfies sim/folding.h's conditions and
// two more: each operator crosses, in all groups of one class, equally many links of each class and takes
// equal shares of them; links of one class are crossed by equally many groups of each class. So the links of
// a class's groups are equally busy at every instant. REQUIRES: model.has_links(). Errors: the model's.
Result<Folding> FoldWithLinks(const Plan& plan, const CostModel& model);

// A folded transfer stands for those of all groups of its class, and takes what they take together. Links of
// which every transfer takes equal shares are merged. Errors: the model's.
Result<NetworkFlows> FlowsOf(const StepSchedule& schedule, const CostModel& model);

}  // namespace windtunnel
