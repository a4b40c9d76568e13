#include "sim/step_costs.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>

#include "base/random.h"
#include "sim/draws.h"
#include "sim/lateness.h"

namespace windtunnel {
namespace {

class Resolver {
 public:
  Resolver(const StepSchedule& schedule, const CostModel& model) : schedule_(schedule), model_(model) {}

  Result<StepCosts> Run() {
    for (size_t role = 0; role < schedule_.roles.size(); ++role) WT_RETURN_IF_ERROR(AddRole(role));
    for (const Transfer& transfer : schedule_.transfers) WT_RETURN_IF_ERROR(AddTransfer(transfer));
    return std::move(costs_);
  }

 private:
  static constexpr int32_t kUnknown = -2;

  // An operator's costs on its own rank; kUnknown where the schedule has not asked for one.
  struct OpCosts {
    int32_t kernel = kUnknown, host = kUnknown;
  };

  Status AddRole(size_t role) {
    const std::vector<Op>& ops = schedule_.plan->roles[role].steady.ops;
    of_op_.emplace_back(ops.size(), nullptr);
    std::vector<int32_t>& costs = costs_.cost_of_item.emplace_back();
    for (const WorkItem& item : schedule_.roles[role].items) {
      int32_t cost = StepCosts::kNothing;
      if (item.kind == WorkItem::Kind::kDispatch) cost = HostOf(role, item.op);
      if (item.kind == WorkItem::Kind::kKernel) {
        WT_ASSIGN_OR_RETURN(cost, KernelOf(role, item.op));
      }
      costs.push_back(cost);
    }
    return Ok();
  }

  // An operator that the host launches in a graph costs it another time than an operator launched alone.
  static std::string GraphKey(const Op& op) {
    if (op.graph == 0) return "";
    return op.graph > 0 ? " " + GraphLaunchKey(op.graph) : " in_graph";
  }

  OpCosts& CostsOf(size_t role, OpIndex op) {
    OpCosts*& costs = of_op_[role][op];
    const Op& operation = schedule_.plan->roles[role].steady.ops[op];
    if (costs == nullptr) costs = &of_key_[CostKey(operation) + GraphKey(operation)];
    return *costs;
  }

  int32_t HostOf(size_t role, OpIndex index) {
    OpCosts& costs = CostsOf(role, index);
    if (costs.host == kUnknown) {
      costs.host = static_cast<int32_t>(costs_.hosts.size());
      costs_.hosts.push_back(model_.DispatchOf(schedule_.plan->roles[role].steady.ops[index]));
    }
    return costs.host;
  }

  Result<int32_t> KernelOf(size_t role, OpIndex index) {
    OpCosts& costs = CostsOf(role, index);
    if (costs.kernel == kUnknown) {
      WT_ASSIGN_OR_RETURN(KernelCost cost, model_.Kernel(schedule_.plan->roles[role].steady.ops[index]));
      costs.kernel = static_cast<int32_t>(costs_.kernels.size());
      costs_.kernels.push_back(cost);
    }
    return costs.kernel;
  }

  // A transfer's cost is that of its first rank's operator, and the same in all groups of the axis with the
  // same layout.
  Status AddTransfer(const Transfer& transfer) {
    const Participant& first = schedule_.participants[transfer.first_participant];
    if (transfer.engine != Engine::kLinks) {
      WT_ASSIGN_OR_RETURN(int32_t kernel, KernelOf(schedule_.ranks[first.rank].role, first.op));
      costs_.cost_of_transfer.push_back(kernel);
      return Ok();
    }
    const Axis& axis = schedule_.plan->axes[transfer.axis];
    const int32_t alike = schedule_.folding.lies_like[transfer.axis][transfer.group];
    const Op& op = schedule_.OpOf(first.rank, first.op);
    const auto* collective = std::get_if<Collective>(&op.kind);
    // Of a shift; profiles do not distinguish distances, so cost keys lack it.
    const int distance = collective == nullptr ? 0 : collective->distance;
    auto [entry, is_new] =
        communication_of_key_.try_emplace({transfer.axis, alike, CostKey(op.kind), distance},
                                          static_cast<int32_t>(costs_.communications.size()));
    if (is_new) {
      WT_ASSIGN_OR_RETURN(CommunicationCost cost, model_.Communication(op, axis.groups[transfer.group]));
      costs_.communications.push_back(cost);
    }
    costs_.cost_of_transfer.push_back(entry->second);
    return Ok();
  }

  const StepSchedule& schedule_;
  const CostModel& model_;
  StepCosts costs_;
  std::unordered_map<std::string, OpCosts> of_key_;  // its nodes do not move
  std::vector<std::vector<OpCosts*>> of_op_;         // by role and operator
  std::map<std::tuple<AxisId, int32_t, std::string, int>, int32_t> communication_of_key_;
};

bool IsConstant(const Distribution& distribution) {
  return distribution.values().front() == distribution.values().back();
}

void AddTo(SourceShares& shares, CostSource source, double time) {
  switch (source) {
    case CostSource::kMeasured:
      shares.measured += time;
      return;
    case CostSource::kInterpolated:
      shares.interpolated += time;
      return;
    case CostSource::kModelled:
      shares.modelled += time;
      return;
  }
}

}  // namespace

Result<StepCosts> ResolveCosts(const StepSchedule& schedule, const CostModel& model, int replicates) {
  WT_ASSIGN_OR_RETURN(StepCosts costs, Resolver(schedule, model).Run());
  costs.common_mode = CommonModes(model, replicates);
  return costs;
}

std::vector<double> CommonModes(const CostModel& model, int replicates) {
  std::vector<double> levels;
  for (int i = 0; i < replicates; ++i) levels.push_back(model.CommonMode((i + 0.5) / replicates));
  return levels;
}

bool AreConstant(const StepSchedule& schedule, const StepCosts& costs) {
  auto is_constant = [](const auto& cost) { return IsConstant(cost.time); };
  return schedule.plan->scenario.cluster.jitter == 0 &&
         std::all_of(costs.kernels.begin(), costs.kernels.end(), is_constant) &&
         std::all_of(costs.hosts.begin(), costs.hosts.end(), is_constant) &&
         std::all_of(costs.communications.begin(), costs.communications.end(), is_constant) &&
         std::all_of(costs.common_mode.begin(), costs.common_mode.end(),
                     [&](double factor) { return factor == costs.common_mode.front(); });
}

std::vector<TransferTraits> TraitsOf(const StepSchedule& schedule, const StepCosts& costs) {
  std::vector<TransferTraits> traits(schedule.transfers.size());
  for (size_t i = 0; i < traits.size(); ++i) {
    if (schedule.transfers[i].engine != Engine::kLinks) {
      traits[i].beside_communication = costs.kernels[costs.cost_of_transfer[i]].beside_communication;
      continue;
    }
    const CommunicationCost& cost = costs.communications[costs.cost_of_transfer[i]];
    traits[i] = {cost.core_share, cost.weight, cost.compute_efficiency, cost.holds_multiprocessors};
  }
  return traits;
}

SourceShares ShareBySource(const StepSchedule& schedule, const StepCosts& costs) {
  SourceShares shares;
  auto add = [&shares](const auto& cost, int32_t times) {
    AddTo(shares, cost.source, ToSeconds(cost.time.p50()) * times);
  };
  for (const RankLayout& rank : schedule.ranks) {
    const std::vector<WorkItem>& items = schedule.roles[rank.role].items;
    for (size_t i = 0; i < items.size(); ++i) {
      const int32_t cost = costs.cost_of_item[rank.role][i];
      if (cost == StepCosts::kNothing) continue;
      add(items[i].kind == WorkItem::Kind::kDispatch ? costs.hosts[cost] : costs.kernels[cost], 1);
    }
  }
  for (size_t i = 0; i < schedule.transfers.size(); ++i) {
    const int32_t cost = costs.cost_of_transfer[i];
    if (schedule.transfers[i].engine != Engine::kLinks) add(costs.kernels[cost], 1);
    else add(costs.communications[cost], schedule.transfers[i].participants);
  }
  const double total = shares.measured + shares.interpolated + shares.modelled;
  if (total == 0) return {.measured = 1};  // nothing takes time, so nothing is estimated
  return {shares.measured / total, shares.interpolated / total, shares.modelled / total};
}

StepSampler::StepSampler(const StepSchedule& schedule, const StepCosts& costs, uint64_t seed)
    : schedule_(schedule), costs_(costs), seed_(seed) {
  if (schedule.folding.is_folded() && !AreConstant(schedule, costs))
    lateness_ = std::make_unique<Lateness>(schedule, costs);
}

StepSampler::~StepSampler() = default;

double StepSampler::SlowdownOf(int32_t rank) const {
  const auto& straggler = schedule_.plan->scenario.cluster.straggler;
  return straggler && straggler->rank == rank ? straggler->slowdown : 1;
}

void StepSampler::DrawItems(int32_t rank, int replicate, StepWork& work) const {
  const RandomStream stream(seed_, static_cast<uint64_t>(replicate));
  const RankLayout& layout = schedule_.ranks[rank];
  const std::vector<WorkItem>& items = schedule_.roles[layout.role].items;
  const std::vector<int32_t>& costs = costs_.cost_of_item[layout.role];
  const double jitter = schedule_.plan->scenario.cluster.jitter;
  const double common = costs_.common_mode[replicate];
  const double kernel_factor = common * SlowdownOf(layout.rank);
  for (size_t i = 0; i < items.size(); ++i) {
    Duration& time = work.items[layout.first_item + i];
    if (costs[i] == StepCosts::kNothing) {
      time = Duration();
      continue;
    }
    const bool is_kernel = items[i].kind == WorkItem::Kind::kKernel;
    const uint64_t bits =
        stream.At(CounterOf(rank, items[i].op, is_kernel ? Draw::kKernel : Draw::kDispatch));
    const Distribution& cost = is_kernel ? costs_.kernels[costs[i]].time : costs_.hosts[costs[i]].time;
    const double factor = (is_kernel ? kernel_factor : common) * JitterFactor(bits, jitter);
    time = cost.Quantile(UnitInterval(bits)).Scaled(factor);
  }
}

void StepSampler::DrawTransfers(int replicate, StepWork& work) const {
  const RandomStream stream(seed_, static_cast<uint64_t>(replicate));
  const double jitter = schedule_.plan->scenario.cluster.jitter;
  for (size_t i = 0; i < schedule_.transfers.size(); ++i) {
    const Transfer& transfer = schedule_.transfers[i];
    const Participant& first = schedule_.participants[transfer.first_participant];
    const bool is_kernel = transfer.engine != Engine::kLinks;
    const uint64_t bits =
        stream.At(CounterOf(first.rank, first.op, is_kernel ? Draw::kKernel : Draw::kTransfer));
    const int32_t cost = costs_.cost_of_transfer[i];
    const Distribution& time = is_kernel ? costs_.kernels[cost].time : costs_.communications[cost].time;
    const double common =
        is_kernel ? costs_.common_mode[replicate] * SlowdownOf(schedule_.ranks[first.rank].rank) : 1;
    work.transfers[i] = time.Quantile(UnitInterval(bits)).Scaled(common * JitterFactor(bits, jitter));
  }
}

void StepSampler::Draw(int replicate, StepWork& work) const {
  work.items.resize(schedule_.items);
  work.transfers.resize(schedule_.transfers.size());
  for (size_t rank = 0; rank < schedule_.ranks.size(); ++rank)
    DrawItems(static_cast<int32_t>(rank), replicate, work);
  DrawTransfers(replicate, work);
  if (lateness_)
    lateness_->Draw(RandomStream(seed_, static_cast<uint64_t>(replicate)), costs_.common_mode[replicate],
                    work);
}

}  // namespace windtunnel
