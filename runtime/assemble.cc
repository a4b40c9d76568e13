#include "runtime/assemble.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/median.h"
#include "cost_models/distribution.h"
#include "runtime/device_queues.h"

namespace windtunnel {
namespace {

using Steps = TimedSteps RankRun::*;

// A step takes as long as its slowest rank.
std::vector<Duration> StepTimes(const std::vector<RankRun>& runs, Steps steps) {
  std::vector<Duration> times((runs[0].*steps).times.size());
  for (const RankRun& run : runs) {
    for (size_t step = 0; step < times.size(); ++step)
      times[step] = std::max(times[step], (run.*steps).times[step]);
  }
  return times;
}

// Indices of the kept timelines, in the order of their steps' times.
std::vector<size_t> Ranking(const std::vector<RankRun>& runs, Steps steps) {
  const std::vector<Duration> times = StepTimes(runs, steps);
  const size_t stride = static_cast<size_t>((runs[0].*steps).stride);
  std::vector<size_t> timelines((runs[0].*steps).timelines.size());
  std::iota(timelines.begin(), timelines.end(), 0);
  std::stable_sort(timelines.begin(), timelines.end(),
                   [&](size_t a, size_t b) { return times[a * stride] < times[b * stride]; });
  return timelines;
}

// Of so many steps in the order of their times: from, to.
std::pair<size_t, size_t> MiddleHalf(size_t steps) {
  const size_t from = steps / 4;
  return {from, std::max(from + 1, steps - from)};
}

// Whether two ranks timed the same steps, and kept the timelines of the same ones.
bool Agree(const TimedSteps& a, const TimedSteps& b) {
  return a.times.size() == b.times.size() && a.stride == b.stride && a.timelines.size() == b.timelines.size();
}

// The mean over the ranks that have the values: losses are the last stage's.
std::vector<double> MeanOverRanks(const std::vector<RankRun>& runs, std::vector<double> RankRun::*values) {
  std::vector<double> mean;
  double ranks = 0;
  for (const RankRun& run : runs) {
    if ((run.*values).empty()) continue;
    mean.resize((run.*values).size());
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += (run.*values)[i];
    ++ranks;
  }
  for (double& value : mean) value /= ranks;
  return mean;
}

// Splits values that are listed step by step, one for each module, by module.
std::vector<std::vector<double>> ByModule(const std::vector<double>& values, size_t steps) {
  const size_t modules = steps == 0 ? 0 : values.size() / steps;
  std::vector<std::vector<double>> by_module(modules);
  for (size_t i = 0; i < values.size(); ++i) by_module[i % modules].push_back(values[i]);
  return by_module;
}

// The number of kernels of the step, by kind of operator. Each kernel was timed.
std::map<std::string, int64_t> TimedKernels(const Timeline& timeline, const Program& program) {
  std::map<std::string, int64_t> kernels;
  for (const Span& span : timeline.spans) {
    const Op& op = program.ops[span.op];
    if (span.stream == kComputeStream && !op.on_host) ++kernels[std::string(OperatorName(op.kind))];
  }
  return kernels;
}

// The time that timing a kernel adds to a traced step, on a device whose measured steps are not
// traced (docs/decisions/0014).
Duration TimingOfAKernel(const Plan& plan, const std::vector<RankRun>& runs) {
  if (runs[0].traced.times.empty()) return {};
  int64_t most = 1;
  for (const RankRun& run : runs) {
    int64_t kernels = 0;
    const Timeline& timeline = run.traced.timelines[0];
    for (const auto& [name, count] : TimedKernels(timeline, plan.RoleOf(timeline.rank).steady))
      kernels += count;
    most = std::max(most, kernels);
  }
  const Duration added =
      Median(StepTimes(runs, &RankRun::traced)) - Median(StepTimes(runs, &RankRun::measured));
  return std::clamp(added / most, Duration(), kLongestEvent);
}

// The mean over ranks and over the kept steps between the quartiles of step time. `timing` is taken off for
// each kernel, up to half of the operator's time.
std::map<std::string, Duration> ByOperator(const Plan& plan, const std::vector<RankRun>& runs, Steps steps,
                                           const std::vector<size_t>& ranking, Duration timing) {
  const auto [from, to] = MiddleHalf(ranking.size());
  std::map<std::string, Duration> sum;
  for (const RankRun& run : runs) {
    for (size_t i = from; i < to; ++i) {
      const Timeline& timeline = (run.*steps).timelines[ranking[i]];
      const Role& role = plan.RoleOf(timeline.rank);
      std::map<std::string, Duration> times = AttributeTime(timeline, role, role.steady);
      for (const auto& [name, kernels] : TimedKernels(timeline, role.steady))
        times[name] -= std::min(timing * kernels, times[name] / 2);
      for (const auto& [name, time] : times) sum[name] += time;
    }
  }
  for (auto& [name, time] : sum) time = time / static_cast<int64_t>(runs.size() * (to - from));
  return sum;
}

}  // namespace

namespace {

std::vector<MeasuredSave> SavesOf(const std::vector<RankRun>& runs) {
  std::vector<MeasuredSave> saves;
  for (const RankRun& run : runs) {
    saves.resize(std::max(saves.size(), run.saves.size()));
    for (size_t i = 0; i < run.saves.size(); ++i) {
      saves[i].step = run.saves[i].step;
      saves[i].time = std::max(saves[i].time, run.saves[i].time);
      saves[i].bytes += run.saves[i].bytes;
    }
  }
  return saves;
}

std::optional<HeldOutLoss> EvaluationOf(const Plan& plan, const std::vector<RankRun>& runs) {
  const std::vector<double> losses = MeanOverRanks(runs, &RankRun::held_out_losses);
  if (losses.empty()) return std::nullopt;
  HeldOutLoss evaluation;
  for (double loss : losses) evaluation.loss += loss / static_cast<double>(losses.size());
  if (plan.scenario.model.kind == ModelKind::kTransformer) evaluation.perplexity = std::exp(evaluation.loss);
  for (const RankRun& run : runs)
    evaluation.sequences = std::max(evaluation.sequences, run.held_out_sequences);
  return evaluation;
}

// Adds one step's breakdowns to the ranks' means. `timing` is as in ByOperator.
void AddBreakdowns(const Plan& plan, const std::vector<RankRun>& runs, Steps steps, size_t step,
                   Duration timing, std::vector<BreakdownMean>& means) {
  Duration slowest;  // the slowest rank's
  for (const RankRun& run : runs) slowest = std::max(slowest, (run.*steps).timelines[step].end);
  for (size_t rank = 0; rank < runs.size(); ++rank) {
    const Timeline& timeline = (runs[rank].*steps).timelines[step];
    const Role& role = plan.RoleOf(static_cast<int>(rank));
    StepBreakdown of_rank = BreakDown(timeline, role, role.steady);
    Duration of_timing;
    for (const auto& [name, kernels] : TimedKernels(timeline, role.steady)) of_timing += timing * kernels;
    of_timing = std::min(of_timing, of_rank.compute / 2);
    of_rank.compute -= of_timing;
    // A rank that leaves the barrier between steps after the others begins its step later. Until then it was
    // in the barrier, so the difference counts as exposed communication.
    of_rank.exposed_communication += slowest - timeline.end;
    of_rank.step = slowest - of_timing;
    means[rank].Add(of_rank);
  }
}

// By rank: the mean of the steps in the middle half, scaled to `median`. That is the median time of all
// measured steps; some of them may have kept no timeline, or the traced steps may be others.
std::vector<RankBreakdown> MiddleBreakdowns(const Plan& plan, const std::vector<RankRun>& runs, Steps steps,
                                            const std::vector<size_t>& ranking, Duration timing,
                                            Duration median) {
  std::vector<BreakdownMean> means(runs.size());
  const auto [from, to] = MiddleHalf(ranking.size());
  for (size_t i = from; i < to; ++i) AddBreakdowns(plan, runs, steps, ranking[i], timing, means);
  std::vector<RankBreakdown> breakdowns;
  for (const BreakdownMean& mean : means)
    breakdowns.push_back({.rank = static_cast<int>(breakdowns.size()), .parts = mean.Mean()});
  ScaleMeanTo(median, breakdowns);
  return breakdowns;
}

std::vector<std::optional<CoreUse>> CoreUses(const std::vector<RankRun>& runs) {
  std::vector<std::optional<CoreUse>> uses;
  for (const RankRun& run : runs) uses.push_back(run.core_use);
  return uses;
}

}  // namespace

Result<Measurement> Assemble(const Plan& plan, std::vector<RankRun> runs) {
  for (const RankRun& run : runs) {
    if (!Agree(run.measured, runs[0].measured) || !Agree(run.traced, runs[0].traced)) {
      return Failed("ranks disagree on the number of steps: {} and {}", runs[0].measured.times.size(),
                    run.measured.times.size());
    }
  }
  if (runs.empty()) return Failed("no step was measured");
  Measurement result;
  result.first_step = runs[0].first_step;
  result.saves = SavesOf(runs);
  result.steps_after_saves = runs[0].steps_after_saves;
  result.evaluation = EvaluationOf(plan, runs);
  if (runs[0].measured.times.empty()) {
    if (result.first_step > 0) return result;  // all of them had been done before
    return Failed("no step was measured");
  }
  result.step_times = StepTimes(runs, &RankRun::measured);
  const Steps steps = runs[0].traced.times.empty() ? &RankRun::measured : &RankRun::traced;
  const std::vector<size_t> ranking = Ranking(runs, steps);
  result.losses = MeanOverRanks(runs, &RankRun::losses);
  result.mtp_losses = ByModule(MeanOverRanks(runs, &RankRun::mtp_losses), result.losses.size());
  result.gradient_norms = MeanOverRanks(runs, &RankRun::gradient_norms);
  result.cores = FullestCores(CoreUses(runs));
  result.loss_scales = runs[0].loss_scales;  // all agree; with dp the first rank alone has them
  result.skipped_steps = runs[0].skipped_steps;
  const Duration timing = TimingOfAKernel(plan, runs);
  result.by_operator = ByOperator(plan, runs, steps, ranking, timing);
  const Duration median = Distribution::FromSamples(result.step_times).p50();
  result.by_rank = MiddleBreakdowns(plan, runs, steps, ranking, timing, median);
  result.breakdown = MeanOf(result.by_rank);
  if (result.breakdown.step > Duration()) result.breakdown.step = median;  // without the rounding of the mean
  for (size_t rank = 0; rank < runs.size(); ++rank) {
    RankRun& run = runs[rank];
    result.memory.push_back(MeasuredMemory{static_cast<int>(rank), run.steady, run.initial.allocated,
                                           run.resident_growth, run.outside_allocator});
    result.timelines.push_back(std::move((run.*steps).timelines[ranking[(ranking.size() - 1) / 2]]));
  }
  return result;
}

}  // namespace windtunnel
