// One rank's work, from a job file or from the environment of another launcher.
#include <cstdio>
#include <utility>

#include "runtime/rank_main.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/ceil_divide.h"
#include "runtime/calibration.h"
#include "runtime/core_use.h"
#include "runtime/job_launch.h"
#include "runtime/live.h"
#include "runtime/mpi.h"
#include "runtime/rank_environment.h"
#include "runtime/rank_threads.h"
#include "runtime/run_checkpoints.h"
#include "runtime/run_length.h"
#include "runtime/step_reporter.h"
#include "scenarios/load.h"

namespace windtunnel {
namespace {

constexpr int64_t kTracedSteps = 5;
// Seconds of calibration on a device, which repeats itself more closely than cores do.
constexpr double kDeviceSeconds = 2.0;
constexpr double kCheckSeconds = 0.6;  // seconds for kernels and again for collectives, in a check of costs

CoreUseMeter::Of MeterOf(const RankSession& session) {
  return SharesProcess(session.plan()) ? CoreUseMeter::Of::kThread : CoreUseMeter::Of::kProcess;
}

Result<std::string> CalibrateRank(const Job& job, RankSession& session, Store& store) {
  WT_RETURN_IF_ERROR(session.Initialize());
  WT_RETURN_IF_ERROR(session.StepUntilSteady());
  WT_RETURN_IF_ERROR(session.Step());
  CalibrationOptions options;
  const bool host_computes = session.device().queues() == nullptr;
  if (!host_computes) options = {.rounds = 2, .seconds = kDeviceSeconds};
  if (job.mode == Job::Mode::kCheckCosts)
    options = {.rounds = 1, .seconds = kCheckSeconds, .under_compute = false};
  if (host_computes) options.ranks_per_core = CeilDivide(job.local_ranks, job.cores);
  const CoreUseMeter cores(MeterOf(session));
  RankCosts costs;
  WT_ASSIGN_OR_RETURN(costs.samples, MeasureCosts(session, store, options));
  costs.core_use = cores.Read();
  return Serialize(costs);
}

Result<std::string> WorkOf(const Job& job, RankSession& session, Store& store) {
  if (job.mode != Job::Mode::kRun) return CalibrateRank(job, session, store);
  WT_ASSIGN_OR_RETURN(RankRun run, MeasureRank(session, store, job.run));
  return Serialize(run);
}

Result<std::unique_ptr<Store>> ConnectTo(const Job& job) {
  return ConnectStore(job.host, job.store_port, job.token, kRendezvous);
}

RankOptions OptionsOf(const Job& job, int rank) {
  return {rank, job.interface, std::chrono::milliseconds(job.collective_timeout_ms), job.shares_core};
}

// Says what went wrong in this process: in the store, where the launcher looks for it, or on standard error
// where that is not possible.
class LastWord {
 public:
  explicit LastWord(int rank) : rank_(rank) {}
  // Only the first call says anything.
  void Say(const Error& error, Store* store) {
    if (std::exchange(is_said_, true)) return;
    if (store != nullptr && store->Set(ErrorKey(rank_), error.message)) return;
    (void)std::fprintf(stderr, "windtunnel: rank %d: %s\n", rank_, error.message.c_str());
  }

 private:
  int rank_;
  bool is_said_ = false;
};

// Runs this process's rank. What went wrong is said before the session ends, since that may
// take as long as whatever hangs.
Result<std::string> RunProcess(const Job& job, const Plan& plan, int rank, Store& store,
                               LastWord& last_word) {
  WT_ASSIGN_OR_RETURN(FlightRecorder recorder, FlightRecorder::Open(job.flight_record, rank));
  WT_ASSIGN_OR_RETURN(auto session, RankSession::Make(plan, store, recorder, OptionsOf(job, rank)));
  auto result = WorkOf(job, *session, store);
  if (!result) last_word.Say(result.error(), &store);
  return result;
}

// Runs all ranks as threads of this process.
Result<std::vector<std::string>> RunThreads(const Job& job, const Plan& plan) {
  RankThreads threads;
  threads.options = OptionsOf(job, 0);
  threads.pin = PinsRanks(plan);
  threads.connect = [&](int) { return ConnectTo(job); };
  threads.record = [&](int rank) { return FlightRecorder::Open(job.flight_record, rank); };
  threads.work = [&](RankSession& session, Store& store) { return WorkOf(job, session, store); };
  return RunRankThreads(plan, threads);
}

Status RunJob(const Job& job, int rank, LastWord& last_word) {
  WT_ASSIGN_OR_RETURN(Scenario scenario, ParseScenario(job.scenario, "job", "/", {}));
  WT_ASSIGN_OR_RETURN(Plan plan, CompilePlan(scenario, {.evaluates = job.run.evaluates}));
  WT_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, ConnectTo(job));
  const auto work = [&]() -> Status {
    if (!SharesProcess(plan)) {
      WT_ASSIGN_OR_RETURN(std::string result, RunProcess(job, plan, rank, *store, last_word));
      WT_RETURN_IF_ERROR(store->Set(ResultKey(rank), result));
      EndMpi(*store, rank, job.world_size, std::chrono::milliseconds(job.collective_timeout_ms));
      return Ok();
    }
    WT_ASSIGN_OR_RETURN(std::vector<std::string> results, RunThreads(job, plan));
    for (size_t i = 0; i < results.size(); ++i)
      WT_RETURN_IF_ERROR(store->Set(ResultKey(static_cast<int>(i)), results[i]));
    return Ok();
  };
  Status status = work();
  if (!status) last_word.Say(status.error(), store.get());
  return status;
}

}  // namespace

std::string ResultKey(int rank) { return "result/" + std::to_string(rank); }
std::string ErrorKey(int rank) { return "error/" + std::to_string(rank); }

namespace {

Status CheckHeldOut(const BatchLoader& loader) {
  if (loader.HeldOutBatches() > 0) return Ok();
  return InvalidInput(
      "--eval: data holds out {} sequences, expected {} at least, which all ranks take at once",
      loader.held_out(), loader.batch_samples());
}

// Notes this rank's part of the held-out batches' losses.
Status EvaluateRank(RankSession& session, RankRun& run) {
  BatchLoader& loader = session.loader();
  const int64_t batches = loader.HeldOutBatches();
  for (int64_t batch = 0; batch < batches; ++batch) {
    WT_ASSIGN_OR_RETURN(const std::optional<double> loss, session.Evaluate(batch));
    if (loss) run.held_out_losses.push_back(*loss);
  }
  run.held_out_sequences = batches * loader.batch_samples();
  return Ok();
}

}  // namespace

namespace {

// Notes the loss and the gradient norm of the last step.
Status NoteNumbers(RankSession& session, RankRun& run) {
  const Executor& executor = session.executor();
  WT_ASSIGN_OR_RETURN(const std::vector<double> losses, executor.Losses());
  if (!losses.empty()) {
    run.losses.push_back(losses.front());
    run.mtp_losses.insert(run.mtp_losses.end(), losses.begin() + 1, losses.end());
  }
  if (executor.role().gradient_norm < 0) return Ok();
  WT_ASSIGN_OR_RETURN(const double norm, executor.GradientNormValue());
  run.gradient_norms.push_back(norm);
  return Ok();
}

// Notes the loss scale after step `step`, which the session has just done. Returns whether the step is to be
// left out because it was skipped. With dp the first rank alone knows, so none is left out there. `before`:
// the number of steps skipped before it, brought up to date.
Result<bool> NoteLossScale(RankSession& session, int64_t step, int64_t& before, RankRun& run) {
  WT_ASSIGN_OR_RETURN(const std::optional<LossScaleState> scale, session.executor().LossScale());
  if (!scale) return false;
  run.loss_scales.push_back(scale->scale);
  if (scale->skipped_steps == std::exchange(before, scale->skipped_steps)) return false;
  run.skipped_steps.push_back(step);
  return !SharesProcess(session.plan());
}

}  // namespace

Result<RankRun> MeasureRank(RankSession& session, Store& store, const RunOptions& options) {
  const int64_t startup = static_cast<int64_t>(session.executor().role().startup.size());
  const auto [warmup, steps] = LengthOf(session.plan());
  WT_ASSIGN_OR_RETURN(StepReporter reporter, StepReporter::Make(options.reporting, session, store));
  if (options.evaluates) WT_RETURN_IF_ERROR(CheckHeldOut(session.loader()));
  const CoreUseMeter cores(MeterOf(session));
  WT_RETURN_IF_ERROR(session.Initialize());
  RunCheckpoints checkpoints(session, store, options, steps);
  RankRun run;
  WT_ASSIGN_OR_RETURN(run.first_step, checkpoints.Begin());
  const int64_t most = KeptTimelines(session.plan());
  WT_ASSIGN_OR_RETURN(int64_t skipped_steps, session.executor().SkippedSteps());
  TimedSteps after_saves;  // caches are cold and the disk is busy
  TimedSteps skipped;      // without the optimizer's work
  const bool spans = session.device().queues() == nullptr;
  for (int64_t step = run.first_step; step < steps; ++step) {
    // The first steps of a process that resumes are as cold as those that a run warms up with.
    const bool is_cold = run.first_step > 0 && step - run.first_step < std::max<int64_t>(startup, 1);
    const bool follows_save = checkpoints.HasJustSaved() || is_cold;
    if (options.launcher > 0 && getppid() != options.launcher)
      return Failed("the launcher (process {}) has ended, after step {}", options.launcher, step);
    WT_ASSIGN_OR_RETURN(Timeline timeline, session.Step(spans));
    WT_RETURN_IF_ERROR(NoteNumbers(session, run));
    WT_ASSIGN_OR_RETURN(const bool is_skipped, NoteLossScale(session, step, skipped_steps, run));
    WT_RETURN_IF_ERROR(reporter.Report(timeline));
    if (step >= warmup)
      (is_skipped ? skipped : follows_save ? after_saves : run.measured).Add(std::move(timeline), most);
    WT_RETURN_IF_ERROR(checkpoints.AfterStep());
  }
  run.core_use = cores.Read();
  run.steps_after_saves = static_cast<int64_t>(after_saves.times.size());
  if (run.measured.times.empty()) {  // every step follows a save
    run.measured = std::move(after_saves);
    run.steps_after_saves = 0;
  }
  if (run.measured.times.empty()) run.measured = std::move(skipped);
  run.saves = checkpoints.saves();
  run.initial = session.initial_peak();
  run.steady = session.steady_peak();
  WT_ASSIGN_OR_RETURN(const RankSession::Resident resident, session.MeasureResident());
  run.resident_growth = resident.growth;
  run.outside_allocator = resident.outside_allocator;
  if (options.evaluates) WT_RETURN_IF_ERROR(EvaluateRank(session, run));
  // The traced steps. They train on, which does no harm: nothing comes behind them.
  for (int64_t step = 0; !spans && !run.measured.times.empty() && step < kTracedSteps; ++step) {
    WT_ASSIGN_OR_RETURN(Timeline timeline, session.Step());
    run.traced.Add(std::move(timeline), kTracedSteps);
  }
  return run;
}

int RunRank(const std::string& job_file) {
  // A rank is in a process group of its own, and writes to the terminal whether or not
  // that has `stty tostop`.
  signal(SIGTTOU, SIG_IGN);
  auto run = [&]() -> Status {
    WT_ASSIGN_OR_RETURN(Job job, ReadJob(job_file));
    WT_ASSIGN_OR_RETURN(auto environment, ReadRankEnvironment());
    if (!environment)
      return InvalidInput("RANK is not set: `windtunnel rank` is for windtunnel's own launcher");
    // As ps and the kernel's messages name the process, which was started as /proc/self/exe.
    prctl(PR_SET_NAME, fmt::format("windtunnel:{}", environment->rank).c_str());
    LastWord last_word(environment->rank);
    Status status = RunJob(job, environment->rank, last_word);
    if (!status) last_word.Say(status.error(), nullptr);
    return status;
  };
  const Status status = run();
  return status ? 0 : status.error().kind == ErrorKind::kFailed ? 1 : 2;
}

}  // namespace windtunnel
