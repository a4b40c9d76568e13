// The nodes of a job beyond the first.
#include <optional>
#include <string>
#include <utility>

#include "runtime/job_launch.h"
#include "runtime/live.h"
#include "scenarios/load.h"

namespace windtunnel {
namespace {

// Why a job failed on a node beyond the first.
struct Followed {
  bool input_wrong = false, interrupted = false;
};

// Runs one job of the first node on this one.
Status FollowJob(const Job& job, NodeGroup& nodes, const LiveOptions& options, Followed& followed) {
  WT_ASSIGN_OR_RETURN(const Scenario scenario, ParseScenario(job.scenario, "job", "/", {}));
  WT_ASSIGN_OR_RETURN(const Plan plan, CompilePlan(scenario, {.evaluates = job.run.evaluates}));
  WT_ASSIGN_OR_RETURN(const auto store, ConnectStore(job.host, job.store_port, job.token, kRendezvous));
  WT_ASSIGN_OR_RETURN(const auto ranks, RanksHere::Make(plan, job, &nodes));
  const Status launched = ranks->Run(*store, {});
  if (launched) return Ok();
  followed = {ranks->found_input_wrong(), ranks->interrupted()};
  ranks->HearOfOthers();
  return tl::unexpected(ranks->WithRecord(launched.error(), options));
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
    const std::string own = last.error().message;
    if (followed.interrupted) return last;
    nodes.Fail(own, followed.input_wrong);
    last = followed.input_wrong ? Status(InvalidInput("{}", own)) : Status(Failed("{}", nodes.Failure(own)));
  }
}

}  // namespace windtunnel
