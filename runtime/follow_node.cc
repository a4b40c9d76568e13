// The nodes of a job beyond the first.
#include <string.h>

#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/temporary_directory.h"
#include "runtime/cores.h"
#include "runtime/flight_record.h"
#include "runtime/job_launch.h"
#include "runtime/live.h"
#include "runtime/rank_main.h"
#include "scenarios/load.h"

namespace windtunnel {
namespace {

// Why a job failed on a node beyond the first.
struct Followed {
  bool input_wrong = false, interrupted = false;
};

// One job of the first node's, on this one.
Status FollowJob(Job job, NodeGroup& nodes, Followed& followed) {
  WT_ASSIGN_OR_RETURN(const Scenario scenario, ParseScenario(job.scenario, "job", "/", {}));
  WT_ASSIGN_OR_RETURN(const Plan plan, CompilePlan(scenario, {.evaluates = job.run.evaluates}));
  WT_ASSIGN_OR_RETURN(TemporaryDirectory directory, TemporaryDirectory::Make(kJobDirectory));
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
  launch.failed = [&](int, int status) { followed.input_wrong = FoundInputWrong(status); };
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

}  // namespace windtunnel
