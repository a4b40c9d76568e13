#include "reports/outcome.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/check.h"
#include "base/format.h"
#include "cost_models/device_spec.h"
#include "cost_models/distribution.h"
#include "cost_models/framework_profile.h"
#include "scenarios/words.h"

namespace windtunnel {
namespace {

Bytes Magnitude(Bytes bytes) { return Bytes(std::llabs(bytes.count())); }

void CompareMemory(const Outcome& outcome, Comparison& comparison) {
  const Prediction& prediction = *outcome.prediction;
  for (const MeasuredMemory& measured : outcome.measurement->memory) {
    const PredictedMemory& memory = PredictedMemoryOf(prediction, measured.rank);
    const MemoryPeak& peak = memory.steady;
    Bytes predicted = peak.allocated;
    comparison.ranks.push_back({measured.rank, predicted, measured.steady.allocated});
    Bytes difference = Magnitude(predicted - measured.steady.allocated);
    comparison.peak_memory = std::max(comparison.peak_memory, difference);
    if (difference > Bytes(0))
      comparison.peak_memory_share =
          std::max(comparison.peak_memory_share, difference / std::max(measured.steady.allocated, Bytes(1)));
    comparison.peak_host =
        std::max(comparison.peak_host, Magnitude(peak.host_allocated - measured.steady.host_allocated));
    comparison.initial_peak =
        std::max(comparison.initial_peak, Magnitude(memory.initial_peak - measured.initial_peak));
    Bytes resident = PredictedResident(outcome, measured.rank) - measured.resident_growth;
    if (Magnitude(resident) > Magnitude(comparison.resident)) comparison.resident = resident;
  }
}

}  // namespace

std::string CostsInWords(const Outcome& outcome) {
  const Scenario& scenario = outcome.plan.scenario;
  std::string words = "device " + scenario.cluster.device;
  if (!outcome.prediction) return words;
  words += " · profile " + outcome.profile.name;
  const bool is_own = scenario.framework == Framework::kWindtunnel;
  if (!outcome.profile.hardware)
    return is_own ? words
                  : fmt::format("{} · the order and the allocator of {}", words, WordOf(scenario.framework));
  // A user who left out the framework key may have meant another framework.
  if (scenario.framework == Framework::kWindtunnel && !outcome.profile.framework)
    return words + " · framework windtunnel (others: windtunnel list frameworks)";
  return words + " · framework " +
         (outcome.profile.framework ? *outcome.profile.framework : FrameworkOf(scenario)).name;
}

std::string ClusterInWords(const Outcome& outcome) {
  const ClusterSpec& cluster = outcome.plan.scenario.cluster;
  if (!outcome.prediction || !outcome.profile.hardware) return "";
  std::vector<std::string> parts;
  const NetworkSpec& network = cluster.network;
  if (outcome.plan.scenario.WorldSize() > 1) {
    const LinkSpec& within = network.intra_node;
    parts.push_back(fmt::format("{} of {}", Counted(cluster.nodes, "node"), cluster.devices_per_node));
    if (cluster.devices_per_node > 1)
      parts.push_back((within.gbytes_per_s > 0 ? fmt::format("{} GB/s", within.gbytes_per_s)
                       : within.kind.empty()   ? outcome.profile.hardware->intra_node
                                               : within.kind) +
                      " within");
  }
  if (cluster.nodes > 1) {
    const LinkSpec& between = network.inter_node;
    if (between.gbits_per_nic > 0)
      parts.push_back(
          fmt::format("{} x {} Gb/s {} a node", network.nics_per_node, between.gbits_per_nic, between.kind));
    else if (between.gbytes_per_s > 0)
      parts.push_back(fmt::format("{} GB/s {} a node", between.gbytes_per_s, between.kind));
  }
  if (!cluster.topology.preset.empty()) parts.push_back("topology " + cluster.topology.preset);
  else if (cluster.topology.is_given()) parts.push_back("topology of its own");
  if (cluster.slow_link)
    parts.push_back(fmt::format("{} to {} at {} x the bandwidth", cluster.slow_link->from,
                                cluster.slow_link->to, cluster.slow_link->factor));
  if (cluster.straggler)
    parts.push_back(
        fmt::format("rank {} takes {} x as long", cluster.straggler->rank, cluster.straggler->slowdown));
  if (cluster.jitter > 0) parts.push_back(fmt::format("{} % jitter", 100 * cluster.jitter));
  return fmt::format("{}", fmt::join(parts, " · "));
}

StepTimes StepTimesOf(const Prediction& prediction) {
  return {prediction.p10, prediction.p50, prediction.p90};
}

StepTimes StepTimesOf(const Measurement& measurement) {
  WT_CHECK(!measurement.step_times.empty());
  Distribution steps = Distribution::FromSamples(measurement.step_times);
  return {steps.p10(), steps.p50(), steps.p90()};
}

Throughput ThroughputOf(const Plan& plan, Duration step) {
  if (step <= Duration()) return {};
  double tokens_per_s = static_cast<double>(plan.model.tokens_per_step) / ToSeconds(step);
  double flops_per_s = plan.model.flops_per_token.count() * tokens_per_s / plan.world_size;
  return {tokens_per_s, FlopRate::FromFlopsPerSecond(flops_per_s)};
}

std::optional<TrainingRun> TrainingRunOf(const Outcome& outcome) {
  if (outcome.train_tokens <= 0 || !outcome.prediction) return std::nullopt;
  constexpr double kSecondsPerHour = 3600;
  TrainingRun run{.tokens = outcome.train_tokens};
  run.steps = std::ceil(run.tokens / static_cast<double>(outcome.plan.model.tokens_per_step));
  run.seconds = run.steps * ToSeconds(outcome.prediction->p50);
  run.device_hours = run.seconds / kSecondsPerHour * outcome.plan.world_size;
  return run;
}

namespace {

// A measured profile has no datasheet of its own; the one of its device has the same name.
std::optional<DeviceSpec> DatasheetOf(const Profile& profile) {
  if (profile.hardware || profile.device == "cpu") return profile.hardware;
  const auto json = EmbeddedProfile(profile.name);
  if (!json) return std::nullopt;
  auto spec = ParseDeviceSpec(*json, profile.name);
  return spec ? std::optional<DeviceSpec>(std::move(*spec)) : std::nullopt;
}

}  // namespace

FlopRate DensePeak(const Plan& plan, const Profile& profile) {
  const std::optional<DeviceSpec> hardware = DatasheetOf(profile);
  if (!hardware) return {};
  switch (plan.scenario.precision.compute) {
    case Precision::kFp32:
      return hardware->PeakFor(DType::kFloat32);
    case Precision::kTf32:
      return hardware->PeakFor(DType::kTf32);
    case Precision::kBf16:
      return hardware->PeakFor(DType::kBFloat16);
    case Precision::kFp16:
      return hardware->PeakFor(DType::kFloat16);
    case Precision::kFp8:
      return hardware->PeakFor(DType::kFloat8);
    case Precision::kFp4:
      return hardware->PeakFor(DType::kFloat4x2);
  }
  return {};
}

std::optional<double> MfuOf(const Plan& plan, const Profile& profile, Duration step) {
  const FlopRate peak = DensePeak(plan, profile);
  if (peak <= FlopRate() || step <= Duration()) return std::nullopt;
  return ThroughputOf(plan, step).flops_per_device.flops_per_second() / peak.flops_per_second();
}

namespace {

// Half of attention's FLOPs per token, as far as it attends to `tokens`, which causal attention does not
// compute.
double MaskedFlops(const ModelSpec& model, double tokens) {
  return 3 * static_cast<double>(model.heads * (model.head_dim + model.ValueDim())) * tokens;
}

}  // namespace

double LeastExecutedShare(const Plan& plan) {
  const ModelSpec& model = plan.scenario.model;
  const double counted = plan.model.flops_per_token.count();
  if (model.kind != ModelKind::kTransformer || counted <= 0) return 1;
  const double embedding = model.tie_embeddings ? 0 : static_cast<double>(model.vocab * model.hidden);
  return 1 - (6 * embedding + MaskedFlops(model, model.AttentionTokens())) / counted;
}

double UnmaskedShare(const Plan& plan) {
  const ModelSpec& model = plan.scenario.model;
  const double counted = plan.model.flops_per_token.count();
  if (model.kind != ModelKind::kTransformer || !model.causal || counted <= 0) return 1;
  return 1 - MaskedFlops(model, model.CausalTokens()) / counted;
}

std::optional<bool> FitsInDevice(const Prediction& prediction) {
  if (prediction.device_memory <= Bytes(0)) return std::nullopt;
  return prediction.peak_reserved + prediction.outside_allocator <= prediction.device_memory;
}

bool IsAtLimit(Bytes needed, Bytes device_memory) {
  constexpr double kShare = 0.98;
  return static_cast<double>(needed.count()) > kShare * static_cast<double>(device_memory.count());
}

std::string DescribeRetries(const Prediction& prediction) {
  int64_t retries = 0;
  for (const PredictedMemory& memory : prediction.memory) retries = std::max(retries, memory.steady.retries);
  if (retries == 0) return "";
  return fmt::format("only by giving back cached memory {} a step", Counted(retries, "time"));
}

// The operators' times, scaled so that they add up to `step`.
std::map<std::string, Duration> SharesOf(Duration step, std::map<std::string, Duration> times) {
  Duration sum;
  for (const auto& [name, time] : times) sum += time;
  if (sum <= Duration()) return times;
  for (auto& [name, time] : times) time = time.Scaled(step / sum);
  return times;
}

std::vector<OperatorRow> OperatorRows(const Outcome& outcome) {
  std::map<std::string, OperatorRow> by_name;
  if (outcome.prediction)
    for (const auto& [name, time] : SharesOf(outcome.prediction->p50, outcome.prediction->by_operator))
      by_name[name].predicted = time;
  if (outcome.measurement && !outcome.measurement->step_times.empty())
    for (const auto& [name, time] :
         SharesOf(StepTimesOf(*outcome.measurement).p50, outcome.measurement->by_operator))
      by_name[name].measured = time;

  bool both = outcome.prediction && outcome.measurement;
  Duration step = both ? StepTimesOf(*outcome.measurement).p50 : Duration();
  std::vector<OperatorRow> rows;
  for (auto& [name, row] : by_name) {
    row.name = name;
    if (step > Duration()) row.contribution = (row.predicted - row.measured) / step;
    rows.push_back(row);
  }
  // Stable over the map's order, so that equal rows stay alphabetical.
  std::stable_sort(rows.begin(), rows.end(), [both](const OperatorRow& a, const OperatorRow& b) {
    if (both) return std::fabs(a.contribution) > std::fabs(b.contribution);
    return std::max(a.predicted, a.measured) > std::max(b.predicted, b.measured);
  });
  return rows;
}

bool HasDeviceMemory(const Scenario& scenario) { return scenario.cluster.device != "cpu"; }

Bytes PredictedResident(const Outcome& outcome, int rank) {
  const PredictedMemory& memory = PredictedMemoryOf(*outcome.prediction, rank);
  const Bytes of_host = HasDeviceMemory(outcome.plan.scenario) ? Bytes(0) : memory.host_reserved;
  // An allocator that has given back memory had reserved more before.
  return std::max(memory.reserved, memory.steady.reserved) + of_host + outcome.prediction->outside_allocator;
}

Bytes PredictedHostMemoryOfNode(const Scenario& scenario, const Prediction& prediction) {
  const int64_t devices = std::max<int64_t>(scenario.cluster.devices_per_node, 1);
  std::map<int64_t, Bytes> of_node;
  Bytes most;
  for (const PredictedMemory& memory : prediction.memory) {
    if (memory.steady.host_allocated == Bytes(0)) continue;
    for (const int rank : memory.ranks) {
      Bytes& bytes = of_node[rank / devices];
      bytes += memory.steady.host_allocated;
      most = std::max(most, bytes);
    }
  }
  return most;
}

const PredictedMemory& PredictedMemoryOf(const Prediction& prediction, int rank) {
  for (const PredictedMemory& memory : prediction.memory)
    if (std::find(memory.ranks.begin(), memory.ranks.end(), rank) != memory.ranks.end()) return memory;
  internal::CheckFailed(__FILE__, __LINE__, fmt::format("no role has rank {}", rank));
}

Comparison Compare(const Outcome& outcome) {
  WT_CHECK(outcome.prediction && outcome.measurement);
  Comparison comparison;
  StepTimes measured = StepTimesOf(*outcome.measurement);
  comparison.step_time = outcome.prediction->p50 / measured.p50 - 1;
  comparison.bubble_fraction =
      outcome.prediction->breakdown.bubble_fraction() - outcome.measurement->breakdown.bubble_fraction();
  CompareMemory(outcome, comparison);

  const ToleranceSpec& tolerance = outcome.plan.scenario.tolerance;
  comparison.step_time_within_tolerance = std::fabs(comparison.step_time) <= tolerance.step_time;
  comparison.peak_memory_within_tolerance = comparison.peak_memory_share <= tolerance.peak_memory;
  return comparison;
}

}  // namespace windtunnel
