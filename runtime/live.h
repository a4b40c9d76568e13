// Live work, as the command line asks for it: measuring a plan's step on this machine, and measuring the
// costs that a prediction needs. Each function launches the plan's ranks as processes of this binary
// ("windtunnel rank JOB"), watches them, and leaves none behind.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cost_models/profile.h"
#include "plan/plan.h"
#include "runtime/measurement.h"
#include "runtime/node_group.h"
#include "runtime/run_options.h"

namespace windtunnel {

struct LiveOptions {
  // Progress, a few times a second: what is being done and the share of it that is done, in [0, 1].
  std::function<void(const std::string& what, double share)> progress;
  // A line for the log (standard error), such as "step 10: loss 3.21".
  std::function<void(const std::string& line)> log;
  // A line that the user always sees, such as that the job begins again.
  std::function<void(const std::string& line)> note;
  std::chrono::milliseconds collective_timeout{60'000};
  // For ranks that another launcher started to find each other.
  std::chrono::milliseconds rendezvous_timeout{60'000};

  RunOptions run;
  // The most times that a job whose rank fails is launched again, from its newest checkpoint
  // or else from where it began.
  int max_restarts = 0;
  // Where the last operators of all ranks are written when one fails; empty: a file of the temporary directory.
  std::string flight_record;
  // The nodes of the job, of which this is the first; null: all ranks are on this machine. It outlives the call.
  NodeGroup* nodes = nullptr;
};

// Runs the scenario's warm-up and measured steps. Errors: Failed (a rank died or reported an error: names the
// rank, how it ended, its last operator and the flight record), InvalidInput (what a rank could not begin
// with: data, a checkpoint), Unsupported (a device or precision that cannot run here).
Result<Measurement> RunLive(const Plan& plan, const LiveOptions& options);

// On the nodes beyond the first: launches this node's ranks for whatever the first one runs or calibrates,
// until it ends. Errors: Failed (a job has failed, on whichever node). `options` gives only the flight
// record, whose name gets "-node-1"; everything else comes from node 0.
Status FollowNode(NodeGroup& nodes, const LiveOptions& options = {});

// True when the environment says that this process is one rank of a job that something else launched
// (runtime/rank_environment.h).
bool IsRankOfJob();
// InvalidInput when a launcher has started this process as one of several, although
// `command` starts its own ranks.
Status CheckStartedAlone(std::string_view command);
// Whether this process is the first rank of such a job, which speaks for all.
bool IsFirstRankOfJob();
// Runs this process's rank of such a job. The measurement is complete on rank 0 and empty elsewhere.
Result<Measurement> JoinLive(const Plan& plan, const LiveOptions& options);

// Measures what `profile` lacks for `plan` (everything the plan needs when `recalibrate`) and puts it into
// the profile.
Status Calibrate(const Plan& plan, bool recalibrate, const LiveOptions& options, Profile& profile);

// How much longer the plan's operators take on this machine now than by `profile`, as a share (CostDrift,
// cost_models/cost_drift.h), from a second of measurements or a few passes. Errors: as Calibrate;
// InvalidInput where the profile lacks costs.
Result<double> CheckCosts(const Plan& plan, const LiveOptions& options, const Profile& profile);

// An empty profile of this machine's device ("cpu" or "cuda"): name, fingerprint, libraries, date. Where
// there is no such device, its cpu's.
Profile MachineProfile(const std::string& device = "cpu");
// Whether scenarios of this cluster.device can be measured here: "cpu", and "cuda" where there is one.
bool RunsHere(const std::string& device);
// The kind of device in MachineProfile and in profiles: "cpu" or "cuda".
std::string KindOfDevice(const std::string& device);

// The hidden command "rank": one rank of a job that RunLive or Calibrate launched. Returns the exit status.
int RunRank(const std::string& job_file);

}  // namespace windtunnel
