#include "runtime/job_launch.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <utility>

#include "base/format.h"
#include "runtime/assemble.h"
#include "runtime/cores.h"
#include "runtime/flight_record.h"
#include "runtime/rank_main.h"
#include "runtime/rank_session.h"
#include "runtime/run_length.h"
#include "scenarios/load.h"

namespace windtunnel {
namespace {

// Whether a rank's process (RunRank) ended because its input was wrong, which no restart mends.
bool FoundInputWrong(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 2; }

// The name of the process that has all ranks as threads.
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

bool UsesMpi(const Plan& plan) {
  return plan.scenario.run.backend == Backend::kMpi && plan.world_size > 1 && !SharesProcess(plan);
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

}  // namespace

bool PinsRanks(const Plan& plan) {
  return plan.scenario.run.pin && !IsOfCudaDevice(plan.scenario.cluster.device);
}

Result<std::string> MakeToken() {
  unsigned char bytes[16];
  if (getentropy(bytes, sizeof(bytes)) != 0) return Failed("no random bytes from the kernel");
  std::string token;
  for (unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

std::string FlightRecordPath(const LiveOptions& options, const std::string& suffix) {
  std::filesystem::path path = options.flight_record;
  if (path.empty()) path = TemporaryPath() + fmt::format("/windtunnel-flight-record-{}.json", getpid());
  std::error_code unknown;
  const bool is_device =
      std::filesystem::exists(path, unknown) && !std::filesystem::is_regular_file(path, unknown);
  if (is_device) return path.string();  // such as /dev/null
  return (path.parent_path() / (path.stem().string() + suffix + path.extension().string())).string();
}

Error WithFlightRecord(const Plan& plan, const FlightRecorder& recorder, const std::vector<int>& ranks,
                       Error error, const std::string& path) {
  const Status written = WriteFlightRecord(plan, recorder, ranks, error.message, path);
  error.message += written ? fmt::format("; flight record: {}", path)
                           : fmt::format("; no flight record: {}", written.error().message);
  return error;
}

Result<std::unique_ptr<RanksHere>> RanksHere::Make(const Plan& plan, Job job, NodeGroup* nodes) {
  WT_ASSIGN_OR_RETURN(auto signals, SignalPipe::Make());
  std::unique_ptr<RanksHere> ranks(new RanksHere(plan, std::move(job), nodes, std::move(signals)));
  WT_RETURN_IF_ERROR(ranks->Prepare());
  return ranks;
}

RanksHere::~RanksHere() {
  if (nodes_ != nullptr) nodes_->SetInterrupt(-1);
}

Status RanksHere::Prepare() {
  if (nodes_ != nullptr) nodes_->SetInterrupt(signals_->descriptor());
  job_.cores = UsableCores();
  WT_RETURN_IF_ERROR(CheckShareOfCores(job_.local_ranks));
  job_.shares_core = nodes_ == nullptr ? job_.local_ranks > job_.cores
                                       : SharesCores(UsableCoresText(), nodes_->cores_here());
  if (nodes_ != nullptr) job_.interface = nodes_->interface();
  WT_ASSIGN_OR_RETURN(TemporaryDirectory directory, TemporaryDirectory::Make(kJobDirectory));
  directory_.emplace(std::move(directory));
  job_.flight_record = directory_->File("flight_record");
  WT_RETURN_IF_ERROR(WriteJob(job_, JobFile()));
  WT_ASSIGN_OR_RETURN(recorder_, FlightRecorder::Create(job_.flight_record, plan_.world_size));
  return Ok();
}

LaunchOptions RanksHere::Options() const {
  const bool shares_process = SharesProcess(plan_);
  LaunchOptions launch;
  launch.ranks = shares_process ? 1 : job_.local_ranks;
  launch.node = nodes_ == nullptr ? 0 : nodes_->node();
  launch.nodes = nodes_ == nullptr ? 1 : nodes_->nodes();
  launch.argv = {"/proc/self/exe", "rank", JobFile()};
  launch.environment["TORCHELASTIC_RESTART_COUNT"] = std::to_string(job_.restarts);
  launch.environment["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(job_.max_restarts);
  launch.pin = PinsRanks(plan_) && !shares_process;  // threads pin themselves
  if (nodes_ != nullptr) launch.first_core = nodes_->ranks_before();
  launch.master_addr = job_.host;
  launch.master_port = job_.store_port;
  if (shares_process && plan_.scenario.run.pin)
    for (const char* threads : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) launch.environment[threads] = "1";
  return launch;
}

Status RanksHere::StartMpi(LaunchOptions& launch) {
  MpiJob mpi;
  mpi.world_size = plan_.world_size;
  mpi.nodes = launch.nodes;
  mpi.node = launch.node;
  mpi.local_ranks = launch.ranks;
  mpi.store_host = job_.host;
  mpi.store_port = job_.store_port;
  mpi.store_token = job_.token;
  mpi.interface = job_.interface;
  WT_ASSIGN_OR_RETURN(host_, MpiHost::Start(mpi, signals_->descriptor()));
  launch.environment_of = [this, ranks = launch.ranks](int rank) {
    return host_->EnvironmentOf(rank % ranks);
  };
  return Ok();
}

// Sets the functions through which the launcher asks, and those through which it reports.
void RanksHere::Tell(Store& store, LaunchOptions& launch) {
  const bool shares_process = SharesProcess(plan_);
  launch.describe_error = [&store](int rank) {
    auto error = store.Get(ErrorKey(rank), std::chrono::milliseconds(0));
    return error ? *error : std::string();
  };
  launch.last_op = [this, shares_process](int rank) -> std::string {
    if (found_input_wrong_) return "";  // the last operator is not where it went wrong
    return shares_process ? LastOperators(plan_, *recorder_) : OperatorAt(plan_, rank, recorder_->Last(rank));
  };
  if (shares_process) launch.name = [this](int) { return NameOfProcess(plan_); };
  if (nodes_ != nullptr) launch.reason_to_end = [this] { return nodes_->ReasonToEnd(); };
  launch.failed = [this](int, int status) {
    failed_ = true;
    found_input_wrong_ = FoundInputWrong(status);
    rank_was_killed_ = WIFSIGNALED(status);
  };
  launch.interrupted = [this](int signal) { NoteInterrupt(signal); };
}

void RanksHere::NoteInterrupt(int signal) {
  interrupted_ = true;
  if (nodes_ != nullptr && nodes_->node() > 0) nodes_->Leave(DescribeInterrupt(signal));
}

Status RanksHere::CheckNotInterrupted() {
  const int signal = signals_->Next();
  if (signal == 0) return Ok();
  NoteInterrupt(signal);
  return Failed("{}", DescribeInterrupt(signal));
}

Status RanksHere::Run(Store& store, std::function<void()> tick) {
  LaunchOptions launch = Options();
  Tell(store, launch);
  launch.signals = signals_.get();
  if (UsesMpi(plan_)) {
    const Status started = StartMpi(launch);
    WT_RETURN_IF_ERROR(CheckNotInterrupted());
    WT_RETURN_IF_ERROR(started);
  }
  launch.tick = std::move(tick);
  return LaunchRanks(launch);
}

void RanksHere::HearOfOthers() {
  if (!failed_ && !interrupted_ && nodes_ != nullptr) failed_ = !nodes_->ReasonToEnd().empty();
}

Error RanksHere::WithRecord(Error error, const LiveOptions& options) const {
  if (!failed_ || found_input_wrong_ || job_.mode != Job::Mode::kRun) return error;
  std::vector<int> ranks(static_cast<size_t>(plan_.world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::string suffix;
  if (nodes_ != nullptr && nodes_->node() > 0) suffix += fmt::format("-node-{}", nodes_->node());
  if (job_.restarts > 0) suffix += fmt::format("-restart-{}", job_.restarts);
  return WithFlightRecord(plan_, *recorder_, ranks, std::move(error), FlightRecordPath(options, suffix));
}

Result<Job> Launch::Prepare(Job::Mode mode) {
  Job job;
  job.mode = mode;
  job.scenario = ResolvedYaml(plan_.scenario);
  job.world_size = plan_.world_size;
  job.local_ranks = options_.nodes == nullptr ? plan_.world_size : options_.nodes->ranks_per_node();
  if (options_.nodes != nullptr) job.host = options_.nodes->master_addr();
  WT_ASSIGN_OR_RETURN(job.token, MakeToken());
  WT_ASSIGN_OR_RETURN(store_, ServeStore(job.host, 0, job.token));
  job.store_port = store_->port();
  job.collective_timeout_ms = options_.collective_timeout.count();
  job.restarts = restarts_;
  job.max_restarts = options_.max_restarts;
  job.run = options_.run;
  return job;
}

void Launch::Report(Job::Mode mode, const FlightRecorder& recorder) {
  if (!options_.progress) return;
  if (mode != Job::Mode::kRun) {
    auto share = store_->Get("calibration/progress", std::chrono::milliseconds(0));
    options_.progress(mode == Job::Mode::kCalibrate ? "calibrating" : "checking costs",
                      share ? std::atof(share->c_str()) : 0.0);
    return;
  }
  const int64_t step = std::max<int64_t>(recorder.Last(0).step, 0);
  options_.progress("running", static_cast<double>(step) / static_cast<double>(LengthOf(plan_).steps));
}

Result<std::vector<std::string>> Launch::Run(Job::Mode mode) {
  WT_RETURN_IF_ERROR(CheckRunsHere(plan_));
  WT_ASSIGN_OR_RETURN(Job job, Prepare(mode));
  WT_ASSIGN_OR_RETURN(const auto ranks, RanksHere::Make(plan_, std::move(job), options_.nodes));
  if (options_.nodes != nullptr) WT_RETURN_IF_ERROR(options_.nodes->Announce(Serialize(ranks->job())));
  const Status launched = ranks->Run(*store_, [&] { Report(mode, ranks->recorder()); });
  if (!launched) return tl::unexpected(Explain(launched.error(), *ranks));
  Result<std::vector<std::string>> results = Results(*ranks);
  if (!results && options_.nodes != nullptr) return tl::unexpected(Explain(results.error(), *ranks));
  return results;
}

// Tells the other nodes, hears what went wrong there, and leaves the flight record.
Error Launch::Explain(Error error, RanksHere& ranks) {
  NodeGroup* nodes = options_.nodes;
  ranks.HearOfOthers();
  const JobFailure own = ranks.FailureWith(error.message);
  bool input_wrong = own.input_wrong;
  if (nodes != nullptr) {
    nodes->Fail(own);
    error.message = nodes->BestExplanation(own);
    input_wrong = input_wrong || nodes->FoundInputWrong();
  }
  if (input_wrong) error.kind = ErrorKind::kInvalidInput;
  may_restart_ = ranks.failed() && !ranks.interrupted() && !input_wrong;
  if (!own.rank_was_killed && nodes == nullptr) reason_ = error.message;
  return input_wrong ? error : ranks.WithRecord(std::move(error), options_);
}

// The results of this node's ranks are there; those of other nodes' ranks come when the slowest ends.
Result<std::vector<std::string>> Launch::Results(RanksHere& ranks) {
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
    WT_RETURN_IF_ERROR(ranks.CheckNotInterrupted());
    if (const std::string reason = options_.nodes->ReasonToEnd(); !reason.empty())
      return Failed("{}", reason);
  }
  return results;
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

}  // namespace windtunnel
