#include "reports/questions.h"

#include <algorithm>

#include "base/format.h"
#include "plan/axes.h"
#include "plan/stages.h"
#include "reports/outcome.h"
#include "scenarios/checks.h"
#include "scenarios/words.h"
#include "sim/role_memory.h"

namespace windtunnel {
namespace {

constexpr int64_t kMostSequences = 1 << 16;  // more than any micro-batch that is run

// Whether the scenario fits with this batch.micro, by the rule that its prediction would use, and without
// giving back cached memory in every step.
Result<bool> Fits(Scenario scenario, const CompileScenario& compile, int64_t micro, Bytes capacity,
                  Bytes outside) {
  if (outside >= capacity) return false;
  scenario.batch.micro = micro;
  WT_ASSIGN_OR_RETURN(const Plan plan, compile(scenario));
  for (const Role& role : plan.roles) {
    const RoleMemoryOptions options{.allocator = scenario.allocator, .device_capacity = capacity - outside};
    const auto memory = SimulateMemory(role, options);
    if (!memory || memory->steady.retries > 0) return false;
  }
  return true;
}

// Bisect returns the largest number that fits, given one that fits and a larger one that does not.
struct Interval {
  int64_t fits = 0, fails = 0;
};
template <typename Test>
Result<int64_t> Bisect(Interval known, Test test) {
  // The step is doubled first: most answers are small, and large plans are slow.
  for (int64_t step = 1; known.fits + step < known.fails; step *= 2) {
    const int64_t next = known.fits + step;
    WT_ASSIGN_OR_RETURN(const bool fits, test(next));
    (fits ? known.fits : known.fails) = next;
    if (!fits) break;
  }
  while (known.fits + 1 < known.fails) {
    const int64_t middle = known.fits + (known.fails - known.fits) / 2;
    WT_ASSIGN_OR_RETURN(const bool fits, test(middle));
    (fits ? known.fits : known.fails) = middle;
  }
  return known.fits;
}

int Gathers(const Plan& plan) {
  int count = 0;
  for (const Op& op : plan.roles[0].steady.ops) {
    const auto* collective = std::get_if<Collective>(&op.kind);
    count += collective != nullptr && collective->kind == CollectiveKind::kAllGather;
  }
  return count;
}

Bytes LargestPeak(const Prediction& prediction) {
  Bytes peak;
  for (const PredictedMemory& memory : prediction.memory) peak = std::max(peak, memory.steady.allocated);
  return peak;
}

StepAndPeak StepAndPeakOf(const Prediction& prediction) {
  return {.peak = LargestPeak(prediction), .step = prediction.p50};
}

bool HasRoom(const Prediction& prediction, const Capacity& capacity) {
  if (!DescribeRetries(prediction).empty()) return false;
  return prediction.peak_reserved + prediction.outside_allocator <= capacity.bytes;
}

// Empty if no rank holds host memory.
std::string DescribeHostMemory(const Scenario& scenario, const Prediction& prediction) {
  Bytes of_rank;
  for (const PredictedMemory& memory : prediction.memory)
    of_rank = std::max(of_rank, memory.steady.host_allocated);
  if (of_rank == Bytes(0) || !HasDeviceMemory(scenario)) return "";
  return fmt::format("  will the hosts have room?  not checked: {} a rank, {} a node\n", FormatBytes(of_rank),
                     FormatBytes(PredictedHostMemoryOfNode(scenario, prediction)));
}

std::string DescribeLargest(const Scenario& scenario, const Prediction& prediction, const Capacity& capacity,
                            const CompileScenario& compile) {
  const auto largest = LargestMicroBatch(scenario, compile, capacity.bytes, prediction.outside_allocator,
                                         kMostSequences, HasRoom(prediction, capacity));
  std::string text = "  the largest micro-batch that fits:  ";
  if (!largest) return text + largest.error().message + "\n";
  if (*largest == 0) return text + "none, not even 1\n";
  if (*largest == kMostSequences) return text + fmt::format("more than {}\n", kMostSequences);
  std::string number = scenario.batch.accumulate > 1
                           ? fmt::format(", with {} micro-batches a step", scenario.batch.accumulate)
                           : "";
  if (!DescribeRetries(prediction).empty()) number += ", which is too tight";
  return text + fmt::format("{} (now {}{})\n", *largest, scenario.batch.micro, number);
}

// "saves 4.69 GiB of peak memory (38.7 GiB against 43.4 GiB) and costs 1.1 % of the step (1.20 s against 1.18
// s)"
std::string Compare(const StepAndPeak& way, const StepAndPeak& other) {
  const double share = 100 * (way.step / other.step - 1);
  constexpr double kLeastShown = 0.05;  // percent
  const std::string saved =
      other.peak == way.peak  ? "leaves the peak memory as it is"
      : other.peak > way.peak ? fmt::format("saves {} of peak memory", FormatBytes(other.peak - way.peak))
                              : fmt::format("adds {} to the peak memory", FormatBytes(way.peak - other.peak));
  if (std::abs(share) < kLeastShown)
    return fmt::format("{} ({} against {}) in a step as long", saved, FormatBytes(way.peak),
                       FormatBytes(other.peak));
  return fmt::format("{} ({} against {}) and {} {:.1f} % of the step ({} against {})", saved,
                     FormatBytes(way.peak), FormatBytes(other.peak), share >= 0 ? "costs" : "saves",
                     std::abs(share), FormatDuration(way.step), FormatDuration(other.step));
}

// The kind of sharding that differs from `sharding` only in that parameters do not stay whole after forward.
Sharding ReshardingKind(Sharding sharding) {
  if (sharding == Sharding::kShardGradOp) return Sharding::kFullShard;
  return sharding == Sharding::kHybridShardZero2 ? Sharding::kHybridShard : sharding;
}

std::string DescribeResharding(const Scenario& scenario, const CompileScenario& compile,
                               const PredictPlan& predict) {
  const auto ways = WaysOfResharding(scenario, compile, predict);
  const std::string title = "  resharding after forward:  ";
  if (!ways) return title + ways.error().message + "\n";
  const Sharding now = scenario.parallel.data.sharding, then = ReshardingKind(now);
  const std::string sharding = then == now ? "" : fmt::format("sharding: {}, ", WordOf(then));
  std::string text;
  for (size_t i = 1; i < ways->size(); ++i) {
    const int64_t ranks = (*ways)[i].ranks;
    text += i == 1 ? title
                   : fmt::format("  to {} ranks ({}reshard_after_forward: {}):  ", ranks, sharding, ranks);
    text += fmt::format("{}, for {} more all-gathers\n", Compare((*ways)[i], ways->front()),
                        (*ways)[i].gathers - ways->front().gathers);
  }
  return text;
}

// The scenario with the plan's stages where they are cut by cost, so that another loss or other memory could
// change them.
Scenario WithStagesOf(const Plan& plan, const Scenario& scenario) {
  Scenario cut = scenario;
  std::vector<int64_t>& balance = cut.parallel.pipeline.balance;
  if (!plan.pipeline || !balance.empty() || IsMegatronOrDeepspeed(scenario.framework)) return cut;
  for (const StageRange& stage : plan.pipeline->stages) balance.push_back(stage.end - stage.first);
  return CheckScenario(cut) ? cut : scenario;
}

// Empty if the fused loss changes neither the peak nor the step enough.
std::string DescribeFusedLoss(const Scenario& scenario, const Prediction& prediction,
                              const CompileScenario& compile, const PredictPlan& predict) {
  const auto fused = WithFusedLoss(scenario, compile, predict);
  const std::string title = "  a fused loss (cross_entropy: fused):  ";
  if (!fused) return title + fused.error().message + "\n";
  const StepAndPeak now = StepAndPeakOf(prediction);
  constexpr double kWorthwhile = 0.99;
  if (!*fused || ((*fused)->peak / now.peak > kWorthwhile && (*fused)->step / now.step > kWorthwhile))
    return "";
  return fmt::format("{}{}\n", title, Compare(**fused, now));
}

// Empty if activations in the host's memory save little, or are not possible.
std::string DescribeActivationOffload(const Scenario& scenario, const Prediction& prediction,
                                      const CompileScenario& compile, const PredictPlan& predict) {
  const auto offload = ActivationsOnHost(scenario, prediction, compile, predict);
  const std::string title = "  activations on the host (activation_offload: true):  ";
  if (!offload) return title + offload.error().message + "\n";
  constexpr double kWorthwhile = 0.99;
  if (!*offload || (*offload)->on_host.peak / (*offload)->on_device.peak > kWorthwhile) return "";
  return fmt::format("{}{}, for {} of host memory a node\n", title,
                     Compare((*offload)->on_host, (*offload)->on_device), FormatBytes((*offload)->of_node));
}

}  // namespace

Result<int64_t> LargestMicroBatch(const Scenario& scenario, const CompileScenario& compile, Bytes capacity,
                                  Bytes outside, int64_t most, std::optional<bool> fits_now) {
  const auto fits_with = [&](const Scenario& of, int64_t micro) -> Result<bool> {
    if (fits_now && of.batch == scenario.batch && micro == scenario.batch.micro) return *fits_now;
    return Fits(of, compile, micro, capacity, outside);
  };
  const auto search = [&](const Scenario& of, Interval known) {
    return Bisect(known, [&](int64_t micro) { return fits_with(of, micro); });
  };
  const Scenario few = WithFewMicroBatches(scenario);
  if (few.batch == scenario.batch) return search(scenario, {0, most + 1});
  const auto found = search(few, {0, most + 1});
  const int64_t guess = found ? *found : 0;  // (a schedule may be for one number of micro-batches only)
  // Tries the guess and the next number; if the guess was wrong, searches on from there.
  if (guess > 0) {
    WT_ASSIGN_OR_RETURN(const bool fits, fits_with(scenario, guess));
    if (!fits) return search(scenario, {0, guess});
  }
  if (guess == most) return guess;
  WT_ASSIGN_OR_RETURN(const bool next_fits, fits_with(scenario, guess + 1));
  return next_fits ? search(scenario, {guess + 1, most + 1}) : guess;
}

namespace {

// The number of ranks of a shard group over which resharding is worth trying; 0: none.
int64_t RanksToReshardTo(const Scenario& scenario) {
  const ParallelSpec& parallel = scenario.parallel;
  const int64_t all = ShardRanks(scenario);
  const int64_t of_node = scenario.cluster.devices_per_node / parallel.tensor.size;
  const int64_t ranks = parallel.data.reshard_ranks > 0 ? parallel.data.reshard_ranks : of_node;
  const bool can = parallel.data.version == 2 && parallel.expert.size == 1;
  return can && ranks > 1 && ranks < all && all % ranks == 0 ? ranks : 0;
}

Scenario WithResharding(Scenario scenario, int64_t ranks) {
  DataParallelSpec& data = scenario.parallel.data;
  data.reshard_after_forward = ranks > 1;
  data.reshard_ranks = ranks > 1 && ranks < ShardRanks(scenario) ? ranks : 0;
  if (ranks > 1) data.sharding = ReshardingKind(data.sharding);
  return scenario;
}

}  // namespace

Result<std::vector<Resharding>> WaysOfResharding(const Scenario& scenario, const CompileScenario& compile,
                                                 const PredictPlan& predict) {
  std::vector<Resharding> ways;
  const int64_t all = ShardRanks(scenario);
  if (scenario.parallel.data.kind != DataParallelKind::kFsdp || all == 1) return ways;
  std::vector<int64_t> numbers = {1, all};
  const int64_t fewer = RanksToReshardTo(scenario);
  if (fewer > 0 && CheckScenario(WithResharding(scenario, fewer))) numbers.push_back(fewer);
  for (const int64_t ranks : numbers) {
    WT_ASSIGN_OR_RETURN(const Plan plan, compile(WithResharding(scenario, ranks)));
    WT_ASSIGN_OR_RETURN(const Prediction prediction, predict(plan));
    ways.push_back({StepAndPeakOf(prediction), ranks, Gathers(plan)});
  }
  return ways;
}

Result<std::optional<StepAndPeak>> WithFusedLoss(const Scenario& scenario, const CompileScenario& compile,
                                                 const PredictPlan& predict) {
  const bool could = scenario.model.kind == ModelKind::kTransformer && HasFusedLosses(scenario.framework) &&
                     scenario.framework != Framework::kWindtunnel;
  if (!could || scenario.cross_entropy == CrossEntropyKind::kFused) return std::optional<StepAndPeak>();
  Scenario fused = scenario;
  fused.cross_entropy = CrossEntropyKind::kFused;
  WT_ASSIGN_OR_RETURN(const Plan plan, compile(fused));
  WT_ASSIGN_OR_RETURN(const Prediction prediction, predict(plan));
  return std::optional(StepAndPeakOf(prediction));
}

Result<std::optional<Offloading>> ActivationsOnHost(const Scenario& scenario, const Prediction& prediction,
                                                    const CompileScenario& compile,
                                                    const PredictPlan& predict) {
  Scenario other = scenario;
  other.activation_offload = !scenario.activation_offload;
  other.activation_offload_layers = 0;
  if (!HasDeviceMemory(scenario) || AddsDoubts(scenario, other) || !CheckScenario(other))
    return std::optional<Offloading>();
  WT_ASSIGN_OR_RETURN(const Plan plan, compile(other));
  WT_ASSIGN_OR_RETURN(const Prediction of_other, predict(plan));
  const bool is_now = scenario.activation_offload;
  const Prediction &on_host = is_now ? prediction : of_other, &on_device = is_now ? of_other : prediction;
  return std::optional(Offloading{.on_host = StepAndPeakOf(on_host),
                                  .on_device = StepAndPeakOf(on_device),
                                  .of_node = PredictedHostMemoryOfNode(is_now ? scenario : other, on_host)});
}

std::string DescribeFit(const Prediction& prediction, const Capacity& capacity) {
  const Bytes needed = prediction.peak_reserved + prediction.outside_allocator;
  const bool fits = needed <= capacity.bytes;
  const std::string retries = DescribeRetries(prediction);
  std::string room =
      fmt::format("{} {}", FormatBytes(fits ? capacity.bytes - needed : needed - capacity.bytes),
                  fits ? "to spare" : "too much");
  if (fits && !retries.empty()) room = retries + " (slow: too tight)";
  else if (fits && IsAtLimit(needed, capacity.bytes))
    room += " (at the limit: predictions of peaks are some per cent off)";
  return fmt::format("  will it fit?  {}: {} reserved and {} outside the allocator, of {}, {}; {}\n",
                     !fits             ? "NO"
                     : retries.empty() ? "yes"
                                       : "only just",
                     FormatBytes(prediction.peak_reserved), FormatBytes(prediction.outside_allocator),
                     capacity.of, FormatBytes(capacity.bytes), room);
}

std::string AnswerQuestions(const Scenario& scenario, const Plan& plan, const Prediction& prediction,
                            const std::optional<Capacity>& capacity, const CompileScenario& compile,
                            const PredictPlan& predict, Ink ink) {
  std::string text = "\n" + ink.Bold("questions") + "\n";
  if (capacity) {
    text += DescribeFit(prediction, *capacity);
    text += DescribeHostMemory(scenario, prediction);
    text += DescribeLargest(scenario, prediction, *capacity, compile);
    if (!HasRoom(prediction, *capacity)) {
      const Bytes outside = std::min(prediction.outside_allocator, capacity->bytes);
      text += DescribeRemedies(scenario, capacity->bytes - outside, outside, compile, predict);
    }
  } else {
    text += "  will it fit?  the device's memory is not known\n";
  }
  const Scenario as_cut = WithStagesOf(plan, scenario);
  std::string compared = DescribeFusedLoss(as_cut, prediction, compile, predict) +
                         DescribeActivationOffload(as_cut, prediction, compile, predict) +
                         DescribeResharding(as_cut, compile, predict);
  const bool is_cut_by_cost = as_cut.parallel.pipeline.balance != scenario.parallel.pipeline.balance;
  if (is_cut_by_cost && !compared.empty())
    compared = "  with the stages as they are (another scenario is cut anew, unless it has this balance):\n" +
               compared;
  return text + compared;
}

}  // namespace windtunnel
