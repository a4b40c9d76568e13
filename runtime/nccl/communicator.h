// The communicator over NCCL: collectives of one process group in a queue of the device, so that they run beside what is computed.
//
//   WT_ASSIGN_OR_RETURN(auto world, MakeNcclCommunicator(store, device, {.name = "world", .rank = 0, .size = 2}));
//
// NCCL itself knows no time-outs: a peer that does not come leaves a kernel waiting for ever. A thread of the communicator's watches the
// operator at the front, and after its time ends them all (ncclCommAbort) with an error that names the operator, its number, and the rank
// that did not come, as far as the store knows where the others are.
//
// NCCL is opened when the first communicator is made. Where no nccl.h was found when this was built, there is none.
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
  std::string name;  // of the group: a prefix of its keys in the store
  int rank = 0;      // within the group
  int size = 1;
  std::chrono::milliseconds timeout{60'000};  // of connecting and of every operator, from when it could begin
  // Files to open instead of looking for NCCL.
  std::vector<std::string> libraries = {};
  // A communicator of which this group is a part that all its ranks split off at once (ncclCommSplit): `color` numbers the parts.
  Communicator* parent = nullptr;
  int color = 0;
};

// `store` and `device` (which has queues) must outlive the communicator. Every rank of the group calls it (of the parent, with one).
// Errors: Failed (NCCL is missing or too old, a rank that did not come, what NCCL says).
Result<std::unique_ptr<Communicator>> MakeNcclCommunicator(Store& store, Device& device,
                                                           const NcclOptions& options);

// "2.28.9"; nothing where NCCL is not found. Opens it.
std::string NcclVersion();

// Environment of a rank that shares its device with other ranks of the job: NCCL takes two ranks on one device for a mistake unless they
// claim to be on hosts of their own, and then they talk over sockets, on the loopback interface where all ranks are on one machine. Variables
// that are set stay as they are. Before the first communicator is made.
void ShareDeviceUnderNccl(int rank, bool one_machine);

}  // namespace windtunnel
