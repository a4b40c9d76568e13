#include "runtime/job_launch.h"

#include <string.h>
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
#include "scenarios/load.h"

namespace windtunnel {
namespace {

constexpr int64_t kMostRanksOfACore = 64;  // more would end in memory or processes running out

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
  return (path.parent_path() / (path.stem().string() + suffix + path.extension().string())).string();
}

Error WithFlightRecord(const Plan& plan, const FlightRecorder& recorder, const std::vector<int>& ranks,
                       Error error, const std::string& path) {
  const Status written = WriteFlightRecord(plan, recorder, ranks, error.message, path);
  error.message += written ? fmt::format("; flight record: {}", path)
                           : fmt::format("; no flight record: {}", written.error().message);
  return error;
}

Status PrepareRanks(const Plan& plan, const Job& job, const std::string& job_file, NodeGroup* nodes,
                    std::unique_ptr<MpiHost>& host, LaunchOptions& launch) {
  const bool shares_process = SharesProcess(plan);
  launch.ranks = shares_process ? 1 : job.local_ranks;
  launch.node = nodes == nullptr ? 0 : nodes->node();
  launch.nodes = nodes == nullptr ? 1 : nodes->nodes();
  launch.argv = {"/proc/self/exe", "rank", job_file};
  launch.environment["TORCHELASTIC_RESTART_COUNT"] = std::to_string(job.restarts);
  launch.environment["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(job.max_restarts);
  launch.pin = PinsRanks(plan) && !shares_process;  // threads pin themselves
  launch.master_addr = job.host;
  launch.master_port = job.store_port;
  if (shares_process && plan.scenario.run.pin)
    for (const char* threads : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) launch.environment[threads] = "1";
  if (nodes != nullptr) launch.reason_to_end = [nodes] { return nodes->ReasonToEnd(); };
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
  WT_ASSIGN_OR_RETURN(TemporaryDirectory directory, TemporaryDirectory::Make(kJobDirectory));
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
    found_input_wrong_ = FoundInputWrong(status);
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
