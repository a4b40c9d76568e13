#include "runtime/live.h"

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
  for (const std::string& result : results) {
    WT_ASSIGN_OR_RETURN(CalibrationSamples one, ParseCalibrationSamples(result));
    samples.push_back(std::move(one));
  }
  FitSamples(samples, CommunicatorName(plan), RanksPerNode(plan), profile);
  return Ok();
}

}  // namespace

Result<Measurement> RunLive(const Plan& plan, const LiveOptions& options) {
  LiveOptions attempt = options;
  std::vector<std::string> restarts;
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
    restarts.push_back(results.error().message);
    attempt.run.resumes = true;
    if (const auto latest = NewestCheckpoint(options.run)) attempt.run.resume_from = *latest;
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
