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
#include "runtime/rank_environment.h"
#include "runtime/signal_pipe.h"

namespace windtunnel {

// The exit status of a process that ends because memory has run out where nobody could take an error (ENOMEM).
inline constexpr int kMemoryExhausted = 12;

struct LaunchOptions {
  int ranks = 1;  // on this node
  // Where the job has other nodes, each with as many ranks, that their own launchers start.
  int node = 0, nodes = 1;
  std::vector<std::string> argv;  // of every rank; the first is the program's path
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  std::map<std::string, std::string> environment;  // beside the contract's variables
  // Of one rank, beside those. May be empty.
  std::function<std::map<std::string, std::string>(int rank)> environment_of;
  // The node's rank r runs on core first_core + r, modulo the cores that this process may use; libraries are told to use one thread.
  bool pin = true;
  int first_core = 0;

  // What this process has made for the ranks is to go away when it is interrupted: taken over before that. Null: while the call lasts.
  SignalPipe* signals = nullptr;

  // What follows takes and says a rank's number in the job.
  // Asked after a failure: what the rank itself says went wrong, and the operator that it began last
  // ("blocks.2.mlp.up (backward) of step 12"). May be empty, as functions and in what they return.
  std::function<std::string(int rank)> describe_error;
  // What errors call a process; "rank 1" when not given.
  std::function<std::string(int rank)> name;
  std::function<std::string(int rank)> last_op;
  // Told which rank failed first by itself, and its status as waitpid gives it; not after an interrupt. May be empty.
  std::function<void(int rank, int status)> failed;
  // Told which signal interrupted this process, while ranks ran or were being ended. May be empty.
  std::function<void(int signal)> interrupted;
  // Called about ten times a second while ranks run.
  std::function<void()> tick;
  // Asked as often: a reason to end the ranks, which becomes the error; empty while there is none. May be empty.
  std::function<std::string()> reason_to_end;

  // After the first death, others that die within this time count as just as early: who was killed goes
  // before who complains.
  std::chrono::milliseconds grace{200};
  // From SIGTERM to SIGKILL.
  std::chrono::milliseconds patience{1'500};
};

// Returns when every rank has ended and been reaped. When one fails, the others are ended. Ranks inherit
// standard error. Errors: Failed: names the rank that failed first by itself and how ("rank 1 was killed by
// signal 9 (Killed); its last operator was …"), or the signal that interrupted this process (SIGINT,
// SIGTERM and, unless it is ignored, SIGHUP are passed on to the ranks). When the terminal stops this process (SIGTSTP), the ranks stop and
// go on with it. One call at a time, since it handles signals.
Status LaunchRanks(const LaunchOptions& options);

}  // namespace windtunnel
