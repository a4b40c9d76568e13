// One rank's work, from a job file or from the environment of another launcher.
#include <cstdio>

#include "runtime/rank_main.h"

#include "runtime/calibration.h"
#include "runtime/launcher.h"
#include "runtime/live.h"
#include "scenarios/load.h"

namespace windtunnel {
namespace {

constexpr std::chrono::seconds kRendezvous{60};

Result<std::string> CalibrateRank(const Job& job, RankSession& session, Store& store) {
  WT_RETURN_IF_ERROR(session.Initialize());
  const int64_t startup = static_cast<int64_t>(session.executor().role().startup.size());
  for (int64_t step = 0; step <= startup; ++step) WT_RETURN_IF_ERROR(session.Step());
  CalibrationOptions options;
  options.ranks_per_core = (job.world_size + job.cores - 1) / job.cores;
  WT_ASSIGN_OR_RETURN(CalibrationSamples samples, MeasureCosts(session, store, options));
  return Serialize(samples);
}

Result<std::string> WorkOf(const Job& job, RankSession& session, Store& store) {
  if (job.mode == Job::Mode::kCalibrate) return CalibrateRank(job, session, store);
  WT_ASSIGN_OR_RETURN(RankRun run, MeasureRank(session));
  return Serialize(run);
}

Status RunJob(const Job& job, int rank) {
  WT_ASSIGN_OR_RETURN(Scenario scenario, ParseScenario(job.scenario, "job", "/", {}));
  WT_ASSIGN_OR_RETURN(Plan plan, CompilePlan(scenario));
  WT_ASSIGN_OR_RETURN(FlightRecorder recorder, FlightRecorder::Open(job.flight_record, rank));
  WT_ASSIGN_OR_RETURN(std::unique_ptr<Store> store,
                      ConnectStore(job.host, job.store_port, job.token, kRendezvous));
  auto work = [&]() -> Result<std::string> {
    const RankOptions options{rank, job.host, std::chrono::milliseconds(job.collective_timeout_ms),
                              job.world_size > job.cores};
    WT_ASSIGN_OR_RETURN(auto session, RankSession::Make(plan, *store, recorder, options));
    return WorkOf(job, *session, *store);
  };
  Result<std::string> result = work();
  if (!result) {
    (void)store->Set(ErrorKey(rank), result.error().message);
    return tl::unexpected(result.error());
  }
  return store->Set(ResultKey(rank), *result);
}

}  // namespace

std::string ResultKey(int rank) { return "result/" + std::to_string(rank); }
std::string ErrorKey(int rank) { return "error/" + std::to_string(rank); }

Result<RankRun> MeasureRank(RankSession& session) {
  const RunSpec& spec = session.plan().scenario.run;
  const int64_t startup = static_cast<int64_t>(session.executor().role().startup.size());
  const int64_t warmup = std::max(spec.warmup, startup);
  WT_RETURN_IF_ERROR(session.Initialize());
  RankRun run;
  run.timelines.reserve(spec.steps);
  for (int64_t step = 0; step < warmup + spec.steps; ++step) {
    WT_ASSIGN_OR_RETURN(Timeline timeline, session.Step());
    if (const auto loss = session.executor().Loss()) run.losses.push_back(*loss);
    if (session.executor().role().gradient_norm >= 0) {
      run.gradient_norms.push_back(session.executor().GradientNormValue());
    }
    if (step >= warmup) run.timelines.push_back(std::move(timeline));
  }
  run.initial = session.initial_peak();
  run.steady = session.steady_peak();
  run.resident_growth = session.ResidentGrowth();
  const BufferPool& pool = session.executor().pool();
  run.outside_allocator = run.resident_growth - pool.reserved() - pool.host_reserved();
  return run;
}

int RunRank(const std::string& job_file) {
  auto run = [&]() -> Status {
    WT_ASSIGN_OR_RETURN(Job job, ReadJob(job_file));
    WT_ASSIGN_OR_RETURN(auto environment, ReadRankEnvironment());
    if (!environment)
      return InvalidInput("RANK is not set: `windtunnel rank` is for windtunnel's own launcher");
    return RunJob(job, environment->rank);
  };
  const Status status = run();
  return status ? 0 : status.error().kind == ErrorKind::kFailed ? 1 : 2;
}

}  // namespace windtunnel
