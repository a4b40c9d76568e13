#include "sim/step_costs.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/check.h"
#include "base/random.h"

namespace windtunnel {
namespace {

// Streams of random numbers: each (rank, operator) owns three numbers of its replicate's stream.
enum class Draw : uint64_t { kKernel, kDispatch, kTransfer };
constexpr uint64_t CounterOf(int32_t rank, OpIndex op, Draw what) {
  return (static_cast<uint64_t>(rank) << 34) + (static_cast<uint64_t>(op) << 2) + static_cast<uint64_t>(what);
}

constexpr double ToUniform(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1.0p-53; }

// A factor with mean 1 and relative standard deviation `jitter`; what would be next to nothing or negative is cut.
double JitterFactor(uint64_t bits, double jitter) {
  constexpr double kLeast = 0.05;
  return jitter == 0 ? 1 : std::max(kLeast, 1 + jitter * RandomStream(bits, 1).Normal());
}

class Resolver {
 public:
  Resolver(const StepSchedule& schedule, const CostModel& model) : schedule_(schedule), model_(model) {}

  Result<StepCosts> Run() {
    costs_.dispatch = model_.Dispatch();
    for (size_t role = 0; role < schedule_.roles.size(); ++role) WT_RETURN_IF_ERROR(AddRole(role));
    for (const Transfer& transfer : schedule_.transfers) WT_RETURN_IF_ERROR(AddTransfer(transfer));
    return std::move(costs_);
  }

 private:
  Status AddRole(size_t role) {
    const std::vector<Op>& ops = schedule_.plan->roles[role].steady.ops;
    std::vector<int32_t>& kernels = costs_.kernel_of_item.emplace_back();
    for (const WorkItem& item : schedule_.roles[role].items) {
      int32_t kernel = item.kind == WorkItem::Kind::kDispatch ? StepCosts::kDispatch : StepCosts::kNothing;
      if (item.kind == WorkItem::Kind::kKernel) {
        WT_ASSIGN_OR_RETURN(kernel, KernelOf(ops[item.op]));
      }
      kernels.push_back(kernel);
    }
    return Ok();
  }

  Result<int32_t> KernelOf(const Op& op) {
    auto [entry, is_new] =
        kernel_of_key_.try_emplace(CostKey(op.kind), static_cast<int32_t>(costs_.kernels.size()));
    if (is_new) {
      WT_ASSIGN_OR_RETURN(KernelCost cost, model_.Kernel(op));
      costs_.kernels.push_back(cost);
    }
    return entry->second;
  }

  // A transfer is costed by its first rank's operator, and like those of an axis's other groups.
  Status AddTransfer(const Transfer& transfer) {
    const Participant& first = schedule_.participants[transfer.first_participant];
    const Op& op = schedule_.OpOf(first.rank, first.op);
    auto key = std::pair(transfer.axis, CostKey(op.kind));
    auto found = transfer_of_key_.find(key);
    if (found == transfer_of_key_.end()) {
      WT_ASSIGN_OR_RETURN(CommunicationCost cost,
                          model_.Communication(op, schedule_.plan->axes[transfer.axis].groups[transfer.group]));
      found = transfer_of_key_.emplace(std::move(key), cost).first;
    }
    costs_.transfers.push_back(found->second);
    return Ok();
  }

  const StepSchedule& schedule_;
  const CostModel& model_;
  StepCosts costs_;
  std::map<std::string, int32_t> kernel_of_key_;
  std::map<std::pair<AxisId, std::string>, CommunicationCost> transfer_of_key_;
};

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
  for (int i = 0; i < replicates; ++i) costs.common_mode.push_back(model.CommonMode((i + 0.5) / replicates));
  return costs;
}

std::vector<TransferTraits> TraitsOf(const StepCosts& costs) {
  std::vector<TransferTraits> traits;
  for (const CommunicationCost& cost : costs.transfers) {
    traits.push_back({cost.core_share, cost.weight, cost.compute_efficiency});
  }
  return traits;
}

SourceShares ShareBySource(const StepSchedule& schedule, const StepCosts& costs) {
  SourceShares shares;
  for (const RankLayout& rank : schedule.ranks) {
    for (int32_t kernel : costs.kernel_of_item[rank.role]) {
      if (kernel == StepCosts::kDispatch)
        AddTo(shares, CostSource::kMeasured, ToSeconds(costs.dispatch.p50()));
      if (kernel >= 0)
        AddTo(shares, costs.kernels[kernel].source, ToSeconds(costs.kernels[kernel].time.p50()));
    }
  }
  for (size_t i = 0; i < costs.transfers.size(); ++i) {
    const CommunicationCost& cost = costs.transfers[i];
    AddTo(shares, cost.source, ToSeconds(cost.time.p50()) * schedule.transfers[i].participants);
  }
  const double total = shares.measured + shares.interpolated + shares.modelled;
  if (total == 0) return {.measured = 1};  // nothing took time, and nothing was made up
  return {shares.measured / total, shares.interpolated / total, shares.modelled / total};
}

double StepSampler::SlowdownOf(int32_t rank) const {
  const auto& straggler = schedule_.plan->scenario.cluster.straggler;
  return straggler && straggler->rank == rank ? straggler->slowdown : 1;
}

void StepSampler::DrawItems(int32_t rank, int replicate, StepWork& work) const {
  const RandomStream stream(seed_, static_cast<uint64_t>(replicate));
  const RankLayout& layout = schedule_.ranks[rank];
  const std::vector<WorkItem>& items = schedule_.roles[layout.role].items;
  const std::vector<int32_t>& kernels = costs_.kernel_of_item[layout.role];
  const double jitter = schedule_.plan->scenario.cluster.jitter;
  const double common = costs_.common_mode[replicate];
  const double kernel_factor = common * SlowdownOf(rank);
  for (size_t i = 0; i < items.size(); ++i) {
    Duration& time = work.items[layout.first_item + i];
    if (kernels[i] == StepCosts::kNothing) {
      time = Duration();
      continue;
    }
    const bool is_kernel = kernels[i] >= 0;
    const uint64_t bits =
        stream.At(CounterOf(rank, items[i].op, is_kernel ? Draw::kKernel : Draw::kDispatch));
    const Distribution& cost = is_kernel ? costs_.kernels[kernels[i]].time : costs_.dispatch;
    const double factor = (is_kernel ? kernel_factor : common) * JitterFactor(bits, jitter);
    time = cost.Quantile(ToUniform(bits)).Scaled(factor);
  }
}

void StepSampler::Draw(int replicate, StepWork& work) const {
  work.items.resize(schedule_.items);
  work.transfers.resize(schedule_.transfers.size());
  for (size_t rank = 0; rank < schedule_.ranks.size(); ++rank)
    DrawItems(static_cast<int32_t>(rank), replicate, work);
  const RandomStream stream(seed_, static_cast<uint64_t>(replicate));
  const double jitter = schedule_.plan->scenario.cluster.jitter;
  for (size_t i = 0; i < schedule_.transfers.size(); ++i) {
    const Participant& first = schedule_.participants[schedule_.transfers[i].first_participant];
    const uint64_t bits = stream.At(CounterOf(first.rank, first.op, Draw::kTransfer));
    work.transfers[i] = costs_.transfers[i].time.Quantile(ToUniform(bits)).Scaled(JitterFactor(bits, jitter));
  }
}

}  // namespace windtunnel
