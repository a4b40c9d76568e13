// The nodes of a job beyond the first.
#include <optional>
#include <string>
#include <utility>

#include "runtime/job_launch.h"
#include "runtime/live.h"
#include "scenarios/load.h"

namespace windtunnel {
namespace {

// A job that failed on a node beyond the first.
struct Followed {
  JobFailure failure;
  bool interrupted = false;
};

// Runs one job of the first node on this one. An error is also described in `followed`.
Status FollowJob(const Job& job, NodeGroup& nodes, const LiveOptions& options, Followed& followed) {
  WT_ASSIGN_OR_RETURN(const Scenario scenario, ParseScenario(job.scenario, "job", "/", {}));
  WT_ASSIGN_OR_RETURN(const Plan plan, CompilePlan(scenario, {.evaluates = job.run.evaluates}));
  WT_ASSIGN_OR_RETURN(const auto store, ConnectStore(job.host, job.store_port, job.token, kRendezvous));
  WT_ASSIGN_OR_RETURN(const auto ranks, RanksHere::Make(plan, job, &nodes));
  const Status launched = ranks->Run(*store, {});
  if (launched) return Ok();
  followed.interrupted = ranks->interrupted();
  ranks->HearOfOthers();
  Error error = ranks->WithRecord(launched.error(), options);
  followed.failure = ranks->FailureWith(error.message);
  return tl::unexpected(std::move(error));
}

}  // namespace

Status FollowNode(NodeGroup& nodes, const LiveOptions& options) {
  Status last;  // the first node may begin again after a failure
  for (;;) {
    WT_ASSIGN_OR_RETURN(const std::optional<std::string> text, nodes.Next());
    if (!text) return last;
    WT_ASSIGN_OR_RETURN(const Job job, ParseJob(*text, "node 0"));
    Followed followed;
    last = FollowJob(job, nodes, options, followed);
    if (last) continue;
    if (followed.interrupted) return last;
    JobFailure own = std::move(followed.failure);
    own.message = last.error().message;  // also of a job whose ranks could not be started
    nodes.Fail(own);
    last = own.input_wrong ? Status(InvalidInput("{}", own.message))
                           : Status(Failed("{}", nodes.BestExplanation(own)));
  }
}

}  // namespace windtunnel
