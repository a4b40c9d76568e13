#include "sim/predict.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/parallel.h"
#include "sim/executor.h"
#include "sim/folding.h"
#include "sim/network_flows.h"
#include "sim/recording.h"
#include "sim/role_memory.h"
#include "sim/step_costs.h"
#include "sim/step_schedule.h"

namespace windtunnel {
namespace {

// The index of the p-th percentile (a whole number) among n sorted values, by nearest rank: ceil(p n / 100) - 1.
// Unlike a Distribution's quantile, the value there is a replicate's own, whose timelines can be shown.
int NearestRank(int percent, int n) { return std::max((percent * n + 99) / 100 - 1, 0); }

CoreLayout CoresOf(const Plan& plan, const CostModel& costs) {
  return {.cores_per_node = costs.cores_per_node(),
          .ranks_per_node = static_cast<int>(std::max<int64_t>(plan.scenario.cluster.devices_per_node, 1))};
}

// Draws and runs replicates.
class MonteCarlo {
 public:
  MonteCarlo(const StepSchedule& schedule, const StepCosts& costs, const NetworkFlows& flows,
             CoreLayout cores, uint64_t seed)
      : schedule_(schedule),
        sampler_(schedule, costs, seed),
        executor_(schedule, cores, TraitsOf(schedule, costs), flows) {}

  Result<Duration> StepTime(int replicate) {
    sampler_.Draw(replicate, work_);
    auto time = executor_.Run(work_, nullptr);
    events_ += executor_.events();
    return time;
  }

  // Repeats the replicate's run, to the last bit, and returns its timelines.
  Result<std::vector<Timeline>> Timelines(int replicate, const std::vector<RoleMemory>& memory) {
    sampler_.Draw(replicate, work_);
    StepRecording recording(schedule_);
    WT_RETURN_IF_ERROR(executor_.Run(work_, &recording));
    slowed_ = recording.Slowed(work_.items, work_.transfers);
    return recording.Timelines(memory);
  }

  int64_t events() const { return events_; }
  // Of the last run that had timelines.
  Duration slowed() const { return slowed_; }

 private:
  const StepSchedule& schedule_;
  Duration slowed_;
  StepSampler sampler_;
  StepExecutor executor_;
  StepWork work_;
  int64_t events_ = 0;
};

// Replicates by step time (ties: by number), and those times.
struct Replicates {
  std::vector<int> by_time;
  std::vector<Duration> times;  // ascending
};

Result<Replicates> RunReplicates(MonteCarlo& monte_carlo, int count) {
  std::vector<Duration> times;
  for (int i = 0; i < count; ++i) {
    WT_ASSIGN_OR_RETURN(Duration time, monte_carlo.StepTime(i));
    times.push_back(time);
  }
  Replicates result;
  result.by_time.resize(count);
  std::iota(result.by_time.begin(), result.by_time.end(), 0);
  std::sort(result.by_time.begin(), result.by_time.end(),
            [&](int a, int b) { return times[a] != times[b] ? times[a] < times[b] : a < b; });
  for (int replicate : result.by_time) result.times.push_back(times[replicate]);
  return result;
}

// Means over replicates. Those by operator are over ranks, too, each weighted by the number that it stands
// for.
class StepMeans {
 public:
  explicit StepMeans(const Plan& plan) : plan_(plan) {}

  // REQUIRES: the ranks of the first call, in the same order.
  void Add(const std::vector<Timeline>& timelines) {
    ranks_ = BreakDown(plan_, timelines);
    parts_.resize(ranks_.size());
    for (size_t i = 0; i < ranks_.size(); ++i) parts_[i].Add(ranks_[i].parts);
    for (const Timeline& timeline : timelines) {
      const Role& role = plan_.RoleOf(timeline.rank);
      for (const auto& [name, time] : AttributeTime(timeline, role, role.steady))
        sums_[name] += static_cast<Wide>(time.picoseconds()) * timeline.stands_for;
      weight_ += timeline.stands_for;
    }
  }

  std::map<std::string, Duration> ByOperator() const {
    std::map<std::string, Duration> mean;
    for (const auto& [name, sum] : sums_) mean[name] = Picoseconds(static_cast<int64_t>(sum / weight_));
    return mean;
  }

  // Scaled to steps of `step` in the mean.
  std::vector<RankBreakdown> ByRank(Duration step) const {
    std::vector<RankBreakdown> ranks = ranks_;
    for (size_t i = 0; i < ranks.size(); ++i) ranks[i].parts = parts_[i].Mean();
    ScaleMeanTo(step, ranks);
    return ranks;
  }

 private:
  __extension__ using Wide = __int128;
  const Plan& plan_;
  std::map<std::string, Wide> sums_;
  int64_t weight_ = 0;
  std::vector<RankBreakdown> ranks_;  // with the parts of the last replicate
  std::vector<BreakdownMean> parts_;
};

// Over the replicates between p25 and p75. `of_median` are the timelines of the median replicate.
Result<StepMeans> MeansOf(const Plan& plan, MonteCarlo& monte_carlo, const Replicates& replicates,
                          const std::vector<Timeline>& of_median) {
  const int n = static_cast<int>(replicates.by_time.size());
  StepMeans means(plan);
  for (int i = NearestRank(25, n); i <= NearestRank(75, n); ++i) {
    if (i == NearestRank(50, n)) {
      means.Add(of_median);
      continue;
    }
    WT_ASSIGN_OR_RETURN(const std::vector<Timeline> of_ranks,
                        monte_carlo.Timelines(replicates.by_time[i], {}));
    means.Add(of_ranks);
  }
  return means;
}

// A schedule with its costs.
struct Work {
  StepSchedule schedule;
  StepCosts costs;
  NetworkFlows flows;
  bool is_constant = false;
  int runs = 0;  // replicates that are simulated
};

// One if all replicates would be the same; fewer than `replicates` if a step has so many items that its time
// hardly varies.
int RunsFor(const Work& work, int replicates) {
  constexpr int64_t kItems = 5'000'000;  // in all runs
  constexpr int kLeast = 5;
  if (work.is_constant) return 1;
  const int64_t items = work.schedule.items + static_cast<int64_t>(work.schedule.transfers.size());
  const int affordable =
      static_cast<int>(std::min<int64_t>(kItems / std::max<int64_t>(items, 1), replicates));
  return std::min(replicates, std::max(affordable, kLeast));
}

Result<Work> WorkFor(const Plan& plan, const CostModel& model, ScheduleOptions schedule, int replicates) {
  Work work;
  WT_ASSIGN_OR_RETURN(work.schedule, MakeStepSchedule(plan, std::move(schedule)));
  WT_ASSIGN_OR_RETURN(work.costs, ResolveCosts(work.schedule, model, replicates));
  WT_ASSIGN_OR_RETURN(work.flows, FlowsOf(work.schedule, model));
  work.is_constant = AreConstant(work.schedule, work.costs);
  work.runs = RunsFor(work, replicates);
  work.costs.common_mode = CommonModes(model, work.runs);
  return work;
}

// Where costs have spread, a rank that stands for others represents only their distribution. Up to this many
// ranks, each has draws of its own.
constexpr int kRanksDrawnOneByOne = 64;

// One rank of each class, unless folding is off. (Ranks that share cores are never folded.)
Result<Work> WorkFor(const Plan& plan, const CostModel& model, const PredictOptions& options) {
  const HostRole host = model.host_computes() ? HostRole::kComputes : HostRole::kIssues;
  if (options.fold && model.cores_per_node() == 0) {
    WT_ASSIGN_OR_RETURN(Folding folding, model.has_links() ? FoldWithLinks(plan, model) : Fold(plan));
    WT_ASSIGN_OR_RETURN(
        Work folded, WorkFor(plan, model, {.host = host, .folding = std::move(folding)}, options.replicates));
    const bool draws_all = !folded.is_constant && plan.world_size <= kRanksDrawnOneByOne;
    if (!draws_all || !folded.schedule.folding.is_folded()) return folded;
  }
  Folding folding = Unfolded(plan);
  if (model.has_links()) folding.lies_like = folding.class_of_group;  // each group has links of its own
  return WorkFor(plan, model, {.host = host, .folding = std::move(folding)}, options.replicates);
}

// No limit for a device whose memory is not known (0 bytes).
Bytes RoomForAllocator(Bytes device, Bytes outside) {
  if (device == Bytes(0)) return Bytes::Max();
  return device > outside ? device - outside : Bytes(0);
}

Status CheckReplicates(const PredictOptions& options) {
  if (options.replicates >= 1) return Ok();
  return InvalidInput("{} replicates, expected at least 1", options.replicates);
}

// Returns what PredictMemory does, and appends each role's memory to `memory`.
Result<Prediction> MemoryOf(const Plan& plan, const CostModel& model, int threads,
                            std::vector<RoleMemory>& memory) {
  Prediction prediction;
  prediction.outside_allocator = model.OutsideAllocator(plan);
  prediction.device_memory = model.DeviceMemory();
  const Bytes room = RoomForAllocator(prediction.device_memory, prediction.outside_allocator);
  std::vector<std::optional<Result<RoleMemory>>> simulated(plan.roles.size());
  ForEachInParallel(threads, plan.roles.size(), [&](size_t i) {
    simulated[i] = SimulateMemoryWithin(room, plan.roles[i], plan.scenario.allocator);
  });
  for (size_t i = 0; i < plan.roles.size(); ++i) {
    const Role& role = plan.roles[i];
    WT_ASSIGN_OR_RETURN(RoleMemory own, std::move(*simulated[i]));
    prediction.memory.push_back({role.ranks, own.steady, own.initial_peak, own.reserved, own.host_reserved});
    prediction.initial_peak = std::max(prediction.initial_peak, own.initial_peak);
    prediction.peak_reserved = std::max(prediction.peak_reserved, own.steady.reserved);
    memory.push_back(std::move(own));
  }
  return prediction;
}

}  // namespace

Bytes RoomForAllocator(const Plan& plan, const CostModel& costs) {
  return RoomForAllocator(costs.DeviceMemory(), costs.OutsideAllocator(plan));
}

Result<Prediction> PredictMemory(const Plan& plan, const CostModel& model) {
  std::vector<RoleMemory> memory;
  return MemoryOf(plan, model, /*threads=*/1, memory);
}

Result<Prediction> Predict(const Plan& plan, const CostModel& model, const PredictOptions& options) {
  WT_RETURN_IF_ERROR(CheckReplicates(options));
  std::vector<RoleMemory> memory;
  WT_ASSIGN_OR_RETURN(Prediction prediction, MemoryOf(plan, model, options.threads, memory));

  // Time: replicates of the steady step.
  WT_ASSIGN_OR_RETURN(const Work work, WorkFor(plan, model, options));
  MonteCarlo monte_carlo(work.schedule, work.costs, work.flows, CoresOf(plan, model), options.seed);
  WT_ASSIGN_OR_RETURN(Replicates replicates, RunReplicates(monte_carlo, work.runs));
  const int runs = static_cast<int>(replicates.times.size());
  prediction.events = monte_carlo.events();
  prediction.p10 = replicates.times[NearestRank(10, runs)];
  prediction.p50 = replicates.times[NearestRank(50, runs)];
  prediction.p90 = replicates.times[NearestRank(90, runs)];

  // Where the time goes.
  const int median = replicates.by_time[NearestRank(50, runs)];
  WT_ASSIGN_OR_RETURN(prediction.timelines, monte_carlo.Timelines(median, memory));
  // Where ranks share cores they also slow each other down, which is not told apart.
  const CoreLayout cores = CoresOf(plan, model);
  if (cores.cores_per_node == 0 || cores.cores_per_node >= cores.ranks_per_node)
    prediction.slowed = monte_carlo.slowed();
  WT_ASSIGN_OR_RETURN(const StepMeans means, MeansOf(plan, monte_carlo, replicates, prediction.timelines));
  prediction.by_operator = means.ByOperator();
  prediction.by_rank = means.ByRank(prediction.p50);
  prediction.breakdown = MeanOf(prediction.by_rank);
  const SourceShares shares = ShareBySource(work.schedule, work.costs);
  prediction.measured_share = shares.measured;
  prediction.interpolated_share = shares.interpolated;
  prediction.modelled_share = shares.modelled;
  prediction.step_times = std::move(replicates.times);
  if (work.is_constant) prediction.step_times.resize(options.replicates, prediction.p50);
  return prediction;
}

Result<Duration> PredictStepTime(const Plan& plan, const CostModel& model, const PredictOptions& options) {
  WT_RETURN_IF_ERROR(CheckReplicates(options));
  WT_ASSIGN_OR_RETURN(const Work work, WorkFor(plan, model, options));
  MonteCarlo monte_carlo(work.schedule, work.costs, work.flows, CoresOf(plan, model), options.seed);
  WT_ASSIGN_OR_RETURN(const Replicates replicates, RunReplicates(monte_carlo, work.runs));
  return replicates.times[NearestRank(50, static_cast<int>(replicates.times.size()))];
}

}  // namespace windtunnel
