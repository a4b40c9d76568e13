// The traffic that a collective puts on each link of a topology, by the pattern it runs by
// (cost_models/nccl_collectives.h).
//
// Amounts are bytes that cross a link per byte of the message (for a ring: per byte that crosses each of its
// links). A group has n ranks, p on each of N nodes. Between nodes each of the p ranks' cards is one path (a
// channel of the ring, a tree) and carries its part. A rank's peer has the same place in another node.
//
//   ring           within a node each rank to the next, (p-1)/p (on one node: 1); each to its peer in the
//                  next, 1/p
//   tree           within a node each rank to the next and back, (p-1)/p; between nodes each rank to its peer
//                  in the next node and back, (N-1)/(N p): two binary trees load all cards alike except the
//                  root's (an inner node of one is a leaf of the other: 2/p in all), and few of their edges
//                  leave a unit of consecutive nodes, as with a ring
//   nvls           to the switch and back, 1 + 1/p; nvls tree: in addition to the trees between nodes
//   pat            rank i to i + 2^k: min(2^k, n - 2^k)/n
//   hierarchical   within nodes each rank to the next, 2 (p-1)/p; each to its peer in the next node,
//                  2 (N-1)/(N p) (for an all-reduce)
//   pairs          the messages themselves. To another node a message leaves by the card of the rank that has
//                  the receiver's place, to which NVLink takes it, so it stays on the receiver's rail (NCCL's
//                  PXN, since 2.12)
//   relayed        a token exchange: within nodes each rank to each other, N x the share of tokens that go to
//                  a rank; each to its peer in each other node, the share that goes to a node
//
// A group whose nodes have unequal numbers of its ranks is treated as one ring in the order of the ranks.
//
//   8 GPUs on 2 nodes of 4 with a card each: when a ring moves 100 MB over each of its links, 75 MB go to
//   each GPU's NVSwitch and 25 MB to each card.
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

// The shares of links' nominal bandwidths that collectives achieve.
struct LinkShares {
  double within = 1;              // on links within nodes
  double beyond = 1;              // on links between nodes
  double beyond_by_switches = 1;  // between nodes, by trees whose nodes reduce in their switches
  bool has_nvlink = false;        // within nodes
};

struct Traffic {
  // Seconds per byte that the busiest link needs at nominal bandwidth: of links with traffic within nodes
  // only; of the links of cards and devices with traffic between nodes; of all links with traffic between
  // nodes.
  double within = 0, cards = 0, beyond = 0;
  // Seconds per byte of the busiest of all links, at the bandwidth that collectives achieve.
  double achieved = 0;
  Duration latency;         // of the longest route to another node
  Duration latency_within;  // and of the longest within a node
  // By link, ascending: the share of its achieved bandwidth in use while the busiest link is fully used.
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

  // The traffic of an operator that runs by `pattern`. `position` is that of the operator's rank in the
  // group, and matters for sends and receives. Each result is computed once per group. Errors: the routes'.
  Result<const Traffic*> Of(Pattern pattern, const OpKind& kind, const Group& group, int position);

 private:
  // What determines the messages. `from` and `to` are the ranks of a message; `to` is a shift's distance.
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
  static std::vector<Message> Pairs(const Key& key);
  // Messages of sends and receives, by way of the rank whose card is on the receiver's rail.
  std::vector<Message> OverRails(std::vector<Message> messages) const;
  // From each rank to the one `distance` after it.
  static std::vector<Message> Around(const std::vector<int>& ranks, size_t distance, double part);
  static std::vector<Message> Pat(const std::vector<int>& ranks);
  // Of groups with as many ranks on each node.
  static void AddWithin(Shape shape, const std::vector<std::vector<int>>& nodes,
                        std::vector<Message>& messages);
  static void AddBetween(Shape shape, const std::vector<std::vector<int>>& nodes,
                         std::vector<Message>& messages);
  // `beyond`: the share that is achieved on links between nodes.
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
Result<GroupLayout> LayOutInTopology(const Group& group, const ClusterSpec& cluster, const DeviceSpec& device,
                                     TrafficModel& traffic);

// A lower bound for the time that an operator needs for `traffic` on the links, without its latency.
Duration LeastMoving(const OpKind& kind, Pattern pattern, int ranks, const Traffic& traffic);

// The shares of the cluster's links that its collectives achieve. Errors: those of the rates.
Result<LinkShares> SharesOf(const ClusterSpec& cluster, const DeviceSpec& device, const Topology& topology);

}  // namespace windtunnel
