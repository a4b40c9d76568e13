// Costs from a profile (cost_models/README.md gives the rules with a worked number each).
#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

#include "base/ceil_divide.h"
#include "cost_models/collective_curve.h"
#include "cost_models/cost_keys.h"
#include "cost_models/cost_model.h"
#include "cost_models/device_cost_model.h"
#include "cost_models/node_wire.h"
#include "cost_models/overlap.h"
#include "plan/axes.h"

namespace windtunnel {
namespace {

// Of two numbers of ranks equally far from `wanted`, the larger counts: it was measured with more contention.
bool IsNearer(int candidate, int other, int wanted) {
  int distance = std::abs(candidate - wanted), other_distance = std::abs(other - wanted);
  return distance != other_distance ? distance < other_distance : candidate > other;
}

class ProfileCostModel : public CostModel {
 public:
  ProfileCostModel(const Profile& profile, const Plan& plan)
      : profile_(profile),
        plan_(plan),
        ranks_per_node_(RanksPerNode(plan)),
        dispatch_(NearestDispatch()),
        asks_for_links_(plan.scenario.cluster.topology.is_given() || plan.scenario.cluster.slow_link) {}

  Result<KernelCost> Kernel(const Op& op) const override;
  Result<CommunicationCost> Communication(const Op& op, const Group& group) const override;
  Distribution Dispatch() const override { return dispatch_; }
  KernelCost DispatchOf(const Op& op) const override;
  bool host_computes() const override { return profile_.device == "cpu"; }
  int cores_per_node() const override { return SharesCores() ? static_cast<int>(profile_.cores) : 0; }
  double CommonMode(double level) const override;
  Bytes OutsideAllocator(const Plan& plan) const override;

 private:
  bool SharesCores() const { return profile_.device == "cpu"; }
  int RanksPerCore() const;
  Distribution NearestDispatch() const;
  const KernelEntry* NearestKernel(const std::string& key) const;
  KernelCost CostOf(const KernelEntry& entry) const;
  Distribution InGraph(const Distribution& alone) const;
  Status CheckUsable() const;
  std::optional<CollectiveEstimate> OverTheWire(const TransferKey& transfer, int ranks, int nodes) const;
  CommunicationCost WithOverlap(const CollectiveEstimate& estimate) const;

  const Profile& profile_;
  const Plan& plan_;
  const int ranks_per_node_;
  const Distribution dispatch_;
  const bool asks_for_links_;
};

// On the busiest core, since a collective goes at the pace of its slowest rank.
int ProfileCostModel::RanksPerCore() const {
  int64_t cores = std::max<int64_t>(profile_.cores, 1);
  return static_cast<int>(CeilDivide(ranks_per_node_, cores));
}

Distribution ProfileCostModel::NearestDispatch() const {
  const std::pair<const int, Distribution>* nearest = nullptr;
  for (const auto& entry : profile_.dispatch) {
    if (nearest == nullptr || IsNearer(entry.first, nearest->first, ranks_per_node_)) nearest = &entry;
  }
  return nearest ? nearest->second : Distribution();
}

// Dispatch() cannot fail, so the first operator does: a missing measurement must not count as no cost.
Status ProfileCostModel::CheckUsable() const {
  if (asks_for_links_)
    return Unsupported(
        "cluster.topology and cluster.slow_link are for devices from their datasheets: '{}' has collectives "
        "as they were measured, expected neither",
        profile_.name);
  if (!profile_.dispatch.empty()) return Ok();
  return InvalidInput("profile '{}' has no dispatch times", profile_.name);
}

const KernelEntry* ProfileCostModel::NearestKernel(const std::string& key) const {
  const KernelEntry* nearest = nullptr;
  for (const KernelEntry& entry : profile_.kernels) {
    if (entry.key != key) continue;
    if (nearest == nullptr || IsNearer(entry.ranks, nearest->ranks, ranks_per_node_)) nearest = &entry;
  }
  return nearest;
}

KernelCost ProfileCostModel::CostOf(const KernelEntry& entry) const {
  return {.time = entry.time,
          .source = entry.ranks == ranks_per_node_ ? CostSource::kMeasured : CostSource::kInterpolated};
}

Result<KernelCost> ProfileCostModel::Kernel(const Op& op) const {
  WT_RETURN_IF_ERROR(CheckUsable());
  const std::string key = CostKey(op);
  const KernelEntry* nearest = NearestKernel(key);
  if (nearest == nullptr)
    return InvalidInput("profile '{}' has no cost for operator '{}' (key \"{}\")", profile_.name, op.name,
                        key);
  KernelCost cost = CostOf(*nearest);
  if (op.graph < 0) cost.time = InGraph(cost.time);
  return cost;
}

// For a kernel that follows another one in a graph. Saves at most half of each time, however short it is.
Distribution ProfileCostModel::InGraph(const Distribution& alone) const {
  const KernelEntry* saves = NearestKernel(kGraphSavesKey);
  if (saves == nullptr) return alone;
  std::array<Duration, Distribution::kCount> times = alone.values();
  for (Duration& time : times) time -= std::min(saves->time.p50(), time / 2);
  return Distribution::FromQuantiles(times);
}

// A graph that was not measured costs as much as issuing one operator.
KernelCost ProfileCostModel::DispatchOf(const Op& op) const {
  if (op.graph == 0) {
    const KernelEntry* nearest = NearestKernel(DispatchKey(op.kind));
    return nearest == nullptr ? KernelCost{.time = dispatch_} : CostOf(*nearest);
  }
  if (op.graph < 0) return {};
  const KernelEntry* nearest = NearestKernel(GraphLaunchKey(op.graph));
  return nearest == nullptr ? KernelCost{dispatch_, CostSource::kModelled} : CostOf(*nearest);
}

Result<CommunicationCost> ProfileCostModel::Communication(const Op& op, const Group& group) const {
  WT_RETURN_IF_ERROR(CheckUsable());
  const int ranks = static_cast<int>(group.ranks.size());
  if (ranks <= 1) return CommunicationCost{};  // alone in its group: nothing moves
  const TransferKey transfer = TransferKeyOf(op);
  const std::string backend = CommunicatorName(plan_, group);
  auto estimate = CollectiveCurve(profile_, transfer.op, backend, ranks).At(transfer.bytes);
  const int nodes = NodesOf(plan_, group);
  if (!estimate && nodes > 1) estimate = OverTheWire(transfer, ranks, nodes);
  if (!estimate)
    return InvalidInput("profile '{}' has no cost for operator '{}' (key \"{}\") among {} ranks over {}",
                        profile_.name, op.name, CostKey(op.kind), ranks, backend);
  return WithOverlap(*estimate);
}

// As measured among as many ranks of one node, but no faster than the wire between nodes. Core time is
// unchanged.
std::optional<CollectiveEstimate> ProfileCostModel::OverTheWire(const TransferKey& transfer, int ranks,
                                                                int nodes) const {
  auto estimate = CollectiveCurve(profile_, transfer.op, CommunicatorName(plan_), ranks).At(transfer.bytes);
  const Duration wire = WireTime(transfer, ranks, nodes, plan_.scenario.cluster.network);
  const bool knows_wire = wire > Duration() || transfer.bytes == Bytes(0);
  if (!estimate || !knows_wire) return std::nullopt;
  std::array<Duration, Distribution::kCount> times = estimate->entry.time.values();
  for (Duration& time : times) time = std::max(time, wire);
  estimate->entry.time = Distribution::FromQuantiles(times);
  estimate->source = CostSource::kModelled;
  return estimate;
}

CommunicationCost ProfileCostModel::WithOverlap(const CollectiveEstimate& estimate) const {
  const CollectiveEntry& entry = estimate.entry;
  CommunicationCost cost{.time = entry.time, .source = estimate.source};
  if (SharesCores() && entry.time.p50() > Duration()) {
    cost.core_share = std::clamp(entry.core_time / entry.time.p50(), 0.0, 1.0);
  }
  if (entry.collective_rate_under_compute && entry.compute_rate_under_collective) {
    OverlapFit fit = FitOverlap({.core_share = cost.core_share,
                                 .collective_rate = *entry.collective_rate_under_compute,
                                 .compute_rate = *entry.compute_rate_under_collective,
                                 .ranks_per_core = RanksPerCore()});
    cost.core_share = fit.core_share;
    cost.weight = fit.weight;
    cost.compute_efficiency = fit.compute_efficiency;
  } else if (entry.bytes > Bytes(0)) {
    // Fair sharing is an assumption here. (A barrier does not need it: nobody computes while it lasts.)
    cost.source = CostSource::kModelled;
  }
  return cost;
}

double ProfileCostModel::CommonMode(double level) const {
  const auto& factors = profile_.common_mode;
  const auto [i, share] = Distribution::PlaceOf(level);
  return factors[i] + (factors[i + 1] - factors[i]) * share;
}

Bytes ProfileCostModel::OutsideAllocator(const Plan& plan) const {
  const std::string backend = OutsideAllocatorBackend(plan);
  const OutsideAllocatorEntry* nearest = nullptr;
  for (const OutsideAllocatorEntry& entry : profile_.outside_allocator) {
    if (entry.backend != backend) continue;
    if (nearest == nullptr || IsNearer(entry.ranks, nearest->ranks, plan.world_size)) nearest = &entry;
  }
  return nearest ? nearest->bytes : Bytes(0);
}

}  // namespace

bool SharesCards(const Profile& profile, const Scenario& scenario) {
  return profile.hardware && !scenario.cluster.topology.is_given() && AxesAcrossNodes(scenario) >= 2;
}

std::unique_ptr<CostModel> MakeProfileCostModel(const Profile& profile, const Plan& plan,
                                                ProductSpeeds* speeds, CardSharing cards) {
  if (profile.hardware)
    return MakeDeviceCostModel(*profile.hardware, plan, profile.framework ? &*profile.framework : nullptr,
                               speeds, SharesCards(profile, plan.scenario) ? cards : CardSharing::kIgnored);
  return std::make_unique<ProfileCostModel>(profile, plan);
}

}  // namespace windtunnel
