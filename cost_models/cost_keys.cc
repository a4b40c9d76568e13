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
  if (const auto* collective = std::get_if<Collective>(&op.kind)) {
    return {std::string(Name(collective->kind)), MessageBytes(*collective)};
  }
  if (const auto* send = std::get_if<Send>(&op.kind)) return {"send", SizeOf(send->dtype) * send->elements};
  const auto* receive = std::get_if<Receive>(&op.kind);
  WT_CHECK(receive != nullptr);
  return {"send", SizeOf(receive->dtype) * receive->elements};
}

}  // namespace windtunnel
