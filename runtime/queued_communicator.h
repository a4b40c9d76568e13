// What the communicators of all backends share: operators wait in a queue (runtime/operator_queue.h)
// and a runner carries them out.
#pragma once

#include <memory>

#include "runtime/communicator.h"
#include "runtime/operator_queue.h"

namespace windtunnel {

// Rank `rank` of a group of `size`. The runner is destroyed with the communicator, when no operator is in
// progress any more.
std::unique_ptr<Communicator> MakeQueuedCommunicator(std::unique_ptr<OperatorRunner> runner, int rank,
                                                     int size);

}  // namespace windtunnel
