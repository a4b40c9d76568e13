// Launches a job's ranks: on its first node (live.cc) and on the others (follow_node.cc).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/temporary_directory.h"
#include "plan/plan.h"
#include "runtime/flight_recorder.h"
#include "runtime/job.h"
#include "runtime/launcher.h"
#include "runtime/live.h"
#include "runtime/mpi_host.h"
#include "runtime/node_group.h"
#include "runtime/signal_pipe.h"
#include "runtime/store.h"

namespace windtunnel {

inline constexpr std::chrono::seconds kRendezvous{60};
inline constexpr char kJobDirectory[] = "windtunnel";  // how the temporary directory's name begins

// 128 bits that other users of the machine cannot guess.
Result<std::string> MakeToken();

// "/tmp/windtunnel-flight-record-1234.json", "…-rank-1.json"
std::string FlightRecordPath(const LiveOptions& options, const std::string& suffix);

// Writes the flight record of what led to the error, and returns the error with its path. `ranks`:
// the recorder's, in its order.
Error WithFlightRecord(const Plan& plan, const FlightRecorder& recorder, const std::vector<int>& ranks,
                       Error error, const std::string& path);

// Whether each rank is pinned to a core. Ranks with a GPU are not: beside the rank's own thread there are
// those of the driver and of NCCL.
bool PinsRanks(const Plan& plan);

// One launch of a job's ranks on this node, with everything that they need. Every node has one.
class RanksHere {
 public:
  // Completes `job` with this node's own values, and writes it for the ranks. `nodes`: null where
  // there is one node. Errors: Unsupported (too many ranks for this machine), Failed (no
  // pipe or temporary directory can be made).
  static Result<std::unique_ptr<RanksHere>> Make(const Plan& plan, Job job, NodeGroup* nodes);
  ~RanksHere();

  const Job& job() const { return job_; }
  const FlightRecorder& recorder() const { return *recorder_; }

  // Runs the ranks until all have ended. `store` is the job's. Errors: those of LaunchRanks.
  Status Run(Store& store, std::function<void()> tick);

  // After an error: whether a rank failed, here or on another node; whether this process was interrupted.
  bool failed() const { return failed_; }
  bool interrupted() const { return interrupted_; }
  // How the job failed here, with the error's message.
  JobFailure FailureWith(const std::string& message) const {
    return {message, found_input_wrong_, rank_was_killed_};
  }
  // Finds out whether ranks have failed on another node. REQUIRES: this node has not
  // told of its own failure yet.
  void HearOfOthers();
  // Failed if this process has been asked to end since the ranks ended.
  Status CheckNotInterrupted();
  // Adds the flight record to the error of a run in which ranks have failed.
  Error WithRecord(Error error, const LiveOptions& options) const;

 private:
  RanksHere(const Plan& plan, Job job, NodeGroup* nodes, std::unique_ptr<SignalPipe> signals)
      : signals_(std::move(signals)), plan_(plan), job_(std::move(job)), nodes_(nodes) {}
  Status Prepare();
  LaunchOptions Options() const;
  Status StartMpi(LaunchOptions& launch);
  void Tell(Store& store, LaunchOptions& launch);
  void NoteInterrupt(int signal);
  std::string JobFile() const { return directory_->File("job.json"); }

  std::unique_ptr<SignalPipe> signals_;  // made before anything that an interrupt would leave behind
  const Plan& plan_;
  Job job_;
  NodeGroup* nodes_;
  std::optional<TemporaryDirectory> directory_;
  std::optional<FlightRecorder> recorder_;
  std::unique_ptr<MpiHost> host_;  // what MPI's ranks need
  bool failed_ = false, found_input_wrong_ = false, rank_was_killed_ = false, interrupted_ = false;
};

// One launch of all ranks, and what they left in the store.
class Launch {
 public:
  // `restarts`: launches of the same job before this one.
  Launch(const Plan& plan, const LiveOptions& options, int restarts = 0)
      : plan_(plan), options_(options), restarts_(restarts) {}

  // The results by rank.
  Result<std::vector<std::string>> Run(Job::Mode mode);
  // After an error: whether the job may succeed when it is launched again. False where the user interrupted
  // it, a rank found its input wrong or a node is gone.
  bool MayRestart() const {
    return may_restart_ && (options_.nodes == nullptr || options_.nodes->AllThere());
  }
  // After an error: its message without the flight record's place; empty if a rank was killed, which may be
  // otherwise the next time, and on several nodes, where one may have been killed elsewhere.
  const std::string& reason() const { return reason_; }

 private:
  Result<Job> Prepare(Job::Mode mode);
  Result<std::vector<std::string>> Results(RanksHere& ranks);
  Error Explain(Error error, RanksHere& ranks);
  void Report(Job::Mode mode, const FlightRecorder& recorder);

  const Plan& plan_;
  const LiveOptions& options_;
  int restarts_;
  bool may_restart_ = false;
  std::string reason_;
  std::unique_ptr<StoreServer> store_;
};

// The measurement that the ranks' results give. Its losses are logged as `options` says.
Result<Measurement> FromResults(const Plan& plan, const std::vector<std::string>& results,
                                const LiveOptions& options);

}  // namespace windtunnel
