// The communicator over NCCL. It runs the collectives of one process group in a queue of the device, so that
// they overlap with computation.
//
//   WT_ASSIGN_OR_RETURN(auto world, MakeNcclCommunicator(store, device, {.name = "world", .rank = 0, .size = 2}));
//
// NCCL itself has no time-outs: if a peer never joins, a kernel waits for ever. A thread of the communicator
// watches the oldest operator. After the time-out it aborts all of them (ncclCommAbort) with an error that
// names the operator, its number, the rank that did not join and, as far as the store knows, where the other
// ranks are.
//
// NCCL is opened when the first communicator is made. A binary that was built without nccl.h has none.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/communicator.h"
#include "runtime/store.h"

namespace windtunnel {

struct NcclOptions {
  std::string name;  // the group's; a prefix of its keys in the store
  int rank = 0;      // within the group
  int size = 1;
  // Applies to connecting, and to every operator from the moment it could begin.
  std::chrono::milliseconds timeout{60'000};
  // Files to open instead of looking for NCCL.
  std::vector<std::string> libraries = {};
  // If set, the group is a part of this communicator, and all ranks of the parent split it at once
  // (ncclCommSplit). `color` numbers the parts.
  Communicator* parent = nullptr;
  int color = 0;
};

// `store` and `device` (which has queues) must outlive the communicator. Every rank of the group calls this;
// with a parent, every rank of the parent. Errors: Failed (NCCL is missing or too old, a rank did not join,
// NCCL's own errors).
Result<std::unique_ptr<Communicator>> MakeNcclCommunicator(Store& store, Device& device,
                                                           const NcclOptions& options);

// "2.28.9"; empty if NCCL is not found. Opens NCCL.
std::string NcclVersion();

// Sets the environment of a rank that shares its device with other ranks of the job. NCCL rejects two ranks
// on one device as a mistake unless they claim to be on different hosts, and then they communicate over
// sockets, on the loopback interface if all ranks are on one machine. Variables that are already set keep
// their values. Call it before the first communicator is made.
void ShareDeviceUnderNccl(int rank, bool one_machine);

}  // namespace windtunnel
