#include "cost_models/device_cost_model.h"

#include <algorithm>

#include "cost_models/framework_host.h"
#include "cost_models/kernel_roofline.h"
#include "cost_models/nccl_collectives.h"

namespace windtunnel {
namespace {

class DeviceCostModel : public CostModel {
 public:
  DeviceCostModel(const DeviceSpec& device, const Plan& plan)
      : device_(device),
        cluster_(plan.scenario.cluster),
        framework_(plan.scenario.framework),
        tf32_(plan.scenario.precision.compute == Precision::kTf32),
        offload_(plan.scenario.parallel.data.offload) {}

  Result<KernelCost> Kernel(const Op& op) const override;
  Result<CommunicationCost> Communication(const Op& op, const Group& group) const override;
  Distribution Dispatch() const override { return Distribution::Constant(device_.kernel_launch); }
  KernelCost DispatchOf(const Op& op) const override {
    return {Distribution::Constant(HostTime(op.kind, framework_, device_.kernel_launch)),
            CostSource::kModelled};
  }
  bool host_computes() const override { return false; }
  int cores_per_node() const override { return 0; }
  double CommonMode(double) const override { return 1; }
  Bytes OutsideAllocator(const Plan& plan) const override {
    return device_.context + (plan.world_size > 1 ? device_.communicator : Bytes(0));
  }
  Bytes DeviceMemory() const override { return device_.memory; }

 private:
  KernelCost OnHost(const OpKind& kind) const;

  const DeviceSpec& device_;
  const ClusterSpec cluster_;
  const Framework framework_;
  const bool tf32_;
  const Offload offload_;
};

// What offload leaves to the host: it streams its operands through memory that the hosts of all the node's devices share.
bool WorksOnOptimizerState(const OpKind& kind) {
  return std::holds_alternative<OptimizerUpdate>(kind) || std::holds_alternative<GradientNorm>(kind) ||
         std::holds_alternative<ClipGradients>(kind);
}

KernelCost DeviceCostModel::OnHost(const OpKind& kind) const {
  const int64_t sharing = std::max<int64_t>(cluster_.devices_per_node, 1);
  return {Distribution::Constant(TrafficOf(kind) * sharing / device_.host_memory), CostSource::kModelled};
}

Result<KernelCost> DeviceCostModel::Kernel(const Op& op) const {
  if (offload_ != Offload::kNone && WorksOnOptimizerState(op.kind)) return OnHost(op.kind);
  WT_ASSIGN_OR_RETURN(Duration time, KernelTime(op.kind, device_, tf32_));
  return KernelCost{Distribution::Constant(time), CostSource::kModelled};
}

// nccl-tests' output for the collective in a group that lies as measured; nothing where there is none.
const MeasuredCollective* FindMeasured(const OpKind& kind, const GroupLayout& layout,
                                       const DeviceSpec& device) {
  const auto* collective = std::get_if<Collective>(&kind);
  if (collective == nullptr || collective->kind == CollectiveKind::kBarrier) return nullptr;
  for (const MeasuredCollective& measured : device.measured_collectives) {
    if (measured.op == Name(collective->kind) && measured.ranks == layout.ranks &&
        measured.nodes == layout.nodes)
      return &measured;
  }
  return nullptr;
}

// Linear between two measured sizes; beyond the largest at its bandwidth; below the smallest what the model says, but no more than that
// took.
CommunicationCost CostAt(Bytes bytes, const MeasuredCollective& measured, Duration modelled) {
  const auto& rows = measured.rows;
  const auto above = std::lower_bound(rows.begin(), rows.end(), std::pair(bytes, Duration()));
  CommunicationCost cost{.source = CostSource::kModelled};
  if (above == rows.end()) {
    cost.time = Distribution::Constant(rows.back().second.Scaled(bytes / rows.back().first));
  } else if (above->first == bytes) {
    cost.time = Distribution::Constant(above->second);
    cost.source = CostSource::kMeasured;
  } else if (above == rows.begin()) {
    cost.time = Distribution::Constant(std::min(modelled, above->second));
  } else {
    const auto& [b0, t0] = *(above - 1);
    cost.time = Distribution::Constant(t0 + (above->second - t0).Scaled((bytes - b0) / (above->first - b0)));
    cost.source = CostSource::kInterpolated;
  }
  return cost;
}

// The blocks of NCCL's kernel occupy as many multiprocessors, which computation loses while it runs.
Result<CommunicationCost> DeviceCostModel::Communication(const Op& op, const Group& group) const {
  if (group.ranks.size() <= 1) return CommunicationCost{.source = CostSource::kModelled};
  const CollectiveSpec& spec = device_.collectives;
  WT_ASSIGN_OR_RETURN(GroupLayout layout, LayOutGroup(group, cluster_, device_));
  WT_ASSIGN_OR_RETURN(
      CollectiveTime model,
      CollectiveTimeOf(op.kind, layout, spec, cluster_.network.algorithm, cluster_.network.protocol));
  CommunicationCost cost{.time = Distribution::Constant(model.time), .source = CostSource::kModelled};
  const bool is_chosen = cluster_.network.algorithm != CollectiveAlgorithm::kAuto ||
                         cluster_.network.protocol != CollectiveProtocol::kAuto;
  if (const MeasuredCollective* measured = FindMeasured(op.kind, layout, device_); measured && !is_chosen)
    cost = CostAt(MessageBytes(op.kind), *measured, model.time);
  int channels = layout.nodes > 1 ? spec.channels_inter : spec.channels_intra;
  if (model.pattern == Pattern::kNvls || model.pattern == Pattern::kNvlsTree) channels = spec.channels_nvls;
  const auto* collective = std::get_if<Collective>(&op.kind);
  if (collective == nullptr || collective->kind != CollectiveKind::kBarrier)
    cost.compute_efficiency =
        1 - static_cast<double>(channels) / static_cast<double>(device_.multiprocessors);
  return cost;
}

}  // namespace

std::unique_ptr<CostModel> MakeDeviceCostModel(const DeviceSpec& device, const Plan& plan) {
  return std::make_unique<DeviceCostModel>(device, plan);
}

}  // namespace windtunnel
