// NCCL's own estimate of what its algorithms and protocols take, by which it chooses among them (NCCL 2.28.9, src/graph/tuning.cc).
//
// A communicator has n ranks on N nodes and, from NCCL's search of the machine, a graph for each family of algorithms: `channels`
// of a bandwidth within nodes and one between them. For a collective of b bytes (of the whole message), by algorithm and protocol:
//
//   t = latency + b / bandwidth
//
//   ring      all-gather, reduce-scatter: n - 1 steps, of which N - 1 cross nodes; all-reduce twice that.
//             latency = base + (steps - crossing) hop + crossing net; bandwidth = bus n / steps (broadcast, reduce: bus)
//             bus = channels x bandwidth of one; by LL half of it and at most a ceiling; by LL128 0.92, at most a ceiling a channel
//   tree      all-reduce. latency = base + 2 ((n/N - 1) hop + floor(log2 N) net); bandwidth = half the bus, of which 0.92 at most
//             a ceiling a channel; by LL 1/3.8, by LL128 7/9 (one node) or 15/16; 0.85 where the pattern of the trees is the plain one
//   nvls      all-reduce, all-gather, reduce-scatter within the NVSwitch of one node. latency = hop
//   nvls tree all-reduce beyond one node: reduced in each NVSwitch, by trees between them. latency = hop + 2 floor(log2 N) net
//   pat       all-gather, reduce-scatter of nodes with one rank each. latency = base + floor(log2 N) net / 3.5 + 2.8 us n
//
// Base latencies, hops and ceilings are tables in the .cc, as NCCL has them. Two corrections are made when a time is asked for: a tree's
// bandwidth is scaled by a table over sizes, and an all-reduce by a ring beyond one node by Simple takes 1.4 of its latency (Volta 1.9).
//
//   An all-reduce of 64 MiB among 8 A100s of a node, ring of 12 channels x 20 GB/s by Simple: 8.4 + 14 x 3.4 = 56 us of latency,
//   240 x 8/14 = 137.1 GB/s: 545.3 us. LL128: 40.6 us, 220.8 x 8/14 = 126.2 GB/s: 572.5 us. NCCL takes the former.
//
// CollNet (in-network reduction) is not modelled. tests/cost_models/data/nccl_tuning.json holds NCCL's table for 19 systems.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "plan/op.h"

namespace windtunnel {

enum class GpuGeneration : uint8_t { kVolta, kAmpere, kHopper, kBlackwell };
enum class HostCpu : uint8_t { kIntel, kAmd };

// In NCCL's order, which decides between equals.
enum class NcclAlgorithm : uint8_t { kTree, kRing, kNvls, kNvlsTree, kPat };
enum class NcclProtocol : uint8_t { kLl, kLl128, kSimple };
std::string_view Name(NcclAlgorithm algorithm);  // "ring"
std::string_view Name(NcclProtocol protocol);    // "ll128"

// What NCCL's search finds for a family of algorithms: bandwidths are of one channel. No channels: not possible here.
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
  bool has_plain_trees = false;    // a tree enters and leaves a node by one rank
  bool has_equal_channels = true;  // all rings are the same
  NcclGraph ring, tree, nvls;
  int channels = 1;       // of a collective's kernel
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

// What NCCL has for a collective there: all-reduce, all-gather, reduce-scatter, broadcast or reduce. Entries are in NCCL's order.
std::vector<NcclEntry> NcclTable(CollectiveKind kind, const NcclCommunicator& communicator);

// NCCL's estimate for a message of `bytes`.
Duration EstimatedTime(CollectiveKind kind, const NcclEntry& entry, Bytes bytes,
                       const NcclCommunicator& communicator);

// What scales a tree's bandwidth: NCCL's table, whose sizes are powers of two. NCCL takes that of the power below; between two,
// `interpolated` is linear in bytes, so that of one algorithm more of them never take less.
double TreeCorrection(NcclProtocol protocol, Bytes bytes, bool interpolated);

// The factor of the latency.
double LatencyFactor(CollectiveKind kind, const NcclEntry& entry, Bytes bytes,
                     const NcclCommunicator& communicator);

// The entry with the least estimate; of equals the first. REQUIRES: `table` is not empty.
const NcclEntry& ChooseAsNccl(CollectiveKind kind, const std::vector<NcclEntry>& table, Bytes bytes,
                              const NcclCommunicator& communicator);

}  // namespace windtunnel
