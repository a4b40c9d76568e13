// Serves ranks that use MPI: tells them who they are, and is the place where they leave and find each other's
// addresses. Open MPI asks a PMIx server for that. mpirun and Slurm have one, and so has this launcher, so
// that its ranks are its own children all the same (docs/decisions/0016).
//
//   WT_ASSIGN_OR_RETURN(auto host, MpiHost::Start({.world_size = 2, .local_ranks = 2}));
//   … start rank r with host->EnvironmentOf(r) …
//
// The server is a process of its own, which ends with the object, or with this process.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/temporary_directory.h"
#include "runtime/socket.h"

namespace windtunnel {

struct MpiJob {
  int world_size = 1;
  int nodes = 1, node = 0;
  int local_ranks = 1;  // on every node; rank r is on node r / local_ranks
  // With more than one node: the job's store, through which the servers exchange what their ranks leave, and
  // the interface that ranks on this node listen on.
  std::string store_host;
  int store_port = 0;
  std::string store_token;
  std::string interface;  // this node's address on the way to the others
};

class MpiHost {
 public:
  // Failed: the server did not start (says why), or `interrupt` was readable before it had.
  static Result<std::unique_ptr<MpiHost>> Start(const MpiJob& job, int interrupt = -1);
  ~MpiHost();

  // What rank `local_rank` of this node needs beside the rest of its environment.
  const std::map<std::string, std::string>& EnvironmentOf(int local_rank) const {
    return environments_[static_cast<size_t>(local_rank)];
  }

 private:
  explicit MpiHost(TemporaryDirectory directory) : directory_(std::move(directory)) {}

  // Has the server's and its ranks' files. The server, too, removes them, if this process is killed.
  TemporaryDirectory directory_;
  std::string shared_memory_;
  pid_t pid_ = -1;
  FileDescriptor alive_;  // the server ends when this is closed
  std::vector<std::map<std::string, std::string>> environments_;
};

}  // namespace windtunnel
