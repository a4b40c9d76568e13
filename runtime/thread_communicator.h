// A process group whose ranks are threads of one process: DataParallel's devices. Nothing is sent; every rank
// reads its peers' operands in place and does its own part of the work, so an operator needs no scratch and
// no copy beside the one that it is for.
//
//   auto group = MakeThreadGroup({.name = "world", .size = 2});            // once
//   auto communicator = MakeThreadCommunicator(group, rank);               // in each rank's thread
//
// An operator begins when all its ranks have come to it and ends on all of them at once. The order of a sum
// is that of the ranks.
//
// Ranks whose devices have queues do the same in a queue of each device's own: copies between the devices'
// memories, and sums by a kernel.
//
//   WT_ASSIGN_OR_RETURN(auto communicator, MakeDeviceThreadCommunicator(group, rank, device));
//
// There Submit waits for the peers' threads to come to the operator (never for their devices), and
// the deadline is for that wait.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/result.h"
#include "runtime/communicator.h"
#include "runtime/device.h"

namespace windtunnel {

struct ThreadGroupOptions {
  std::string name;
  int size = 1;
  std::chrono::milliseconds timeout{60'000};  // of every operator, for its last rank to come
  // A thread that waits polls this long before it sleeps; 0 where ranks share cores.
  std::chrono::microseconds spin{50};
};

class ThreadGroup;
std::shared_ptr<ThreadGroup> MakeThreadGroup(const ThreadGroupOptions& options);

// For a rank that ends before it has a communicator: its peers' operators fail instead of waiting for it.
void LeaveThreadGroup(ThreadGroup& group, int rank);

// Rank `rank` of the group; once for each. It carries every kind of operator. When it is gone, so is the
// rank: its peers' operators fail.
std::unique_ptr<Communicator> MakeThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank);

// The same on devices with queues; every rank of the group calls it. `device` must outlive the communicator.
// Sums are of fp32, bf16 and fp16, and take 16 MiB of the device's memory. Errors: Failed (a rank that did
// not come, what the device says).
Result<std::unique_ptr<Communicator>> MakeDeviceThreadCommunicator(std::shared_ptr<ThreadGroup> group,
                                                                   int rank, Device& device);

}  // namespace windtunnel
