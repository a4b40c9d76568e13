#include "cost_models/cost_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

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

int NodesOf(const Plan& plan, const Group& group) {
  std::set<int64_t> nodes;
  const int64_t devices = std::max<int64_t>(plan.scenario.cluster.devices_per_node, 1);
  for (int rank : group.ranks) nodes.insert(rank / devices);
  return static_cast<int>(nodes.size());
}

std::string CommunicatorName(const Plan& plan, const Group& group) {
  const int nodes = NodesOf(plan, group);
  if (nodes <= 1) return CommunicatorName(plan);
  const NetworkSpec& network = plan.scenario.cluster.network;
  const LinkSpec& link = network.inter_node;
  std::string text = fmt::format("{} over {} nodes of {}", CommunicatorName(plan), nodes,
                                 link.kind.empty() ? "a link" : link.kind);
  if (link.gbits_per_nic > 0) text += fmt::format(" {:g} Gb/s", link.gbits_per_nic);
  if (link.gbytes_per_s > 0) text += fmt::format(" {:g} GB/s", link.gbytes_per_s);
  if (network.nics_per_node > 1) text += fmt::format(" x {}", network.nics_per_node);
  return text;
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
