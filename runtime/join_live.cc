// Ranks of jobs that something else launched.
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "runtime/cores.h"
#include "runtime/input_files.h"
#include "runtime/job_launch.h"
#include "runtime/live.h"
#include "runtime/mpi.h"
#include "runtime/neighbors.h"
#include "runtime/rank_environment.h"
#include "runtime/rank_main.h"
#include "runtime/rank_session.h"
#include "runtime/rank_threads.h"
#include "runtime/rendezvous.h"
#include "runtime/socket.h"
#include "runtime/store.h"
#include "scenarios/load.h"

namespace windtunnel {

bool IsRankOfJob() {
  const auto environment = ReadRankEnvironment();
  return !environment || environment->has_value();  // JoinLive says what is wrong with it
}

Status CheckStartedAlone(std::string_view command) {
  const auto environment = ReadRankEnvironment();
  if (!environment || !*environment || (*environment)->world_size == 1) return Ok();
  if ((*environment)->is_of_no_step) return Ok();  // it is alone
  return InvalidInput(
      "{0} has started {1} processes of `windtunnel {2}`, all of which would measure at once: start it once, "
      "without {0}; it starts its own ranks (of the commands, `run` joins a job)",
      (*environment)->launcher, (*environment)->world_size, command);
}

bool IsFirstRankOfJob() {
  const auto environment = ReadRankEnvironment();
  return environment && *environment && (*environment)->rank == 0;
}

namespace {

// Adds to the error what the ranks of this process did last, unless the input was wrong.
Error WithRecord(const Plan& plan, const FlightRecorder& recorder, const std::vector<int>& ranks, Error error,
                 const LiveOptions& options) {
  if (error.kind != ErrorKind::kFailed) return error;
  const std::string path = FlightRecordPath(options, fmt::format("-rank-{}", ranks.front()));
  return WithFlightRecord(plan, recorder, ranks, std::move(error), path);
}

// Runs the one process of a job whose ranks are threads. They note into one recorder, which is in memory
// only, since nobody would remove its file if the process were killed.
Result<Measurement> JoinAsThreads(const Plan& plan, const LiveOptions& options) {
  const FileDescriptor memory(memfd_create("windtunnel-flight-recorder", MFD_CLOEXEC));
  const std::string path = fmt::format("/proc/self/fd/{}", memory.get());
  WT_ASSIGN_OR_RETURN(const FlightRecorder recorder, FlightRecorder::Create(path, plan.world_size));
  WT_ASSIGN_OR_RETURN(const std::string token, MakeToken());
  WT_ASSIGN_OR_RETURN(auto server, ServeStore("127.0.0.1", 0, token));
  RankThreads threads;
  threads.options.collective_timeout = options.collective_timeout;
  threads.options.shares_core = plan.world_size > UsableCores();
  threads.pin = PinsRanks(plan);
  threads.connect = [&](int) { return ConnectStore("127.0.0.1", server->port(), token, kRendezvous); };
  threads.record = [&](int rank) { return FlightRecorder::Open(path, rank); };
  threads.work = [&](RankSession& session, Store& store) -> Result<std::string> {
    WT_ASSIGN_OR_RETURN(const RankRun run, MeasureRank(session, store, options.run));
    return Serialize(run);
  };
  const Result<std::vector<std::string>> results = RunRankThreads(plan, threads);
  if (results) return FromResults(plan, *results, options);
  std::vector<int> ranks(static_cast<size_t>(plan.world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return tl::unexpected(WithRecord(plan, recorder, ranks, results.error(), options));
}

// A job restarts with all its ranks, so only what started them can restart them.
Status CheckRestarts(const RankEnvironment& environment, int max_restarts) {
  if (max_restarts == 0) return Ok();
  const std::string& launcher = environment.launcher;
  const std::string advice =
      launcher == "torchrun"
          ? fmt::format("give it to torchrun (torchrun --max-restarts {} …)", max_restarts)
          : fmt::format("start `windtunnel run` once, without {}, and it starts its own ranks", launcher);
  return InvalidInput(
      "--max-restarts is {}, but {} has started this rank, and only what starts all ranks restarts them: {}",
      max_restarts, launcher, advice);
}

// The options beside the scenario that all ranks must share, a line each. Paths are left out, since files may
// be elsewhere on another node.
std::string DescribeForPeers(const RunOptions& run) {
  const auto given = [](const std::string& value) { return value.empty() ? "no" : "yes"; };
  return fmt::format(
      "--checkpoint-dir or --export: {}\n--checkpoint-every: {}\n--resume: {}\n--import: {}\n--eval: {}\n"
      "steps are reported (no -q, or --tensorboard): {}\n--log-every: {}\n",
      given(run.checkpoints), run.checkpoint_every, run.resumes ? "yes" : "no", given(run.import_weights),
      run.evaluates ? "yes" : "no", run.reporting.any() ? "yes" : "no", run.reporting.every);
}

Result<MemberMeeting> MeetOthers(const Plan& plan, const LiveOptions& options,
                                 const RankEnvironment& environment) {
  Rendezvous rendezvous;
  rendezvous.member = environment.rank;
  rendezvous.members = environment.world_size;
  rendezvous.host = environment.master_addr;
  rendezvous.port = environment.master_port;
  rendezvous.token = environment.token;
  rendezvous.scenario = ResolvedYaml(plan.scenario) + DescribeForPeers(options.run) +
                        DescribeInputFiles(plan.scenario, options.run.import_weights);
  rendezvous.deadline = options.rendezvous_timeout;
  rendezvous.advice = environment.advice;
  rendezvous.interfaces = GlooInterfaces();
  return Meet(rendezvous);
}

// Runs a process that is one rank.
Result<Measurement> JoinAsRank(const Plan& plan, const LiveOptions& options,
                               const RankEnvironment& environment) {
  WT_ASSIGN_OR_RETURN(const MemberMeeting meeting, MeetOthers(plan, options, environment));
  Store* store = meeting.store.get();
  FlightRecorder recorder = FlightRecorder::Private();
  const std::string cores = UsableCoresText();
  const auto neighbors = TellNeighbors(*store, {environment.rank, environment.world_size}, "cores", cores);
  const bool shares_core = neighbors ? SharesCores(cores, neighbors->said)
                                     : environment.local_world_size > UsableCores();  // a rank did not answer
  RankOptions rank_options{environment.rank, meeting.interface, options.collective_timeout, shares_core};
  rank_options.local_rank = environment.local_rank;
  rank_options.local_ranks = environment.local_world_size;
  const int number = neighbors ? neighbors->own : environment.local_rank;
  if (cpu_set_t core; PinsRanks(plan) && CoreOfRank(number, core)) sched_setaffinity(0, sizeof core, &core);
  const auto work = [&]() -> Result<RankRun> {
    WT_ASSIGN_OR_RETURN(auto session, RankSession::Make(plan, *store, recorder, rank_options));
    return MeasureRank(*session, *store, options.run);
  };
  const Result<RankRun> run = work();
  if (!run) return tl::unexpected(WithRecord(plan, recorder, {environment.rank}, run.error(), options));
  if (environment.rank != 0) {
    WT_RETURN_IF_ERROR(store->Set(ResultKey(environment.rank), Serialize(*run)));
    EndMpi(*store, environment.rank, plan.world_size, options.collective_timeout);
    return Measurement{};
  }
  std::vector<std::string> results = {Serialize(*run)};
  for (int rank = 1; rank < plan.world_size; ++rank) {
    WT_ASSIGN_OR_RETURN(std::string result, store->Get(ResultKey(rank), options.collective_timeout));
    results.push_back(std::move(result));
  }
  EndMpi(*store, environment.rank, plan.world_size, options.collective_timeout);
  return FromResults(plan, results, options);
}

}  // namespace

Result<Measurement> JoinLive(const Plan& plan, const LiveOptions& options) {
  WT_ASSIGN_OR_RETURN(const auto environment, ReadRankEnvironment());
  if (!environment) return InvalidInput("RANK and WORLD_SIZE are not set");
  WT_RETURN_IF_ERROR(CheckRestarts(*environment, options.max_restarts));
  const bool shares_process = SharesProcess(plan);
  if (environment->world_size != (shares_process ? 1 : plan.world_size)) {
    return InvalidInput(
        "{} is {}, but the scenario has {}{} (the product of the sizes in `parallel`; `--set "
        "parallel.data.size=N` changes it)",
        environment->world_size_name, environment->world_size, Counted(plan.world_size, "rank"),
        shares_process ? " in one process" : "");
  }
  LiveOptions own = options;
  if (environment->launcher_stays) own.run.launcher = getppid();
  return shares_process ? JoinAsThreads(plan, own) : JoinAsRank(plan, own, *environment);
}

}  // namespace windtunnel
