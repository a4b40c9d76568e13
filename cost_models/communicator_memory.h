// What NCCL's communicators hold on a rank's device, outside the allocator.
//
// NCCL keeps 10 MiB at the receiver (a buffer for each protocol: 4, 4.7 and 0.5 MiB) and 2 MiB at the sender for each channel to a peer of the
// same node (src/transport/p2p.cc). Rings and trees have a few peers whatever the size of the group; messages and all-to-alls have as many as a
// rank talks to. Peers on other nodes share a pool of buffers (NCCL_NET_SHARED_BUFFERS). Measured on up to 8 devices; racks are extrapolated.
// Not counted: NVLS, DeepEP's buffers.
#pragma once

#include "base/units.h"
#include "scenarios/scenario.h"

namespace windtunnel {

struct CommunicatorMemorySpec {
  Bytes
      first;  // of any job of several ranks: the communicator of all of them, with its kernels and host library
  Bytes further;                      // each of the others: rings and trees
  Bytes channel;                      // a channel to a peer of the node, both ways
  int64_t peer_channels = 0;          // to a peer, of a group that lies within a node
  int64_t network_peer_channels = 0;  // of a group that does not
  Bytes network;                      // the pool of each group whose ranks talk to peers on other nodes
};

// What the communicators of a rank of the scenario hold together: of all ranks, and of each group of the mesh that has more than one rank and is
// not all of them (plan/axes.h). A pipeline's ends have the embeddings' group and its other ranks two neighbours: both are counted. Nothing for
// one rank.
Bytes CommunicatorMemory(const Scenario& scenario, const CommunicatorMemorySpec& spec);

}  // namespace windtunnel
