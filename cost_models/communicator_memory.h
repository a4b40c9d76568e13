// The memory that NCCL's communicators hold on a rank's device, outside the allocator.
//
// For each channel to a peer on the same node, NCCL keeps 10 MiB at the receiver (a buffer for each protocol:
// 4, 4.7 and 0.5 MiB) and 2 MiB at the sender (src/transport/p2p.cc). Rings and trees have a few peers
// whatever the size of the group; messages and all-to-alls have as many peers as a rank talks to. Peers on
// other nodes share a pool of buffers (NCCL_NET_SHARED_BUFFERS). Measured on up to 8 devices; racks are
// extrapolated. Not counted: NVLS, DeepEP's buffers.
#pragma once

#include "base/units.h"
#include "scenarios/scenario.h"

namespace windtunnel {

struct CommunicatorMemorySpec {
  // The communicator of all ranks of a job that has several, with its kernels and host library.
  Bytes first;
  Bytes further;                      // each other communicator: its rings and trees
  Bytes channel;                      // a channel to a peer on the node, both directions
  int64_t peer_channels = 0;          // channels per peer, in a group within one node
  int64_t network_peer_channels = 0;  // channels per peer on the node, in a group across nodes
  Bytes network;                      // the pool of each group whose ranks talk to peers on other nodes
};

// The memory that all communicators of one rank hold together: the one of all ranks, and one for each group
// of the mesh that has more than one rank and is smaller than the world (plan/axes.h). In a pipeline, the
// first and last stages are in the embeddings' group and the other stages have two neighbours: every rank is
// counted with both. 0 for a world of one rank.
Bytes CommunicatorMemory(const Scenario& scenario, const CommunicatorMemorySpec& spec);

}  // namespace windtunnel
