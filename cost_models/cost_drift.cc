#include "cost_models/cost_drift.h"

#include "cost_models/cost_model.h"

namespace windtunnel {
namespace {

Result<Duration> CostOf(const CostModel& model, const Plan& plan, const Role& role, const Op& op) {
  if (!IsCommunication(op.kind)) {
    WT_ASSIGN_OR_RETURN(const KernelCost kernel, model.Kernel(op));
    return kernel.time.Mean() + model.DispatchOf(op).time.Mean();
  }
  const Group& group = plan.GroupOf(role.ranks.front(), role.streams[op.stream]);
  if (group.ranks.size() <= 1) return Duration();
  WT_ASSIGN_OR_RETURN(const CommunicationCost communication, model.Communication(op, group));
  return communication.time.Mean();
}

Result<Duration> OperatorsOneByOne(const CostModel& model, const Plan& plan) {
  Duration sum;
  for (const Role& role : plan.roles) {
    Duration of_role;
    for (const Op& op : role.steady.ops) {
      if (std::holds_alternative<HostWait>(op.kind)) continue;
      WT_ASSIGN_OR_RETURN(const Duration cost, CostOf(model, plan, role, op));
      of_role += cost;
    }
    sum += of_role * static_cast<int64_t>(role.ranks.size());
  }
  return sum;
}

}  // namespace

Result<double> CostDrift(const Profile& then, const Profile& now, const Plan& plan) {
  WT_ASSIGN_OR_RETURN(const Duration before, OperatorsOneByOne(*MakeProfileCostModel(then, plan), plan));
  WT_ASSIGN_OR_RETURN(const Duration after, OperatorsOneByOne(*MakeProfileCostModel(now, plan), plan));
  return before > Duration() ? after / before - 1 : 0.0;
}

}  // namespace windtunnel
