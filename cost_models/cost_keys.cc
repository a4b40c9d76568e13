#include "cost_models/cost_keys.h"

#include <algorithm>

#include "base/check.h"

namespace windtunnel {

int RanksPerNode(const Plan& plan) {
  int64_t devices = std::max<int64_t>(plan.scenario.cluster.devices_per_node, 1);
  return static_cast<int>(std::min<int64_t>(plan.world_size, devices));
}

std::string CommunicatorName(const Plan& plan) {
  if (plan.scenario.parallel.data.kind == DataParallelKind::kDp) return "threads";
  switch (plan.scenario.run.backend) {
    case Backend::kGloo:
      return "gloo";
    case Backend::kMpi:
      return "mpi";
    case Backend::kNccl:
      return "nccl";
  }
  return "?";
}

std::string OutsideAllocatorBackend(const Plan& plan) {
  return plan.world_size == 1 ? "none" : CommunicatorName(plan);
}

TransferKey TransferKeyOf(const Op& op) {
  WT_CHECK(IsCommunication(op.kind));
  const auto* collective = std::get_if<Collective>(&op.kind);
  return {collective ? std::string(Name(collective->kind)) : "send", MessageBytes(op.kind)};
}

}  // namespace windtunnel
