// NCCL's own estimate of the times of its algorithms and protocols, by which it chooses among them (NCCL
// 2.28.9, src/graph/tuning.cc).
//
// A communicator has n ranks on N nodes and, from NCCL's search of the machine, a graph for each family of
// algorithms: the number of `channels`, and the bandwidth of one within nodes and between them. For a
// collective of b bytes (of the whole message), by algorithm and protocol:
//
//   t = latency + b / bandwidth
//
//   ring      all-gather, reduce-scatter: n - 1 steps, of which N - 1 cross nodes; all-reduce twice that.
//             latency = base + (steps - crossing) hop + crossing net; bandwidth = bus n / steps (broadcast,
//             reduce: bus). bus = channels x bandwidth of one; with LL half of it and at most a ceiling; with
//             LL128 0.92 of it, at most a ceiling per channel
//   tree      all-reduce. latency = base + 2 ((n/N - 1) hop + floor(log2 N) net); bandwidth = half the bus,
//             which is reduced to 0.92 and at most a ceiling per channel; with LL 1/3.8 of that, with LL128
//             7/9 (one node) or 15/16; 0.85 if the pattern of the trees is the plain one
//   nvls      all-reduce, all-gather, reduce-scatter within the NVSwitch of one node. latency = hop
//   nvls tree all-reduce across nodes: reduced in each NVSwitch, by trees between them.
//             latency = hop + 2 floor(log2 N) net
//   pat       all-gather, reduce-scatter over nodes with one rank each.
//             latency = base + floor(log2 N) net / 3.5 + 2.8 us n
//
// Base latencies, hops and ceilings are tables in the .cc, as NCCL has them. Two corrections apply when a
// time is asked for: a tree's bandwidth is scaled by a table over sizes, and an all-reduce by a ring across
// nodes with Simple takes 1.4 times its latency (Volta 1.9).
//
//   An all-reduce of 64 MiB among 8 A100s of a node, ring of 12 channels x 20 GB/s by Simple: 8.4 + 14 x 3.4 = 56 us of latency,
//   240 x 8/14 = 137.1 GB/s: 545.3 us. LL128: 40.6 us, 220.8 x 8/14 = 126.2 GB/s: 572.5 us. NCCL takes the former.
//
// CollNet (in-network reduction) is not modelled. tests/cost_models/data/nccl_tuning.json holds NCCL's table
// for 19 systems.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "plan/ops.h"

namespace windtunnel {

enum class GpuGeneration : uint8_t { kVolta, kAmpere, kHopper, kBlackwell };
enum class HostCpu : uint8_t { kIntel, kAmd };

// In NCCL's order: of equal estimates the first counts.
enum class NcclAlgorithm : uint8_t { kTree, kRing, kNvls, kNvlsTree, kPat };
enum class NcclProtocol : uint8_t { kLl, kLl128, kSimple };
std::string_view Name(NcclAlgorithm algorithm);  // "ring"
std::string_view Name(NcclProtocol protocol);    // "ll128"

// What NCCL's search finds for a family of algorithms. Bandwidths are of one channel. No channels: not
// available.
struct NcclGraph {
  int channels = 0;
  Bandwidth intra, inter;
};

struct NcclCommunicator {
  int ranks = 1, nodes = 1;
  GpuGeneration generation = GpuGeneration::kAmpere;
  HostCpu cpu = HostCpu::kIntel;
  bool has_nvlink = true;
  bool allows_ll128 = true;
  bool has_plain_trees = false;    // a tree enters and leaves a node through one rank
  bool has_equal_channels = true;  // all rings are the same
  NcclGraph ring, tree, nvls;
  int channels = 1;       // of the collective's kernel
  Duration link_latency;  // of a hop within a node, beyond NCCL's own
  Duration net_latency;   // of the network, likewise

  double ranks_per_node() const { return static_cast<double>(ranks) / nodes; }
};

struct NcclEntry {
  NcclAlgorithm algorithm = NcclAlgorithm::kRing;
  NcclProtocol protocol = NcclProtocol::kSimple;
  Duration latency;
  Bandwidth bandwidth;  // of the whole message
};

// NCCL's entries for an all-reduce, all-gather, reduce-scatter, broadcast or reduce, in NCCL's order.
std::vector<NcclEntry> NcclTable(CollectiveKind kind, const NcclCommunicator& communicator);

// NCCL's estimate for a message of `bytes`.
Duration EstimatedTime(CollectiveKind kind, const NcclEntry& entry, Bytes bytes,
                       const NcclCommunicator& communicator);

// The factor that scales a tree's bandwidth: NCCL's table, whose sizes are powers of two. NCCL takes the
// entry of the power of two below. `interpolated` is linear in bytes between two entries, so that with one
// algorithm more bytes never take less time.
double TreeCorrection(NcclProtocol protocol, Bytes bytes, bool interpolated);

// The factor that scales the latency.
double LatencyFactor(CollectiveKind kind, const NcclEntry& entry, Bytes bytes,
                     const NcclCommunicator& communicator);

// The entry with the least estimate; the first of equal ones. REQUIRES: `table` is not empty.
const NcclEntry& ChooseAsNccl(CollectiveKind kind, const std::vector<NcclEntry>& table, Bytes bytes,
                              const NcclCommunicator& communicator);

}  // namespace windtunnel
