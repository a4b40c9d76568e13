#include "cost_models/device_cost_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <unordered_map>

#include "cost_models/block_speed.h"
#include "cost_models/collective_traffic.h"
#include "cost_models/communicator_memory.h"
#include "cost_models/device_spread.h"
#include "cost_models/framework_kernels.h"
#include "cost_models/kernel_roofline.h"
#include "cost_models/nccl_collectives.h"
#include "cost_models/node_wire.h"

namespace windtunnel {
namespace {

class DeviceCostModel : public CostModel {
 public:
  DeviceCostModel(const DeviceSpec& device, const Plan& plan, const FrameworkProfile* framework,
                  ProductSpeeds* speeds, CardSharing cards)
      : device_(device),
        has_own_topology_(plan.scenario.cluster.topology.is_given()),
        cluster_(WithLinks(plan.scenario.cluster, cards)),
        framework_(ForLayers(framework ? *framework : FrameworkOf(plan.scenario), plan.scenario)),
        arithmetic_(ArithmeticOf(plan.scenario)) {
    arithmetic_.slowest = SlowestOf(plan.world_size, device.speed_spread);
    ProductSpeeds own;
    arithmetic_.product_speed = (speeds ? *speeds : own).Of(plan.scenario, device_, framework_);
    usable_ = CheckNode();
    if (usable_ && cluster_.topology.is_given()) usable_ = ReadTopology();
  }

  Result<KernelCost> Kernel(const Op& op) const override;
  Result<CommunicationCost> Communication(const Op& op, const Group& group) const override;
  bool has_links() const override { return traffic_ != nullptr; }
  Result<std::shared_ptr<const LinkDemands>> Links(const Op& op, const Group& group,
                                                   int position) const override;
  Distribution Dispatch() const override { return Distribution::Constant(device_.kernel_launch); }
  KernelCost DispatchOf(const Op& op) const override {
    const Duration time =
        op.graph == 0 ? HostTimeOf(op.kind) : GraphLaunchTime(op.graph, framework_, HostOfDevice());
    return {Distribution::Constant(time), CostSource::kModelled};
  }
  bool host_computes() const override { return false; }
  int cores_per_node() const override { return 0; }
  double CommonMode(double) const override { return 1; }
  double product_speed() const override { return arithmetic_.product_speed; }
  double layer_factor() const override { return layer_factor_; }
  Bytes OutsideAllocator(const Plan& plan) const override {
    return device_.context + CommunicatorMemory(plan.scenario, device_.communicators);
  }
  Bytes DeviceMemory() const override { return device_.memory; }

 private:
  // The cluster, with a topology in which only cards and links within nodes can be busy, if `cards` are
  // shared and the scenario gives no topology.
  static ClusterSpec WithLinks(ClusterSpec cluster, CardSharing cards) {
    if (cards == CardSharing::kIgnored || cluster.topology.is_given()) return cluster;
    cluster.topology.preset = "rail-fat-tree";
    return cluster;
  }
  // `framework` itself, or a copy that has the residuals of the scenario's layers.
  const FrameworkProfile& ForLayers(const FrameworkProfile& framework, const Scenario& scenario) {
    if (framework.residuals.layers.empty()) return framework;
    layer_factor_ = framework.residuals.layers.At(LayerShapeOf(scenario));
    for_layers_ = std::make_unique<FrameworkProfile>(framework);
    for_layers_->residuals = FactorsFor(LayerShapeOf(scenario), framework.residuals);
    return *for_layers_;
  }
  Status CheckNode() const;
  Status ReadTopology();
  KernelCost OnHost(const OpKind& kind) const;
  HostSpeed HostOfDevice() const { return {device_.kernel_launch, device_.host_slowdown}; }
  Duration HostTimeOf(const OpKind& kind) const {
    return HostTime(kind, framework_, HostOfDevice(), arithmetic_);
  }
  // The device's wait for the operator's launches.
  Duration WaitForLaunch(const OpKind& kind) const {
    const double share = framework_.residuals.launch - 1;
    return share > 0 ? HostTimeOf(kind).Scaled(share) : Duration();
  }

  // What is known of a group: its ranks, its layout, and by traffic_ the traffic on links.
  struct KnownGroup {
    std::vector<int> ranks;
    int32_t layout = -1;  // into layouts_
    // By pattern, and for messages between pairs by what tells them apart.
    std::map<std::tuple<Pattern, int, int>, const Traffic*> traffic;
  };
  struct Alone {
    GroupLayout layout;
    CollectiveTime model;
  };
  Result<KnownGroup*> Know(const Group& group) const;
  Result<Alone> AloneOnLinks(const Op& op, const Group& group) const;
  Result<CollectiveTime> ModelOf(const OpKind& kind, int32_t layout) const;
  Result<const Traffic*> CrossedBy(Pattern pattern, const OpKind& kind, const Group& group, int position,
                                   KnownGroup& known) const;

  const DeviceSpec& device_;
  const bool has_own_topology_;  // the scenario gives one
  const ClusterSpec cluster_;
  double layer_factor_ = 1;
  std::unique_ptr<FrameworkProfile> for_layers_;  // before framework_, which may be it
  const FrameworkProfile& framework_;
  ArithmeticContext arithmetic_;
  // An error if nodes cannot be so large, or there is no topology as cluster.topology asks for.
  Status usable_ = Ok();
  std::unique_ptr<TrafficModel> traffic_;  // of cluster_.topology; null without one

  // Caches. Used with a topology only, so that without one a model serves several threads at once.
  mutable std::unordered_map<const Group*, KnownGroup> groups_;
  mutable std::vector<GroupLayout> layouts_;  // distinct ones
  // The traffic's demands, scaled to a level of use.
  mutable std::map<std::pair<const Traffic*, int>, std::shared_ptr<const LinkDemands>> parts_;
  // By layout, operator's kind, collective's kind, bytes, and where tokens go.
  mutable std::map<std::tuple<int32_t, size_t, int, int64_t, TokenReach>, CollectiveTime> times_;
};

// A transfer takes only a share of its busiest link: the time that its bytes need there, over its whole time.
// This holds for a message to one peer, which is slower than a card. Without a topology of the scenario's own
// it holds for all transfers: their times already count the share of the cards that the groups beside theirs
// leave, which must not slow them down twice. Shares are rounded down to so many levels, so that few differ.
// With a topology of the scenario's own, collectives that run in steps take all of the link.
constexpr int kUseLevels = 256;

Status DeviceCostModel::CheckNode() const {
  const int64_t most = device_.most_devices_per_node;
  if (most == 0 || cluster_.devices_per_node <= most) return Ok();
  return InvalidInput("cluster.devices_per_node is {}, expected at most {}: so many {} are linked in a node",
                      cluster_.devices_per_node, most, device_.name);
}

Status DeviceCostModel::ReadTopology() {
  WT_ASSIGN_OR_RETURN(Topology topology, MakeTopology(cluster_, {device_.intra_node, device_.ToCards()}));
  WT_ASSIGN_OR_RETURN(const LinkShares shares, SharesOf(cluster_, device_, topology));
  traffic_ = std::make_unique<TrafficModel>(std::move(topology), static_cast<int>(cluster_.devices_per_node),
                                            shares);
  return Ok();
}

// Operators that offload leaves to the host stream their operands through memory that several devices' hosts
// share.
KernelCost DeviceCostModel::OnHost(const OpKind& kind) const {
  int64_t sharing = std::max<int64_t>(cluster_.devices_per_node, 1);
  if (device_.host_memory_devices > 0) sharing = std::min(sharing, device_.host_memory_devices);
  const auto* update = std::get_if<OptimizerUpdate>(&kind);
  const Bytes traffic = update == nullptr ? TrafficOf(kind) : HostTraffic(*update, framework_);
  return {Distribution::Constant(traffic * sharing / device_.host_memory), CostSource::kModelled};
}

Result<KernelCost> DeviceCostModel::Kernel(const Op& op) const {
  WT_RETURN_IF_ERROR(usable_);
  if (op.on_host) return OnHost(op.kind);
  WT_ASSIGN_OR_RETURN(Duration time, DeviceTime(op.kind, framework_, device_, arithmetic_));
  if (op.graph < 0) time -= std::min(Microseconds(framework_.graph_saves_us), time / 2);
  if (op.graph == 0) time += WaitForLaunch(op.kind);
  return KernelCost{.time = Distribution::Constant(time),
                    .source = CostSource::kModelled,
                    .beside_communication = IsProduct(op.kind) ? device_.gemm.beside_communication : 0};
}

// Whether the devices of a node are linked as the device's own are, to which its curves apply: not if the
// scenario names another link, or spells out links of other bandwidths.
bool IsOwnLink(const GroupLayout& layout, const DeviceSpec& device) {
  const auto kind = IntraNodeRates({}, device.intra_node);
  if (!kind) return false;
  const LinkRates own = kind->AmongRanks(layout.ranks_per_node);
  const auto is_near = [](Bandwidth a, Bandwidth b) { return std::fabs(a / b - 1) < 0.01; };
  return is_near(layout.link.nominal, own.nominal) && is_near(layout.link.ring, own.ring) &&
         layout.link.latency == own.latency && layout.link.is_mesh == own.is_mesh;
}

// Whether nodes are joined as those of the measurement, which says nothing of switches in between.
bool IsSameNetwork(const MeasuredCollective& measured, const ClusterSpec& cluster) {
  if (measured.nodes == 1) return true;
  return !cluster.topology.is_given() &&
         std::fabs(NodeBandwidth(cluster.network) / measured.node_bandwidth - 1) < 0.01;
}

// nccl-tests' output for the collective in a group of the measured layout; null if there is none.
const MeasuredCollective* FindMeasured(const OpKind& kind, const GroupLayout& layout,
                                       const ClusterSpec& cluster, const DeviceSpec& device) {
  const auto* collective = std::get_if<Collective>(&kind);
  if (collective == nullptr || collective->kind == CollectiveKind::kBarrier) return nullptr;
  for (const MeasuredCollective& measured : device.measured_collectives) {
    if (measured.op == Name(collective->kind) && measured.ranks == layout.ranks &&
        measured.nodes == layout.nodes && IsOwnLink(layout, device) && IsSameNetwork(measured, cluster))
      return &measured;
  }
  return nullptr;
}

// Linear between two measured sizes; beyond the largest at its bandwidth; below the smallest as modelled, but
// at most the smallest's time.
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

// A group keeps its address within a plan; another group at the same address is told apart by its ranks.
Result<DeviceCostModel::KnownGroup*> DeviceCostModel::Know(const Group& group) const {
  KnownGroup& known = groups_[&group];
  if (known.layout >= 0 && known.ranks == group.ranks) return &known;
  WT_ASSIGN_OR_RETURN(const GroupLayout layout, has_own_topology_
                                                    ? LayOutInTopology(group, cluster_, device_, *traffic_)
                                                    : LayOutGroup(group, cluster_, device_));
  const auto found = std::find(layouts_.begin(), layouts_.end(), layout);
  known = {group.ranks, static_cast<int32_t>(found - layouts_.begin()), {}};
  if (found == layouts_.end()) layouts_.push_back(layout);
  return &known;
}

Result<CollectiveTime> DeviceCostModel::ModelOf(const OpKind& kind, int32_t layout) const {
  const auto* collective = std::get_if<Collective>(&kind);
  const auto key = std::tuple(layout, kind.index(), collective ? static_cast<int>(collective->kind) : -1,
                              MessageBytes(kind).count(), collective ? collective->reach : TokenReach{});
  if (auto found = times_.find(key); found != times_.end()) return found->second;
  WT_ASSIGN_OR_RETURN(const CollectiveTime time,
                      CollectiveTimeOf(kind, layouts_[layout], device_.collectives,
                                       cluster_.network.algorithm, cluster_.network.protocol));
  return times_.emplace(key, time).first->second;
}

Result<const Traffic*> DeviceCostModel::CrossedBy(Pattern pattern, const OpKind& kind, const Group& group,
                                                  int position, KnownGroup& known) const {
  const auto* send = std::get_if<Send>(&kind);
  const auto* receive = std::get_if<Receive>(&kind);
  const auto* collective = std::get_if<Collective>(&kind);
  int from = -1, to = -1;
  if (send) from = position, to = send->peer;
  else if (receive) from = receive->peer, to = position;
  else if (pattern == Pattern::kRelayed) {
    WT_ASSIGN_OR_RETURN(const Traffic* relayed, traffic_->Of(pattern, kind, group, position));
    return relayed;
  } else if (pattern == Pattern::kPairs && collective->kind == CollectiveKind::kShift)
    from = -2 - static_cast<int>(collective->kind), to = collective->distance;
  else if (pattern == Pattern::kPairs) from = -2 - static_cast<int>(collective->kind), to = collective->root;
  const Traffic*& traffic = known.traffic[{pattern, from, to}];
  if (traffic == nullptr) {
    WT_ASSIGN_OR_RETURN(traffic, traffic_->Of(pattern, kind, group, position));
  }
  return traffic;
}

// The position of some rank that may be the sender to, or receiver from, the operator's peer.
int SomeonesPosition(const OpKind& kind) {
  const auto* send = std::get_if<Send>(&kind);
  const auto* receive = std::get_if<Receive>(&kind);
  const int peer = send ? send->peer : receive ? receive->peer : 1;
  return peer == 0 ? 1 : 0;
}

// The layout and modelled time of a transfer that has the links to itself.
Result<DeviceCostModel::Alone> DeviceCostModel::AloneOnLinks(const Op& op, const Group& group) const {
  WT_RETURN_IF_ERROR(usable_);
  if (!traffic_) {
    WT_ASSIGN_OR_RETURN(const GroupLayout layout, LayOutGroup(group, cluster_, device_));
    WT_ASSIGN_OR_RETURN(const CollectiveTime time,
                        CollectiveTimeOf(op.kind, layout, device_.collectives, cluster_.network.algorithm,
                                         cluster_.network.protocol));
    return Alone{layout, time};
  }
  WT_ASSIGN_OR_RETURN(KnownGroup * known, Know(group));
  Alone alone{layouts_[known->layout], {}};
  WT_ASSIGN_OR_RETURN(alone.model, ModelOf(op.kind, known->layout));
  if (!has_own_topology_) return alone;
  WT_ASSIGN_OR_RETURN(const Traffic* traffic,
                      CrossedBy(alone.model.pattern, op.kind, group, SomeonesPosition(op.kind), *known));
  alone.model.time =
      std::max(alone.model.time,
               alone.model.latency + LeastMoving(op.kind, alone.model.pattern, alone.layout.ranks, *traffic));
  return alone;
}

// The bytes that a collective moves through each device's memory: it reads what it sends and stores what it
// receives. Switches that reduce read a message from every device and store the sum there.
Bytes MemoryTraffic(const Collective& collective, Pattern pattern, int ranks) {
  const Bytes bytes = MessageBytes(collective);
  if (pattern == Pattern::kNvls || pattern == Pattern::kNvlsTree) return bytes * 2;
  return Bytes(std::llround(2 * SentShare(collective, ranks) * static_cast<double>(bytes.count())));
}

// The speed of kernels beside a collective. Each block of NCCL's kernel occupies a multiprocessor, and its
// traffic takes its share of the memory's bandwidth.
double ComputeEfficiency(const Collective& collective, Pattern pattern, int ranks, int channels,
                         Duration time, const DeviceSpec& device) {
  constexpr double kLeast = 0.05;  // the least that is left to kernels of either
  const double multiprocessors =
      1 - static_cast<double>(channels) / static_cast<double>(device.multiprocessors);
  const Duration moving = MemoryTime(MemoryTraffic(collective, pattern, ranks), device);
  const double memory = time > Duration() ? 1 - moving / time : 1;
  return std::max(multiprocessors, kLeast) * std::max(memory, kLeast);
}

Result<CommunicationCost> DeviceCostModel::Communication(const Op& op, const Group& group) const {
  if (group.ranks.size() <= 1) return CommunicationCost{.source = CostSource::kModelled};
  const CollectiveSpec& spec = device_.collectives;
  WT_ASSIGN_OR_RETURN(const Alone alone, AloneOnLinks(op, group));
  CommunicationCost cost{.time = Distribution::Constant(alone.model.time), .source = CostSource::kModelled};
  const bool is_given = cluster_.network.algorithm != CollectiveAlgorithm::kAuto ||
                        cluster_.network.protocol != CollectiveProtocol::kAuto ||
                        (cluster_.slow_link && cluster_.slow_link->factor != 1);
  const MeasuredCollective* measured = is_given ? nullptr : FindMeasured(op.kind, alone.layout, cluster_, device_);
  if (measured) cost = CostAt(MessageBytes(op.kind), *measured, alone.model.time);
  const ResidualFactors& residuals = framework_.residuals;
  if (residuals.link != 1 || residuals.launch != 1)
    cost.time = Distribution::Constant(cost.time.p50().Scaled(residuals.link) + WaitForLaunch(op.kind));
  int channels = alone.layout.nodes > 1 ? spec.channels_inter : spec.channels_intra;
  if (alone.model.pattern == Pattern::kNvls || alone.model.pattern == Pattern::kNvlsTree)
    channels = spec.channels_nvls;
  cost.algorithm = Name(alone.model.pattern);
  if (alone.model.protocol) cost.protocol = Name(*alone.model.protocol);
  // A message has two channels (NCCL 2.28, paths.cc, ncclTopoGetNchannels, to another node): 2 of a hundred
  // multiprocessors while it is in flight. Kernels are not slowed down by them, so that pipelines can be
  // composed of repeating parts (sim/composed).
  const auto* collective = std::get_if<Collective>(&op.kind);
  if (collective != nullptr && collective->kind != CollectiveKind::kBarrier) {
    if (collective->by_copy_engine) channels = 0;
    // Products that pass on their parts as they make them leave it multiprocessors (Transformer Engine's
    // set_sm_margin).
    cost.holds_multiprocessors = channels > 0 && collective->kind != CollectiveKind::kShift;
    cost.compute_efficiency = ComputeEfficiency(*collective, alone.model.pattern, alone.layout.ranks,
                                                channels, cost.time.p50(), device_);
  }
  return cost;
}

Result<std::shared_ptr<const LinkDemands>> DeviceCostModel::Links(const Op& op, const Group& group,
                                                                  int position) const {
  if (traffic_ == nullptr || group.ranks.size() <= 1) return std::shared_ptr<const LinkDemands>();
  WT_ASSIGN_OR_RETURN(KnownGroup * known, Know(group));
  WT_ASSIGN_OR_RETURN(const CollectiveTime model, ModelOf(op.kind, known->layout));
  WT_ASSIGN_OR_RETURN(const Traffic* traffic, CrossedBy(model.pattern, op.kind, group, position, *known));
  const bool takes_all = has_own_topology_ && model.pattern != Pattern::kPairs;
  if (takes_all || model.time == Duration()) return traffic->demands;
  const Duration moving = LeastMoving(op.kind, model.pattern, layouts_[known->layout].ranks, *traffic);
  const int level = static_cast<int>(std::min(kUseLevels * (moving / model.time), 1.0 * kUseLevels));
  if (level == 0) return std::shared_ptr<const LinkDemands>();
  std::shared_ptr<const LinkDemands>& part = parts_[{traffic, level}];
  if (part == nullptr) {
    LinkDemands demands = *traffic->demands;
    for (LinkDemand& demand : demands) demand.share *= static_cast<double>(level) / kUseLevels;
    part = std::make_shared<const LinkDemands>(std::move(demands));
  }
  return part;
}

}  // namespace

std::unique_ptr<CostModel> MakeDeviceCostModel(const DeviceSpec& device, const Plan& plan,
                                               const FrameworkProfile* framework, ProductSpeeds* speeds,
                                               CardSharing cards) {
  return std::make_unique<DeviceCostModel>(device, plan, framework, speeds, cards);
}

}  // namespace windtunnel
