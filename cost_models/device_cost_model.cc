#include "cost_models/device_cost_model.h"

#include <algorithm>

#include "cost_models/framework_kernels.h"
#include "cost_models/ring_collectives.h"
#include "plan/model.h"

namespace windtunnel {
namespace {

class DeviceCostModel : public CostModel {
 public:
  DeviceCostModel(const DeviceSpec& device, const Plan& plan,
                  const std::optional<FrameworkProfile>& framework)
      : device_(device),
        cluster_(plan.scenario.cluster),
        framework_(framework ? *framework : FrameworkOf(plan.scenario)),
        arithmetic_{.tf32 = plan.scenario.precision.compute == Precision::kTf32,
                    .parameters = TypesOf(plan.scenario.precision).storage,
                    .recomputes = plan.scenario.recompute == Recompute::kFull},
        offload_(plan.scenario.parallel.data.offload) {}

  Result<KernelCost> Kernel(const Op& op) const override;
  Result<CommunicationCost> Communication(const Op& op, const Group& group) const override;
  Distribution Dispatch() const override { return Distribution::Constant(device_.kernel_launch); }
  KernelCost DispatchOf(const Op& op) const override {
    return {Distribution::Constant(HostTime(op.kind, framework_, device_.kernel_launch, arithmetic_)),
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
  const FrameworkProfile framework_;
  const ArithmeticContext arithmetic_;
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
  WT_ASSIGN_OR_RETURN(Duration time, DeviceTime(op.kind, framework_, device_, arithmetic_));
  return KernelCost{Distribution::Constant(time), CostSource::kModelled};
}

// A message from one rank to another of a pair is a broadcast between the two: one step, over which all of it goes.
Collective AsCollective(const OpKind& kind) {
  if (const auto* send = std::get_if<Send>(&kind))
    return {CollectiveKind::kBroadcast, send->dtype, send->elements};
  if (const auto* receive = std::get_if<Receive>(&kind))
    return {CollectiveKind::kBroadcast, receive->dtype, receive->elements};
  return std::get<Collective>(kind);
}

// The blocks of NCCL's kernel occupy as many multiprocessors, which computation loses while it runs.
Result<CommunicationCost> DeviceCostModel::Communication(const Op& op, const Group& group) const {
  if (group.ranks.size() <= 1) return CommunicationCost{.source = CostSource::kModelled};
  const Collective collective = AsCollective(op.kind);
  WT_ASSIGN_OR_RETURN(RingLayout ring, LayOutRing(group, cluster_, device_));
  WT_ASSIGN_OR_RETURN(Duration time, RingTime(collective, ring, device_.collectives));
  const int channels =
      ring.nodes > 1 ? device_.collectives.channels_inter : device_.collectives.channels_intra;
  const double taken = static_cast<double>(channels) / static_cast<double>(device_.multiprocessors);
  CommunicationCost cost{.time = Distribution::Constant(time.Scaled(framework_.residuals.link)),
                         .source = CostSource::kModelled};
  if (collective.kind != CollectiveKind::kBarrier) cost.compute_efficiency = 1 - taken;
  return cost;
}

}  // namespace

std::unique_ptr<CostModel> MakeDeviceCostModel(const DeviceSpec& device, const Plan& plan,
                                               const std::optional<FrameworkProfile>& framework) {
  return std::make_unique<DeviceCostModel>(device, plan, framework);
}

}  // namespace windtunnel
