// Launches the local ranks of a job as processes, watches them, and leaves none behind.
//
//   LaunchOptions options;
//   options.ranks = 2;
//   options.argv = {"/proc/self/exe", "rank", job_file};
//   options.master_port = store->port();
//   WT_RETURN_IF_ERROR(LaunchRanks(options));
//
// Every rank gets torchrun's environment (runtime/rank_environment.h) and dies with the launcher, however
// that ends.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/signal_pipe.h"

namespace windtunnel {

// The exit status (ENOMEM) of a process that ends because memory ran out where no error could be returned.
inline constexpr int kMemoryExhausted = 12;

struct LaunchOptions {
  int ranks = 1;  // on this node
  // The nodes of the job. Each has the same number of ranks, which its own launcher starts.
  int node = 0, nodes = 1;
  std::vector<std::string> argv;  // of every rank; the first is the program's path
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  std::map<std::string, std::string> environment;  // beside the contract's variables
  // Further variables of one rank. May be empty.
  std::function<std::map<std::string, std::string>(int rank)> environment_of;
  // The node's rank r runs on core first_core + r, modulo the cores that this process may use, or on one that
  // no other job has claimed (CoreClaims); libraries are told to use one thread.
  bool pin = true;
  int first_core = 0;

  // Made by the caller before whatever this process makes for the ranks, so that an interrupt removes that.
  // Null: signals are taken over only while the call lasts.
  SignalPipe* signals = nullptr;

  // The functions below take a rank's number in the job.
  // Called after a failure: describe_error says what the rank itself says went wrong, last_op the
  // operator that it began last ("blocks.2.mlp.up (backward) of step 12"). The functions, and
  // what they return, may be empty.
  std::function<std::string(int rank)> describe_error;
  // The name of the process in errors; "rank 1" when not given.
  std::function<std::string(int rank)> name;
  std::function<std::string(int rank)> last_op;
  // Called with the rank that failed first by itself, and its status as waitpid gives it; not after
  // an interrupt. May be empty.
  std::function<void(int rank, int status)> failed;
  // Called with the signal that interrupted this process while ranks ran or were being ended. May be empty.
  std::function<void(int signal)> interrupted;
  // Called about ten times a second while ranks run.
  std::function<void()> tick;
  // Called as often as `tick` until it returns a reason to end the ranks, which becomes the error, instead of
  // an empty string. The function may be empty.
  std::function<std::string()> reason_to_end;

  // Ranks that die within this time after the first death count as just as early. Of these, one that was
  // killed is named before one that complains.
  std::chrono::milliseconds grace{200};
  // From SIGTERM to SIGKILL.
  std::chrono::milliseconds patience{1'500};
};

// Returns when every rank has ended and been reaped. When one fails, the others are ended. Ranks inherit
// standard error. Errors: Failed: names the rank that failed first by itself and how ("rank 1 was killed by
// signal 9 (Killed); its last operator was …"), or the signal that interrupted this process (SIGINT,
// SIGTERM and, unless it is ignored, SIGHUP are passed on to the ranks). When the terminal stops this process
// (SIGTSTP), the ranks stop and go on with it. One call at a time, since it handles signals.
Status LaunchRanks(const LaunchOptions& options);

}  // namespace windtunnel
