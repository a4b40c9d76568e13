#include "cost_models/fit.h"

#include <algorithm>
#include <set>

#include "base/ceil_divide.h"
#include "base/check.h"
#include "base/median.h"

namespace windtunnel {
namespace {

constexpr double kSlowestRate = 0.02;  // below this a measurement says nothing about sharing

// The time of issuing an operator beside a device (DispatchKey).
bool IsDispatch(const KernelEntry& entry) { return entry.key.starts_with("dispatch "); }

std::vector<Duration> Pooled(const std::vector<CalibrationSamples>& by_rank, const std::string& key) {
  std::vector<Duration> all;
  for (const CalibrationSamples& samples : by_rank) {
    auto found = samples.kernels.find(key);
    if (found != samples.kernels.end()) all.insert(all.end(), found->second.begin(), found->second.end());
  }
  return all;
}

void FitKernels(const std::vector<CalibrationSamples>& by_rank, int ranks_per_node, Profile& profile) {
  std::set<std::string> keys;  // ranks of other roles run other kernels
  for (const CalibrationSamples& samples : by_rank) {
    for (const auto& [key, unused] : samples.kernels) keys.insert(key);
  }
  for (const std::string& key : keys) {
    std::vector<Duration> times = Pooled(by_rank, key);
    KernelEntry entry{key, ranks_per_node, static_cast<int64_t>(times.size()), {}};
    entry.time = Distribution::FromSamples(std::move(times));
    const KernelEntry* known = profile.FindKernel(key, ranks_per_node);
    if (IsDispatch(entry) && known != nullptr && known->time.p50() < entry.time.p50()) continue;
    profile.Put(std::move(entry));
  }
}

void FitHost(const std::vector<CalibrationSamples>& by_rank, int ranks_per_node, Profile& profile) {
  std::vector<Duration> dispatch;
  std::vector<double> common;
  for (const CalibrationSamples& samples : by_rank) {
    dispatch.insert(dispatch.end(), samples.dispatch.begin(), samples.dispatch.end());
    common.insert(common.end(), samples.common_mode.begin(), samples.common_mode.end());
  }
  if (!dispatch.empty()) profile.dispatch[ranks_per_node] = Distribution::FromSamples(std::move(dispatch));
  if (common.empty()) return;
  // As durations, to share the quantiles' definition: a ratio of 1 is a microsecond.
  std::vector<Duration> ratios;
  for (double ratio : common) ratios.push_back(Microseconds(ratio));
  const Distribution quantiles = Distribution::FromSamples(std::move(ratios));
  for (size_t i = 0; i < profile.common_mode.size(); ++i)
    profile.common_mode[i] = quantiles.values()[i] / Microseconds(1);
}

// The values of the ranks that took part.
std::vector<const std::vector<Duration>*> Column(const std::vector<CalibrationSamples>& by_rank,
                                                 size_t collective,
                                                 std::vector<Duration> CollectiveSamples::*member) {
  std::vector<const std::vector<Duration>*> column;
  for (const CalibrationSamples& samples : by_rank) {
    const CollectiveSamples& of_rank = samples.collectives[collective];
    if (!of_rank.arrived.empty()) column.push_back(&(of_rank.*member));
  }
  WT_CHECK(!column.empty());
  return column;
}

Duration AtIndex(const std::vector<const std::vector<Duration>*>& column, size_t index, bool largest) {
  Duration result = (*column[0])[index];
  for (const auto* values : column)
    result = largest ? std::max(result, (*values)[index]) : std::min(result, (*values)[index]);
  return result;
}

void FitOverlap(const std::vector<CalibrationSamples>& by_rank, size_t index, double ranks_per_core,
                CollectiveEntry& entry) {
  const auto arrived = Column(by_rank, index, &CollectiveSamples::overlap_arrived);
  const auto done = Column(by_rank, index, &CollectiveSamples::overlap_done);
  const auto compute_end = Column(by_rank, index, &CollectiveSamples::overlap_compute_end);
  std::vector<double> collective_rates, compute_rates;
  for (size_t i = 0; i < arrived[0]->size(); ++i) {
    const Duration start = AtIndex(arrived, i, true);
    const Duration end = AtIndex(done, i, true);
    const Duration computing = std::min(end, AtIndex(compute_end, i, false)) - start;
    if (computing > Duration())
      collective_rates.push_back(RateUnderCompute(entry.time.p50(), end - start, computing));
  }
  for (const CalibrationSamples& samples : by_rank) {
    const auto& rates = samples.collectives[index].compute_rate;
    // Samples are relative to a core of one's own; the entry is relative to the same ranks computing on it
    // without the collective.
    for (double rate : rates) compute_rates.push_back(rate * ranks_per_core);
  }
  if (collective_rates.empty() || compute_rates.empty()) return;
  entry.collective_rate_under_compute = Median(std::move(collective_rates));
  entry.compute_rate_under_collective = std::clamp(Median(std::move(compute_rates)), kSlowestRate, 1.0);
}

void FitCollectives(const std::vector<CalibrationSamples>& by_rank, const std::string& backend,
                    double ranks_per_core, Profile& profile) {
  for (size_t index = 0; index < by_rank[0].collectives.size(); ++index) {
    const CollectiveSamples& first = by_rank[0].collectives[index];
    std::vector<Duration> times = GroupTimes(Column(by_rank, index, &CollectiveSamples::arrived),
                                             Column(by_rank, index, &CollectiveSamples::done));
    CollectiveEntry entry;
    entry.op = first.op;
    entry.backend = first.backend.empty() ? backend : first.backend;
    entry.ranks = first.ranks;
    entry.bytes = Bytes(first.bytes);
    entry.count = static_cast<int64_t>(times.size());
    entry.time = Distribution::FromSamples(std::move(times));
    std::vector<Duration> core_times;
    for (const CalibrationSamples& samples : by_rank) {
      const auto& values = samples.collectives[index].core_time;
      core_times.insert(core_times.end(), values.begin(), values.end());
    }
    // A device communicates with engines of its own, which take no core time.
    if (!core_times.empty()) entry.core_time = Distribution::FromSamples(std::move(core_times)).p50();
    FitOverlap(by_rank, index, ranks_per_core, entry);
    profile.Put(std::move(entry));
  }
}

}  // namespace

void ForgetDispatch(int ranks_per_node, Profile& profile) {
  std::erase_if(profile.kernels,
                [&](const KernelEntry& entry) { return entry.ranks == ranks_per_node && IsDispatch(entry); });
}

std::vector<Duration> GroupTimes(const std::vector<const std::vector<Duration>*>& arrived,
                                 const std::vector<const std::vector<Duration>*>& done) {
  std::vector<Duration> times;
  for (size_t i = 0; i < arrived[0]->size(); ++i) {
    times.push_back(std::max(AtIndex(done, i, true) - AtIndex(arrived, i, true), Duration()));
  }
  return times;
}

double RateUnderCompute(Duration alone, Duration took, Duration computing) {
  return std::clamp((alone - (took - computing)) / computing, kSlowestRate, 1.0);
}

void FitSamples(const std::vector<CalibrationSamples>& by_rank, const std::string& backend,
                int ranks_per_node, Profile& profile) {
  WT_CHECK(!by_rank.empty());
  FitKernels(by_rank, ranks_per_node, profile);
  FitHost(by_rank, ranks_per_node, profile);
  const int64_t cores = std::max<int64_t>(profile.cores, 1);
  FitCollectives(by_rank, backend, static_cast<double>(CeilDivide(ranks_per_node, cores)), profile);
  Bytes outside;
  for (const CalibrationSamples& samples : by_rank) outside = std::max(outside, samples.outside_allocator);
  profile.Put(OutsideAllocatorEntry{by_rank.size() > 1 ? backend : "none", static_cast<int>(by_rank.size()),
                                    outside});
}

}  // namespace windtunnel
