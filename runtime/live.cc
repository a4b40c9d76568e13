#include "runtime/live.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "base/format.h"
#include "base/temporary_directory.h"
#include "cost_models/cost_drift.h"
#include "cost_models/cost_keys.h"
#include "cost_models/cost_model.h"
#include "cost_models/fit.h"
#include "runtime/assemble.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/cores.h"
#include "runtime/flight_record.h"
#include "runtime/job.h"
#include "runtime/launcher.h"
#include "runtime/mpi.h"
#include "runtime/mpi_host.h"
#include "runtime/neighbors.h"
#include "runtime/rank_main.h"
#include "runtime/rank_session.h"
#include "runtime/rank_threads.h"
#include "runtime/rendezvous.h"
#include "runtime/store.h"
#include "scenarios/load.h"

namespace windtunnel {
namespace {

constexpr std::chrono::seconds kRendezvous{60};
constexpr int kInputWrong = 2;  // the exit status of a rank (RunRank)

// A directory that goes away with its contents.
class TemporaryDirectory {
 public:
  static Result<TemporaryDirectory> Make() {
    WT_ASSIGN_OR_RETURN(std::string path, MakeTemporaryDirectory("windtunnel"));
    return TemporaryDirectory(std::move(path));
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

// "/tmp/windtunnel-flight-record-1234.json", "…-rank-1.json"
std::string FlightRecordPath(const LiveOptions& options, const std::string& suffix) {
  std::filesystem::path path = options.flight_record;
  if (path.empty()) path = TemporaryPath() + fmt::format("/windtunnel-flight-record-{}.json", getpid());
  return (path.parent_path() / (path.stem().string() + suffix + path.extension().string())).string();
}

// The error, with the flight record of what led to it. `ranks`: of the recorder, in its order.
Error WithFlightRecord(const Plan& plan, const FlightRecorder& recorder, const std::vector<int>& ranks,
                       Error error, const std::string& path) {
  const Status written = WriteFlightRecord(plan, recorder, ranks, error.message, path);
  error.message += written ? fmt::format("; flight record: {}", path)
                           : fmt::format("; no flight record: {}", written.error().message);
  return error;
}

bool UsesMpi(const Plan& plan) {
  return plan.scenario.run.backend == Backend::kMpi && plan.world_size > 1 && !SharesProcess(plan);
}

// The ranks of `job` on this node, whose file is `job_file`: what is the same on every node. `host` keeps what MPI's ranks need.
Status PrepareRanks(const Plan& plan, const Job& job, const std::string& job_file, const NodeGroup* nodes,
                    std::unique_ptr<MpiHost>& host, LaunchOptions& launch) {
  const bool shares_process = SharesProcess(plan);
  launch.ranks = shares_process ? 1 : job.local_ranks;
  launch.node = nodes == nullptr ? 0 : nodes->node();
  launch.nodes = nodes == nullptr ? 1 : nodes->nodes();
  launch.argv = {"/proc/self/exe", "rank", job_file};
  launch.environment["TORCHELASTIC_RESTART_COUNT"] = std::to_string(job.restarts);
  launch.environment["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(job.max_restarts);
  // Threads pin themselves. Beside the rank's own thread a GPU has those of its driver and of NCCL.
  launch.pin = plan.scenario.run.pin && !shares_process && !IsOfCudaDevice(plan.scenario.cluster.device);
  launch.master_addr = job.host;
  launch.master_port = job.store_port;
  if (shares_process && plan.scenario.run.pin)
    for (const char* threads : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) launch.environment[threads] = "1";
  if (nodes != nullptr)
    launch.reason_to_end = [nodes = const_cast<NodeGroup*>(nodes)] { return nodes->ReasonToEnd(); };
  if (!UsesMpi(plan)) return Ok();
  MpiJob mpi;
  mpi.world_size = plan.world_size;
  mpi.nodes = launch.nodes;
  mpi.node = launch.node;
  mpi.local_ranks = launch.ranks;
  mpi.store_host = job.host;
  mpi.store_port = job.store_port;
  mpi.store_token = job.token;
  WT_ASSIGN_OR_RETURN(host, MpiHost::Start(mpi));
  launch.environment_of = [&host, ranks = launch.ranks](int rank) {
    return host->EnvironmentOf(rank % ranks);
  };
  return Ok();
}

// One launch of all ranks, and what they left in the store.
class Launch {
 public:
  // `restarts`: launches of the same job before this one.
  Launch(const Plan& plan, const LiveOptions& options, int restarts = 0)
      : plan_(plan), options_(options), restarts_(restarts) {}

  // The results by rank.
  Result<std::vector<std::string>> Run(Job::Mode mode);
  // After an error: whether the job may succeed when it is launched again. Not where the user interrupted it, a rank found its input
  // wrong or a node is gone.
  bool MayRestart() const {
    return failed_ && !interrupted_ && !found_input_wrong_ &&
           (options_.nodes == nullptr || options_.nodes->AllThere());
  }

 private:
  Error Explain(Job::Mode mode, const FlightRecorder& recorder, Error error) const;
  Result<Job> Prepare(Job::Mode mode, const TemporaryDirectory& directory);
  Result<std::vector<std::string>> Results();
  Error ShareFailure(Error error);
  std::string DescribeError(int rank);
  void Report(Job::Mode mode, const FlightRecorder& recorder);

  const Plan& plan_;
  const LiveOptions& options_;
  int restarts_;
  bool failed_ = false, found_input_wrong_ = false, interrupted_ = false;
  std::unique_ptr<StoreServer> store_;
};

constexpr int64_t kMostRanksOfACore = 64;  // more would end in memory or processes running out

Result<Job> Launch::Prepare(Job::Mode mode, const TemporaryDirectory& directory) {
  Job job;
  job.mode = mode;
  job.scenario = ResolvedYaml(plan_.scenario);
  job.world_size = plan_.world_size;
  job.local_ranks = options_.nodes == nullptr ? plan_.world_size : options_.nodes->ranks_per_node();
  job.cores = UsableCores();
  if (job.local_ranks > kMostRanksOfACore * job.cores) {
    return Unsupported(
        "{} ranks would share this machine's cores ({}), expected at most {} on each; `windtunnel predict` "
        "needs none",
        job.local_ranks, job.cores, kMostRanksOfACore);
  }
  if (options_.nodes != nullptr) {
    job.host = options_.nodes->master_addr();
    job.interface = options_.nodes->interface();
  }
  WT_ASSIGN_OR_RETURN(job.token, MakeToken());
  WT_ASSIGN_OR_RETURN(store_, ServeStore(job.host, 0, job.token));
  job.store_port = store_->port();
  job.flight_record = directory.File("flight_record");
  job.collective_timeout_ms = options_.collective_timeout.count();
  job.restarts = restarts_;
  job.max_restarts = options_.max_restarts;
  job.run = options_.run;
  WT_RETURN_IF_ERROR(WriteJob(job, directory.File("job.json")));
  return job;
}

std::string Launch::DescribeError(int rank) {
  auto error = store_->Get(ErrorKey(rank), std::chrono::milliseconds(0));
  return error ? *error : std::string();
}

void Launch::Report(Job::Mode mode, const FlightRecorder& recorder) {
  if (!options_.progress) return;
  if (mode != Job::Mode::kRun) {
    auto share = store_->Get("calibration/progress", std::chrono::milliseconds(0));
    options_.progress(mode == Job::Mode::kCalibrate ? "calibrating" : "checking costs",
                      share ? std::atof(share->c_str()) : 0.0);
    return;
  }
  const RunSpec& run = plan_.scenario.run;
  const int64_t step = std::max<int64_t>(recorder.Last(0).step, 0);
  options_.progress("running", static_cast<double>(step) / static_cast<double>(run.warmup + run.steps));
}

Result<std::vector<std::string>> Launch::Run(Job::Mode mode) {
  WT_RETURN_IF_ERROR(CheckRunsHere(plan_));
  WT_ASSIGN_OR_RETURN(TemporaryDirectory directory, TemporaryDirectory::Make());
  WT_ASSIGN_OR_RETURN(const Job job, Prepare(mode, directory));
  WT_ASSIGN_OR_RETURN(FlightRecorder recorder,
                      FlightRecorder::Create(directory.File("flight_record"), plan_.world_size));
  LaunchOptions launch;
  std::unique_ptr<MpiHost> host;
  if (options_.nodes != nullptr) WT_RETURN_IF_ERROR(options_.nodes->Announce(Serialize(job)));
  WT_RETURN_IF_ERROR(PrepareRanks(plan_, job, directory.File("job.json"), options_.nodes, host, launch));
  const bool shares_process = SharesProcess(plan_);
  launch.describe_error = [&](int rank) { return DescribeError(rank); };
  launch.last_op = [&](int rank) -> std::string {
    if (found_input_wrong_) return "";  // that is not where it went wrong
    return shares_process ? LastOperators(plan_, recorder) : OperatorAt(plan_, rank, recorder.Last(rank));
  };
  if (shares_process) launch.name = [&](int) { return NameOfProcess(plan_); };
  launch.tick = [&] { Report(mode, recorder); };
  launch.failed = [&](int, int status) {
    failed_ = true;
    found_input_wrong_ = WIFEXITED(status) && WEXITSTATUS(status) == kInputWrong;
  };
  launch.interrupted = [&](int) { interrupted_ = true; };
  if (Status launched = LaunchRanks(launch); !launched)
    return tl::unexpected(Explain(mode, recorder, ShareFailure(std::move(launched).error())));
  Result<std::vector<std::string>> results = Results();
  if (!results && options_.nodes != nullptr)
    return tl::unexpected(Explain(mode, recorder, ShareFailure(std::move(results).error())));
  return results;
}

// Tells the other nodes, and hears what went wrong there.
Error Launch::ShareFailure(Error error) {
  NodeGroup* nodes = options_.nodes;
  if (nodes == nullptr) return error;
  failed_ = failed_ || !nodes->ReasonToEnd().empty();
  nodes->Fail(error.message, found_input_wrong_);
  error.message = nodes->Failure(error.message);
  found_input_wrong_ = found_input_wrong_ || nodes->FoundInputWrong();
  return error;
}

// Those of this node's ranks are there; those of other nodes' come with the end of the slowest.
Result<std::vector<std::string>> Launch::Results() {
  std::vector<std::string> results;
  auto deadline = std::chrono::steady_clock::now() + options_.collective_timeout;
  for (int rank = 0; rank < plan_.world_size;) {
    auto result = store_->Get(ResultKey(rank), std::chrono::milliseconds(200));
    if (result) {
      results.push_back(*std::move(result));
      ++rank;
      continue;
    }
    if (options_.nodes == nullptr || std::chrono::steady_clock::now() > deadline)
      return tl::unexpected(result.error());
    if (const std::string reason = options_.nodes->ReasonToEnd(); !reason.empty())
      return Failed("{}", reason);
  }
  return results;
}

Error Launch::Explain(Job::Mode mode, const FlightRecorder& recorder, Error error) const {
  if (found_input_wrong_) error.kind = ErrorKind::kInvalidInput;
  if (!failed_ || found_input_wrong_ || mode != Job::Mode::kRun) return error;
  std::vector<int> ranks(static_cast<size_t>(plan_.world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  const std::string suffix = restarts_ > 0 ? fmt::format("-restart-{}", restarts_) : "";
  return WithFlightRecord(plan_, recorder, ranks, std::move(error), FlightRecordPath(options_, suffix));
}

std::optional<std::string> NewestCheckpoint(const RunOptions& run) {
  return run.checkpoints.empty() ? std::nullopt : CheckpointDirectory(run.checkpoints).Latest();
}

void LogLosses(const Measurement& measurement, const LiveOptions& options) {
  if (!options.log || options.run.reporting.lines) return;  // said already
  for (size_t step = 0; step < measurement.losses.size(); ++step) {
    std::string line =
        fmt::format("step {}: loss {:.6g}", measurement.first_step + static_cast<int64_t>(step) + 1,
                    UnsignedNan(measurement.losses[step]));
    if (step < measurement.gradient_norms.size()) {
      line += fmt::format(", gradient norm {:.6g}", UnsignedNan(measurement.gradient_norms[step]));
    }
    if (step < measurement.loss_scales.size())
      line += fmt::format(", loss scale {:g}", measurement.loss_scales[step]);
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

// Why a job failed on a node beyond the first.
struct Followed {
  bool input_wrong = false, interrupted = false;
};

// One job of the first node's, on this one.
Status FollowJob(Job job, NodeGroup& nodes, Followed& followed) {
  WT_ASSIGN_OR_RETURN(const Scenario scenario, ParseScenario(job.scenario, "job", "/", {}));
  WT_ASSIGN_OR_RETURN(const Plan plan, CompilePlan(scenario, {.evaluates = job.run.evaluates}));
  WT_ASSIGN_OR_RETURN(TemporaryDirectory directory, TemporaryDirectory::Make());
  WT_ASSIGN_OR_RETURN(FlightRecorder recorder,
                      FlightRecorder::Create(directory.File("flight_record"), plan.world_size));
  job.flight_record = directory.File("flight_record");
  job.interface = nodes.interface();
  job.cores = UsableCores();
  WT_RETURN_IF_ERROR(WriteJob(job, directory.File("job.json")));
  WT_ASSIGN_OR_RETURN(const auto store, ConnectStore(job.host, job.store_port, job.token, kRendezvous));
  LaunchOptions launch;
  std::unique_ptr<MpiHost> host;
  WT_RETURN_IF_ERROR(PrepareRanks(plan, job, directory.File("job.json"), &nodes, host, launch));
  launch.describe_error = [&](int rank) {
    auto error = store->Get(ErrorKey(rank), std::chrono::milliseconds(0));
    return error ? *error : std::string();
  };
  launch.last_op = [&](int rank) { return OperatorAt(plan, rank, recorder.Last(rank)); };
  launch.failed = [&](int, int status) {
    followed.input_wrong = WIFEXITED(status) && WEXITSTATUS(status) == kInputWrong;
  };
  launch.interrupted = [&](int signal) {
    nodes.Leave(fmt::format("interrupted by signal {} ({})", signal, strsignal(signal)));
    followed.interrupted = true;
  };
  const Status launched = LaunchRanks(launch);
  if (launched || followed.input_wrong || job.mode != Job::Mode::kRun) return launched;
  std::vector<int> ranks(static_cast<size_t>(plan.world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::string suffix = fmt::format("-node-{}", nodes.node());
  if (job.restarts > 0) suffix += fmt::format("-restart-{}", job.restarts);
  return tl::unexpected(
      WithFlightRecord(plan, recorder, ranks, launched.error(), FlightRecordPath({}, suffix)));
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

Status FollowNode(NodeGroup& nodes) {
  Status last;  // the first node may begin again after a failure
  for (;;) {
    WT_ASSIGN_OR_RETURN(const std::optional<std::string> text, nodes.Next());
    if (!text) return last;
    WT_ASSIGN_OR_RETURN(const Job job, ParseJob(*text, "node 0"));
    Followed followed;
    last = FollowJob(job, nodes, followed);
    if (last) continue;
    const std::string own = last.error().message;
    if (followed.interrupted) return last;
    nodes.Fail(own, followed.input_wrong);
    last = followed.input_wrong ? Status(InvalidInput("{}", own)) : Status(Failed("{}", nodes.Failure(own)));
  }
}

namespace {

// What the measuring loops of a job of `mode` find, put into the profile.
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

bool IsRankOfJob() {
  const auto environment = ReadRankEnvironment();
  return !environment || environment->has_value();  // what is wrong with it, JoinLive says
}

Status CheckStartedAlone(std::string_view command) {
  const auto environment = ReadRankEnvironment();
  if (!environment || !*environment || (*environment)->world_size == 1) return Ok();
  // The shell of a batch job has Slurm's variables, too, and is alone.
  const std::string& launcher = (*environment)->launcher;
  if (launcher == "srun" && std::getenv("SLURM_STEP_ID") == nullptr) return Ok();
  return InvalidInput(
      "{0} has started {1} processes of `windtunnel {2}`, all of which would measure at once: start it once, "
      "without {0}; it starts its own ranks (of the commands, `run` joins a job)",
      launcher, (*environment)->world_size, command);
}

bool IsFirstRankOfJob() {
  const auto environment = ReadRankEnvironment();
  return environment && *environment && (*environment)->rank == 0;
}

namespace {

// "1 rank", "2 ranks"
std::string Counted(int number, const char* of) {
  return fmt::format("{} {}{}", number, of, number == 1 ? "" : "s");
}

// The one process of a job whose ranks are threads.
Result<Measurement> RunThreadsHere(const Plan& plan, const LiveOptions& options) {
  WT_ASSIGN_OR_RETURN(const std::string token, MakeToken());
  WT_ASSIGN_OR_RETURN(auto server, ServeStore("127.0.0.1", 0, token));
  RankThreads threads;
  threads.options.collective_timeout = options.collective_timeout;
  threads.options.shares_core = plan.world_size > UsableCores();
  threads.pin = plan.scenario.run.pin && !IsOfCudaDevice(plan.scenario.cluster.device);
  threads.connect = [&](int) { return ConnectStore("127.0.0.1", server->port(), token, kRendezvous); };
  threads.record = [](int) -> Result<FlightRecorder> { return FlightRecorder::Private(); };
  threads.work = [&](RankSession& session, Store& store) -> Result<std::string> {
    WT_ASSIGN_OR_RETURN(const RankRun run, MeasureRank(session, store, options.run));
    return Serialize(run);
  };
  WT_ASSIGN_OR_RETURN(const std::vector<std::string> results, RunRankThreads(plan, threads));
  return FromResults(plan, results, options);
}

// What ranks do together beside the scenario's steps, a line each; files may be elsewhere on another node.
std::string DescribeForPeers(const RunOptions& run) {
  const auto given = [](const std::string& value) { return value.empty() ? "no" : "yes"; };
  return fmt::format(
      "--checkpoint-dir or --export: {}\n--checkpoint-every: {}\n--resume: {}\n--import: {}\n--eval: {}\n"
      "steps are reported (no -q, or --tensorboard): {}\n--log-every: {}\n",
      given(run.checkpoints), run.checkpoint_every, run.resumes ? "yes" : "no", given(run.import_weights),
      run.evaluates ? "yes" : "no", run.reporting.any() ? "yes" : "no", run.reporting.every);
}

}  // namespace

Result<Measurement> JoinLive(const Plan& plan, const LiveOptions& options) {
  WT_ASSIGN_OR_RETURN(const auto environment, ReadRankEnvironment());
  if (!environment) return InvalidInput("RANK and WORLD_SIZE are not set");
  const bool shares_process = SharesProcess(plan);
  if (environment->world_size != (shares_process ? 1 : plan.world_size)) {
    return InvalidInput("{} is {}, but the scenario has {}{}", environment->world_size_name,
                        environment->world_size, Counted(plan.world_size, "rank"),
                        shares_process ? " in one process" : "");
  }
  if (shares_process) return RunThreadsHere(plan, options);
  Rendezvous rendezvous;
  rendezvous.member = environment->rank;
  rendezvous.members = environment->world_size;
  rendezvous.host = environment->master_addr;
  rendezvous.port = environment->master_port;
  rendezvous.token = environment->token;
  rendezvous.scenario = ResolvedYaml(plan.scenario) + DescribeForPeers(options.run);
  rendezvous.deadline = options.rendezvous_timeout;
  rendezvous.advice = environment->advice;
  WT_ASSIGN_OR_RETURN(const Meeting meeting, Meet(rendezvous));
  Store* store = meeting.store.get();
  FlightRecorder recorder = FlightRecorder::Private();
  const std::string cores = UsableCoresText();
  const auto of_neighbors =
      TellNeighbors(*store, {environment->local_rank, environment->local_world_size}, "cores", cores);
  const bool shares_core = of_neighbors ? SharesCores(cores, *of_neighbors)
                                        : environment->local_world_size > UsableCores();  // who is not there?
  RankOptions rank_options{environment->rank, meeting.interface, options.collective_timeout, shares_core};
  rank_options.local_rank = environment->local_rank;
  rank_options.local_ranks = environment->local_world_size;
  const bool pins = plan.scenario.run.pin && !IsOfCudaDevice(plan.scenario.cluster.device);
  if (cpu_set_t core; pins && CoreOfRank(environment->local_rank, core)) {
    sched_setaffinity(0, sizeof core, &core);
  }
  const auto work = [&]() -> Result<RankRun> {
    WT_ASSIGN_OR_RETURN(auto session, RankSession::Make(plan, *store, recorder, rank_options));
    return MeasureRank(*session, *store, options.run);
  };
  const Result<RankRun> measured = work();
  if (!measured && measured.error().kind == ErrorKind::kFailed) {
    const std::string suffix = fmt::format("-rank-{}", environment->rank);
    return tl::unexpected(WithFlightRecord(plan, recorder, {environment->rank}, measured.error(),
                                           FlightRecordPath(options, suffix)));
  }
  WT_ASSIGN_OR_RETURN(const RankRun run, measured);
  if (environment->rank != 0) {
    WT_RETURN_IF_ERROR(store->Set(ResultKey(environment->rank), Serialize(run)));
    EndMpi(*store, environment->rank, plan.world_size, options.collective_timeout);
    return Measurement{};
  }
  std::vector<std::string> results = {Serialize(run)};
  for (int rank = 1; rank < plan.world_size; ++rank) {
    WT_ASSIGN_OR_RETURN(std::string result, store->Get(ResultKey(rank), options.collective_timeout));
    results.push_back(std::move(result));
  }
  EndMpi(*store, environment->rank, plan.world_size, options.collective_timeout);
  return FromResults(plan, results, options);
}

}  // namespace windtunnel
