#include "runtime/live.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "cost_models/cost_keys.h"
#include "cost_models/cost_model.h"
#include "cost_models/fit.h"
#include "runtime/assemble.h"
#include "runtime/cores.h"
#include "runtime/job.h"
#include "runtime/launcher.h"
#include "runtime/rank_main.h"
#include "runtime/rank_session.h"
#include "runtime/rank_threads.h"
#include "runtime/store.h"
#include "scenarios/load.h"

namespace windtunnel {
namespace {

constexpr std::chrono::seconds kRendezvous{60};

// A directory that goes away with its contents.
class TemporaryDirectory {
 public:
  static Result<TemporaryDirectory> Make() {
    std::string path = (std::filesystem::temp_directory_path() / "windtunnel-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) return Failed("{}: cannot be made", path);
    return TemporaryDirectory(path);
  }
  TemporaryDirectory(TemporaryDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ~TemporaryDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// 128 bits that other users of the machine cannot guess.
Result<std::string> MakeToken() {
  unsigned char bytes[16];
  if (getentropy(bytes, sizeof(bytes)) != 0) return Failed("no random bytes from the kernel");
  std::string token;
  for (unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

std::string OperatorAt(const Plan& plan, int rank, const FlightRecorder::Position& position) {
  if (position.op < 0) return "none yet";
  const Role& role = plan.RoleOf(rank);
  const Program& program = position.step < 0 ? role.initialize : role.StepProgram(position.step);
  if (position.op >= static_cast<int32_t>(program.ops.size())) return "unknown";
  const Op& op = program.ops[position.op];
  const std::string where = position.step < 0 ? "initialisation" : fmt::format("step {}", position.step);
  return fmt::format("'{}' ({}, {}) of {}", op.name, OperatorName(op.kind), Name(op.phase), where);
}

// Of a process that has all ranks as threads.
std::string NameOfProcess(const Plan& plan) {
  return fmt::format("the process of ranks 0 to {}", plan.world_size - 1);
}

std::string LastOperators(const Plan& plan, const FlightRecorder& recorder) {
  std::string text;
  for (int rank = 0; rank < plan.world_size; ++rank) {
    text += fmt::format("{}{} (rank {})", rank == 0 ? "" : ", ", OperatorAt(plan, rank, recorder.Last(rank)),
                        rank);
  }
  return text;
}

// One launch of all ranks, and what they left in the store.
class Launch {
 public:
  Launch(const Plan& plan, const LiveOptions& options) : plan_(plan), options_(options) {}

  // The results by rank.
  Result<std::vector<std::string>> Run(Job::Mode mode);

 private:
  Result<std::string> Prepare(Job::Mode mode, const TemporaryDirectory& directory);
  std::string DescribeError(int rank);
  void Report(Job::Mode mode, const FlightRecorder& recorder);

  const Plan& plan_;
  const LiveOptions& options_;
  std::unique_ptr<StoreServer> store_;
};

Result<std::string> Launch::Prepare(Job::Mode mode, const TemporaryDirectory& directory) {
  Job job;
  job.mode = mode;
  job.scenario = ResolvedYaml(plan_.scenario);
  job.world_size = plan_.world_size;
  job.cores = UsableCores();
  WT_ASSIGN_OR_RETURN(job.token, MakeToken());
  WT_ASSIGN_OR_RETURN(store_, ServeStore(job.host, 0, job.token));
  job.store_port = store_->port();
  job.flight_record = directory.File("flight_record");
  job.collective_timeout_ms = options_.collective_timeout.count();
  job.reporting = options_.steps;
  WT_RETURN_IF_ERROR(WriteJob(job, directory.File("job.json")));
  return directory.File("job.json");
}

std::string Launch::DescribeError(int rank) {
  auto error = store_->Get(ErrorKey(rank), std::chrono::milliseconds(0));
  return error ? *error : std::string();
}

void Launch::Report(Job::Mode mode, const FlightRecorder& recorder) {
  if (!options_.progress) return;
  if (mode == Job::Mode::kCalibrate) {
    auto share = store_->Get("calibration/progress", std::chrono::milliseconds(0));
    options_.progress("calibrating", share ? std::atof(share->c_str()) : 0.0);
    return;
  }
  const RunSpec& run = plan_.scenario.run;
  const int64_t step = std::max<int64_t>(recorder.Last(0).step, 0);
  options_.progress("running", static_cast<double>(step) / static_cast<double>(run.warmup + run.steps));
}

Result<std::vector<std::string>> Launch::Run(Job::Mode mode) {
  WT_RETURN_IF_ERROR(CheckRunsHere(plan_));
  WT_ASSIGN_OR_RETURN(TemporaryDirectory directory, TemporaryDirectory::Make());
  WT_ASSIGN_OR_RETURN(const std::string job_file, Prepare(mode, directory));
  WT_ASSIGN_OR_RETURN(FlightRecorder recorder,
                      FlightRecorder::Create(directory.File("flight_record"), plan_.world_size));
  LaunchOptions launch;
  const bool shares_process = SharesProcess(plan_);
  launch.ranks = shares_process ? 1 : plan_.world_size;
  launch.argv = {"/proc/self/exe", "rank", job_file};
  launch.pin = plan_.scenario.run.pin && !shares_process;  // threads pin themselves
  launch.master_port = store_->port();
  launch.describe_error = [&](int rank) { return DescribeError(rank); };
  launch.last_op = [&](int rank) {
    return shares_process ? LastOperators(plan_, recorder) : OperatorAt(plan_, rank, recorder.Last(rank));
  };
  if (shares_process) {
    launch.name = [&](int) { return NameOfProcess(plan_); };
    if (plan_.scenario.run.pin)
      launch.environment = {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}};
  }
  launch.tick = [&] { Report(mode, recorder); };
  WT_RETURN_IF_ERROR(LaunchRanks(launch));
  std::vector<std::string> results;
  for (int rank = 0; rank < plan_.world_size; ++rank) {
    WT_ASSIGN_OR_RETURN(std::string result, store_->Get(ResultKey(rank), std::chrono::seconds(1)));
    results.push_back(std::move(result));
  }
  return results;
}

void LogLosses(const Measurement& measurement, const LiveOptions& options) {
  if (!options.log || options.steps.lines) return;  // said already
  for (size_t step = 0; step < measurement.losses.size(); ++step) {
    std::string line = fmt::format("step {}: loss {:.6g}", step, measurement.losses[step]);
    if (step < measurement.gradient_norms.size()) {
      line += fmt::format(", gradient norm {:.6g}", measurement.gradient_norms[step]);
    }
    options.log(line);
  }
}

Result<Measurement> FromResults(const Plan& plan, const std::vector<std::string>& results,
                                const LiveOptions& options) {
  std::vector<RankRun> runs;
  for (const std::string& result : results) {
    WT_ASSIGN_OR_RETURN(RankRun run, ParseRankRun(result));
    runs.push_back(std::move(run));
  }
  WT_ASSIGN_OR_RETURN(Measurement measurement, Assemble(plan, std::move(runs)));
  LogLosses(measurement, options);
  return measurement;
}

// The port and token under which rank 0 of a job of another launcher serves the store. torchrun's agent keeps MASTER_PORT for
// its own store, so the next port is taken there.
int JoinPort(const RankEnvironment& environment) {
  const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  return environment.master_port + (agent != nullptr && std::string(agent) == "True" ? 1 : 0);
}
std::string JoinToken() {
  const char* id = std::getenv("TORCHELASTIC_RUN_ID");
  return id != nullptr ? id : "windtunnel";
}

}  // namespace

Result<Measurement> RunLive(const Plan& plan, const LiveOptions& options) {
  WT_ASSIGN_OR_RETURN(const std::vector<std::string> results, Launch(plan, options).Run(Job::Mode::kRun));
  return FromResults(plan, results, options);
}

Status Calibrate(const Plan& plan, bool recalibrate, const LiveOptions& options, Profile& profile) {
  if (!recalibrate && FindMissingCosts(profile, plan).empty()) return Ok();
  WT_ASSIGN_OR_RETURN(const std::vector<std::string> results,
                      Launch(plan, options).Run(Job::Mode::kCalibrate));
  std::vector<CalibrationSamples> samples;
  for (const std::string& result : results) {
    WT_ASSIGN_OR_RETURN(CalibrationSamples one, ParseCalibrationSamples(result));
    samples.push_back(std::move(one));
  }
  FitSamples(samples, CommunicatorName(plan),
             static_cast<int>(std::min<int64_t>(plan.world_size, plan.scenario.cluster.devices_per_node)),
             profile);
  return Ok();
}

bool IsRankOfJob() { return std::getenv("RANK") != nullptr && std::getenv("WORLD_SIZE") != nullptr; }

namespace {

// The one process of a job whose ranks are threads.
Result<Measurement> RunThreadsHere(const Plan& plan, const LiveOptions& options) {
  WT_ASSIGN_OR_RETURN(const std::string token, MakeToken());
  WT_ASSIGN_OR_RETURN(auto server, ServeStore("127.0.0.1", 0, token));
  RankThreads threads;
  threads.options.collective_timeout = options.collective_timeout;
  threads.options.shares_core = plan.world_size > UsableCores();
  threads.pin = plan.scenario.run.pin;
  threads.connect = [&](int) { return ConnectStore("127.0.0.1", server->port(), token, kRendezvous); };
  threads.record = [](int) -> Result<FlightRecorder> { return FlightRecorder::Private(); };
  threads.work = [&](RankSession& session, Store& store) -> Result<std::string> {
    WT_ASSIGN_OR_RETURN(const RankRun run, MeasureRank(session, store, options.steps));
    return Serialize(run);
  };
  WT_ASSIGN_OR_RETURN(const std::vector<std::string> results, RunRankThreads(plan, threads));
  return FromResults(plan, results, options);
}

}  // namespace

Result<Measurement> JoinLive(const Plan& plan, const LiveOptions& options) {
  WT_ASSIGN_OR_RETURN(const auto environment, ReadRankEnvironment());
  if (!environment) return InvalidInput("RANK and WORLD_SIZE are not set");
  const bool shares_process = SharesProcess(plan);
  if (environment->world_size != (shares_process ? 1 : plan.world_size)) {
    return InvalidInput("WORLD_SIZE is {}, but the scenario has {} ranks{}", environment->world_size,
                        plan.world_size, shares_process ? " in one process" : "");
  }
  if (shares_process) return RunThreadsHere(plan, options);
  const int port = JoinPort(*environment);
  std::unique_ptr<Store> store;
  if (environment->rank == 0) {
    WT_ASSIGN_OR_RETURN(store, ServeStore(environment->master_addr, port, JoinToken()));
  } else {
    WT_ASSIGN_OR_RETURN(store, ConnectStore(environment->master_addr, port, JoinToken(), kRendezvous));
  }
  FlightRecorder recorder = FlightRecorder::Private();
  const RankOptions rank_options{environment->rank, environment->master_addr, options.collective_timeout,
                                 environment->local_world_size > UsableCores()};
  if (cpu_set_t core; plan.scenario.run.pin && CoreOfRank(environment->local_rank, core)) {
    sched_setaffinity(0, sizeof core, &core);
  }
  WT_ASSIGN_OR_RETURN(auto session, RankSession::Make(plan, *store, recorder, rank_options));
  WT_ASSIGN_OR_RETURN(const RankRun run, MeasureRank(*session, *store, options.steps));
  if (environment->rank != 0) {
    WT_RETURN_IF_ERROR(store->Set(ResultKey(environment->rank), Serialize(run)));
    return Measurement{};
  }
  std::vector<std::string> results = {Serialize(run)};
  for (int rank = 1; rank < plan.world_size; ++rank) {
    WT_ASSIGN_OR_RETURN(std::string result, store->Get(ResultKey(rank), options.collective_timeout));
    results.push_back(std::move(result));
  }
  return FromResults(plan, results, options);
}

}  // namespace windtunnel
