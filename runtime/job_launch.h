// What launching a job's ranks takes, on its first node and on the others (live.cc, follow_node.cc).
#pragma once

#include <sys/wait.h>

#include <chrono>
#include <memory>
#include <string>
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
#include "runtime/store.h"

namespace windtunnel {

inline constexpr std::chrono::seconds kRendezvous{60};
inline constexpr char kJobDirectory[] = "windtunnel";  // its name's beginning

// 128 bits that other users of the machine cannot guess.
Result<std::string> MakeToken();

// "/tmp/windtunnel-flight-record-1234.json", "…-rank-1.json"
std::string FlightRecordPath(const LiveOptions& options, const std::string& suffix);

// The error, with the flight record of what led to it. `ranks`: of the recorder, in its order.
Error WithFlightRecord(const Plan& plan, const FlightRecorder& recorder, const std::vector<int>& ranks,
                       Error error, const std::string& path);

// Whether each rank keeps to a core; beside the rank's own thread a GPU has those of its driver and of NCCL.
bool PinsRanks(const Plan& plan);

// Of a rank's process (RunRank): whether its input was wrong, which no restart mends.
inline bool FoundInputWrong(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 2; }

// The ranks of `job` on this node, whose file is `job_file`: what is the same on every node. `host` keeps what MPI's ranks need.
Status PrepareRanks(const Plan& plan, const Job& job, const std::string& job_file, NodeGroup* nodes,
                    std::unique_ptr<MpiHost>& host, LaunchOptions& launch);

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

// What ranks' results say of the step, which `options` may log.
Result<Measurement> FromResults(const Plan& plan, const std::vector<std::string>& results,
                                const LiveOptions& options);

}  // namespace windtunnel
