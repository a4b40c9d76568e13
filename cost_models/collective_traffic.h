// What a collective puts on each link of a topology, by what it runs by (cost_models/nccl_collectives.h).
//
// Bytes that pass a link for each byte of the message (of a ring: for each byte that passes each of its links). A group has n ranks, p of
// each of N nodes; between nodes each of the p ranks' cards is one way (a channel of the ring, a tree) and takes its part:
//
//   ring           within a node each rank to the next, (p-1)/p (one node: 1); each rank to its like in the next node, 1/p
//   tree           within a node each rank to the next and back, (p-1)/p; between nodes each to its like in the next and back, (N-1)/(N p):
//                  two binary trees load all cards alike but the root's (a node that is inner in one is a leaf in the other: 2/p in all), and
//                  few of their edges leave a unit of nodes that follow each other, as few do of a ring
//   nvls           to the switch and back, 1 + 1/p; nvls tree: beside the trees between nodes
//   pat            rank i to i + 2^k: min(2^k, n - 2^k)/n
//   hierarchical   within nodes each rank to the next, 2 (p-1)/p; each to its like in the next node, 2 (N-1)/(N p) (of an all-reduce)
//   pairs          the messages themselves
//   relayed        of a token exchange: within nodes each rank to each other, N x the share of tokens that go to a rank; each to its like in each
//                  other node, the share that goes to a node
//
// Groups whose nodes have unequal shares of the ranks are taken as one ring in the order of the ranks.
//
//   8 GPUs on 2 nodes of 4 with a card each: a ring's 100 MB on each link are 75 MB to each GPU's NVSwitch, 25 MB to each card.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/result.h"
#include "cost_models/cost_model.h"
#include "cost_models/nccl_collectives.h"
#include "plan/step_program.h"
#include "topology/topology.h"

namespace windtunnel {

// What collectives achieve of links' bandwidths.
struct LinkShares {
  double within = 1;  // nodes
  double beyond = 1;
  double beyond_by_switches = 1;  // what reductions in switches reach, with trees between nodes
};

struct Traffic {
  // The times that the busiest links need for a byte, in seconds: of those within nodes; of network cards and devices; of all between
  // nodes. At nominal bandwidths.
  double within = 0, cards = 0, beyond = 0;
  double achieved = 0;      // of all links, at what collectives achieve of them
  Duration latency;         // of the longest way to another node
  Duration latency_within;  // and within one
  // By link: the share of what is achieved of it that is in use when the busiest is used up. Ascending.
  std::shared_ptr<const LinkDemands> demands;
};

class TrafficModel {
 public:
  TrafficModel(Topology topology, int devices_per_node, LinkShares shares)
      : topology_(std::move(topology)),
        finder_(topology_),
        devices_per_node_(devices_per_node),
        shares_(shares) {}
  TrafficModel(const TrafficModel&) = delete;

  const LinkShares& shares() const { return shares_; }

  // Of an operator that runs by `pattern`; `position` is that of its rank in the group, of a send or receive. Found once for each group.
  // Errors: the routes'.
  Result<const Traffic*> Of(Pattern pattern, const OpKind& kind, const Group& group, int position);

 private:
  // What determines the messages: of pairs, which ranks they go between; of a shift, `to` is its distance.
  enum class Shape : uint8_t {
    kRing,
    kTree,
    kNvls,
    kNvlsTree,
    kPat,
    kHierarchical,
    kSend,
    kRoot,
    kAllToAll,
    kRelayed,
    kShift
  };
  struct Key {
    Shape shape;
    int from = -1, to = -1;
    std::vector<int> ranks;
    TokenReach reach = {};
    auto operator<=>(const Key&) const = default;
  };
  struct Message {
    int from, to;  // ranks
    double bytes;
  };

  static Key KeyOf(Pattern pattern, const OpKind& kind, const Group& group, int position);
  std::vector<Message> MessagesOf(const Key& key) const;
  static std::vector<Message> Relayed(const std::vector<std::vector<int>>& nodes, const TokenReach& reach);
  // `beyond`: the share of links between nodes that is reached.
  Result<Traffic> Measure(const std::vector<Message>& messages, double beyond);

  const Topology topology_;
  RouteFinder finder_;
  const int devices_per_node_;
  const LinkShares shares_;
  std::map<Key, Traffic> known_;
  // By link, of the messages that are being measured.
  struct Load {
    double bytes = 0;
    bool is_loaded = false, leaves_node = false;
  };
  std::vector<Load> loads_;
};

// How a group lies in a topology. Errors: those of the routes and rates.
Result<GroupLayout> LayOutGroup(const Group& group, const ClusterSpec& cluster, const DeviceSpec& device,
                                TrafficModel& traffic);

// The least time of an operator that puts `traffic` on the links, beyond its latency.
Duration LeastMoving(const OpKind& kind, Pattern pattern, int ranks, const Traffic& traffic);

// What the cluster's collectives achieve of its links. Errors: those of the rates.
Result<LinkShares> SharesOf(const ClusterSpec& cluster, const DeviceSpec& device, const Topology& topology);

}  // namespace windtunnel
