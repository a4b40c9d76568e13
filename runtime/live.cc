#include "runtime/live.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cost_models/cost_drift.h"
#include "cost_models/cost_keys.h"
#include "cost_models/cost_model.h"
#include "cost_models/fit.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/job_launch.h"
#include "runtime/rank_session.h"

namespace windtunnel {
namespace {

std::optional<std::string> NewestCheckpoint(const RunOptions& run) {
  return run.checkpoints.empty() ? std::nullopt : CheckpointDirectory(run.checkpoints).Latest();
}

// Runs the measuring loops of a job of `mode`, and puts what they find into the profile.
Status MeasureInto(Profile& profile, const Plan& plan, const LiveOptions& options, Job::Mode mode) {
  if (options.nodes != nullptr && !options.nodes->shares_clock())
    return Unsupported(
        "calibration over machines with clocks of their own is not supported yet: a collective is timed from "
        "its last rank's arrival to "
        "its last rank's end");
  WT_ASSIGN_OR_RETURN(const std::vector<std::string> results, Launch(plan, options).Run(mode));
  std::vector<CalibrationSamples> samples;
  std::vector<std::optional<CoreUse>> uses;
  for (const std::string& result : results) {
    WT_ASSIGN_OR_RETURN(RankCosts one, ParseRankCosts(result));
    samples.push_back(std::move(one.samples));
    uses.push_back(std::move(one.core_use));
  }
  const std::optional<SharedCores> cores = FullestCores(uses);
  if (mode == Job::Mode::kCalibrate && options.note && cores && cores->is_crowded())
    options.note(fmt::format("{}: costs were measured while {}; the prediction may be too slow",
                             plan.scenario.name, DescribeCrowd(*cores)));
  FitSamples(samples, CommunicatorName(plan), RanksPerNode(plan), profile);
  return Ok();
}

}  // namespace

Result<Measurement> RunLive(const Plan& plan, const LiveOptions& options) {
  LiveOptions attempt = options;
  std::vector<std::string> restarts;
  std::string last_reason, last_newest;  // of the attempt before
  for (;;) {
    Launch launch(plan, attempt, static_cast<int>(restarts.size()));
    const Result<std::vector<std::string>> results = launch.Run(Job::Mode::kRun);
    if (results) {
      WT_ASSIGN_OR_RETURN(Measurement measurement, FromResults(plan, *results, options));
      measurement.restarts = std::move(restarts);
      return measurement;
    }
    if (!launch.MayRestart() || static_cast<int>(restarts.size()) >= options.max_restarts)
      return tl::unexpected(results.error());
    // Steps repeat themselves bit by bit, so what failed in the same way, with no checkpoint since, fails
    // again.
    const std::string newest = NewestCheckpoint(options.run).value_or("");
    if (!launch.reason().empty() && launch.reason() == last_reason && newest == last_newest)
      return tl::unexpected(
          Error{results.error().kind,
                results.error().message +
                    "; not restarted once more: it failed like this before, from the same step"});
    last_reason = launch.reason();
    last_newest = newest;
    restarts.push_back(results.error().message);
    attempt.run.resumes = true;
    if (!newest.empty()) attempt.run.resume_from = newest;
    attempt.run.reporting.is_restart = true;
    if (options.note) {
      options.note(fmt::format("{}; restart {} of {}, from {}", results.error().message, restarts.size(),
                               options.max_restarts,
                               attempt.run.resume_from.empty() ? "the beginning" : attempt.run.resume_from));
    }
  }
}

Status Calibrate(const Plan& plan, bool recalibrate, const LiveOptions& options, Profile& profile) {
  if (!recalibrate && FindMissingCosts(profile, plan).empty()) return Ok();
  if (recalibrate) ForgetDispatch(RanksPerNode(plan), profile);
  WT_RETURN_IF_ERROR(MeasureInto(profile, plan, options, Job::Mode::kCalibrate));
  profile.created = MachineProfile(plan.scenario.cluster.device).created;
  return Ok();
}

Result<double> CheckCosts(const Plan& plan, const LiveOptions& options, const Profile& profile) {
  Profile now = MachineProfile(plan.scenario.cluster.device);
  WT_RETURN_IF_ERROR(MeasureInto(now, plan, options, Job::Mode::kCheckCosts));
  return CostDrift(profile, now, plan);
}

bool RunsHere(const std::string& device) { return device == "cpu" || (device == "cuda" && IsAtHand(device)); }
std::string KindOfDevice(const std::string& device) { return device == "cpu" ? "cpu" : "cuda"; }

}  // namespace windtunnel
