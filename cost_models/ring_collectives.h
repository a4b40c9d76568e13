// What a collective takes on accelerators that are not at hand: rings, by NCCL's own cost model (NCCL 2.28, tuning.cc).
//
// n ranks on N nodes; b bytes of the whole message; B the ring's bandwidth. An all-gather or a reduce-scatter takes n - 1 steps, of
// which N - 1 cross nodes, and moves (n-1)/n b over each link; an all-reduce is both.
//
//   t = min over protocols of (base + (steps - crossing) x hop + crossing x net + moved / (B x share)) + start
//
//   protocol   base   hop (NVLink)  net    share of B
//   LL          6.6   0.6            2.7   1/2, at most a ceiling
//   LL128      14.0   1.9            4.0   0.92; NVLink only
//   Simple      8.4   3.4           14.0   1           microseconds; beyond one node a hop takes at least the host's overhead (x 3
//                                                      for Simple), and an all-reduce by Simple 1.4 of its latency
//
// B within a node is what nccl-tests measure of the link; beyond it, it is at most the group's share of its nodes' network
// cards: where only p of a node's d ranks are in the group, d/p groups like it share them.
//
//   All-gather of 64 MiB among 8 A100s of a node (230 GB/s, start 28 us): Simple is 32.2 + 255.3 + 28 = 315.5 us, LL128 27.3 +
//   277.5 + 28 = 332.8 us.
//
// A send with its receive is taken as a broadcast between two ranks, which moves the same bytes over the same links: NCCL's own model has
// no time for them.
//
// NCCL's trees and in-switch reductions (all-reduce only) are not modelled: rings are what FSDP's collectives use.
#pragma once

#include "base/result.h"
#include "base/units.h"
#include "cost_models/device_spec.h"
#include "plan/step_program.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// A kind of link between the devices of a node: what its vendor says of one direction, and what a ring achieves over it.
struct LinkRates {
  Bandwidth nominal, ring;
  bool is_nvlink = false;
};
// Errors: InvalidInput for a kind that devices of a node are not linked by, or no link at all.
Result<LinkRates> IntraNodeRates(const LinkSpec& link, const std::string& default_kind);

// What a ring achieves over one network card, and the latency to another node beyond NCCL's own.
struct NicRates {
  Bandwidth rate;
  Duration latency;
};
// Errors: InvalidInput where the bandwidth of a network card is not named.
Result<NicRates> InterNodeRates(const LinkSpec& link);

// How a group lies in the cluster.
struct RingLayout {
  int ranks = 1;
  int nodes = 1;
  Bandwidth bandwidth;  // the ring's
  bool has_nvlink = false;
  Duration net_latency;
};
// Errors: those of the rates, Unsupported for what-ifs of the network that rings do not know.
Result<RingLayout> LayOutRing(const Group& group, const ClusterSpec& cluster, const DeviceSpec& device);

// Errors: Unsupported for all-to-all.
Result<Duration> RingTime(const Collective& collective, const RingLayout& ring, const CollectiveSpec& spec);

}  // namespace windtunnel
