// Finds what a profile lacks for a plan: costs of the steady step's operators at exactly the plan's number of
// ranks. Start-up is executed but never timed, so it needs no costs.
#include <set>

#include "cost_models/cost_keys.h"
#include "cost_models/cost_model.h"

namespace windtunnel {
namespace {

struct Missing {
  std::set<std::string> kernels, collectives;
};

void AddMissing(const Profile& profile, const Plan& plan, const Role& role, Missing& missing) {
  for (const Op& op : role.steady.ops) {
    if (std::holds_alternative<HostWait>(op.kind)) continue;
    std::string key = CostKey(op);
    if (!IsCommunication(op.kind)) {
      missing.kernels.insert(std::move(key));
      if (op.graph > 0) missing.kernels.insert({GraphLaunchKey(op.graph), kGraphSavesKey});
      continue;
    }
    const TransferKey transfer = TransferKeyOf(op);
    for (int rank : role.ranks) {
      const Group& group = plan.GroupOf(rank, role.streams[op.stream]);
      const int ranks = static_cast<int>(group.ranks.size());
      if (ranks <= 1) continue;
      const std::string backend = CommunicatorName(plan, group);
      if (profile.FindCollective(transfer.op, backend, ranks, transfer.bytes) == nullptr)
        missing.collectives.insert(key);
    }
  }
}

bool HasOutsideAllocator(const Profile& profile, const Plan& plan) {
  for (const OutsideAllocatorEntry& entry : profile.outside_allocator) {
    if (entry.ranks == plan.world_size && entry.backend == OutsideAllocatorBackend(plan)) return true;
  }
  return false;
}

}  // namespace

MissingCosts FindMissingCosts(const Profile& profile, const Plan& plan) {
  if (profile.hardware) return {};  // nothing is measured, nothing is missing
  Missing missing;
  for (const Role& role : plan.roles) AddMissing(profile, plan, role, missing);
  std::erase_if(missing.kernels, [&](const std::string& key) {
    return profile.FindKernel(key, RanksPerNode(plan)) != nullptr;
  });
  return {.kernels = {missing.kernels.begin(), missing.kernels.end()},
          .collectives = {missing.collectives.begin(), missing.collectives.end()},
          .dispatch = !profile.dispatch.contains(RanksPerNode(plan)),
          .outside_allocator = !HasOutsideAllocator(profile, plan)};
}

}  // namespace windtunnel
