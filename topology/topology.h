// The cluster's network as a graph: devices, network cards and switches are vertices, links are edges with
// bandwidth and latency.
//
//   WT_ASSIGN_OR_RETURN(Topology topology, MakeTopology(cluster, {"nvlink4", GBps(52.8)}));
//   RouteFinder finder(topology);
//   WT_ASSIGN_OR_RETURN(NetworkRoute route, finder.Between(0, 8));  // to the first device of the next node
//   for (const Hop& hop : route.hops) load[hop.link] += hop.share * bytes;
//
// A link that the scenario names has its bandwidth in each direction, and becomes two of Topology's links.
// Device r is rank r's. Routes are shortest paths by the number of links. None passes through another device,
// so traffic leaves a node by the sender's own card. Over equally short paths, traffic splits evenly at each
// vertex.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "scenarios/scenario.h"

namespace windtunnel {

enum class VertexKind : uint8_t { kDevice, kNic, kSwitch };

struct TopologyVertex {
  std::string name;  // "node0.gpu3", "node0.nvswitch", "node0.nic3", "leaf0", "spine", or the scenario's own
  VertexKind kind = VertexKind::kSwitch;
};

// One direction of a link.
struct DirectedLink {
  int32_t from = -1, to = -1;  // vertices
  Bandwidth bandwidth;
  Duration latency;
};

// The parts from which a Topology is made. Every link stands for both directions.
struct TopologyParts {
  std::vector<TopologyVertex> vertices;
  std::vector<DirectedLink> links;

  int32_t Add(std::string name, VertexKind kind);
  void Join(int32_t from, int32_t to, Bandwidth bandwidth, Duration latency = {});
};

class Topology {
 public:
  // Errors: InvalidInput if a vertex cannot be reached (names it), or `slow` names ends that are not linked.
  static Result<Topology> Make(TopologyParts parts, const std::optional<SlowLinkSpec>& slow = {});

  Topology(Topology&&) noexcept;
  Topology& operator=(Topology&&) noexcept;
  ~Topology();

  const std::vector<TopologyVertex>& vertices() const { return vertices_; }
  // Links are numbered from 0; the links that leave one vertex are contiguous.
  const std::vector<DirectedLink>& links() const { return links_; }
  int devices() const { return static_cast<int>(device_vertices_.size()); }
  // Whether an end of the link is a network card.
  bool IsOfCard(int32_t link) const;

 private:
  friend class RouteFinder;
  struct Graph;  // Boost's

  Topology();
  void AddLinks(const std::vector<DirectedLink>& both_ways);

  std::vector<TopologyVertex> vertices_;
  std::vector<DirectedLink> links_;
  std::vector<int32_t> reverse_;  // by link: the link in the opposite direction
  std::vector<int32_t> device_vertices_;
  std::unique_ptr<Graph> graph_;
};

// What a device's type says about its links.
struct DeviceLinks {
  std::string intra_node;  // the kind of link to the node's other devices, if the scenario names none
  Bandwidth to_cards;      // to all its network cards together, in each direction
};

// The topology of the cluster: cluster.topology, with cluster.slow_link applied. A preset takes what it does
// not define itself from cluster.network and `device` (topology/README.md).
// Errors: InvalidInput, naming the key: no topology, a mesh that does not fit its devices, a link without a
// bandwidth, a vertex that is not connected.
Result<Topology> MakeTopology(const ClusterSpec& cluster, const DeviceLinks& device);

// cluster.network, completed with what the topology's preset says. It stays as it is if a preset's name
// completed it already (as in all scenarios that are loaded).
NetworkSpec NetworkOf(const ClusterSpec& cluster);

struct Hop {
  int32_t link = -1;
  double share = 1;  // of the traffic between the two devices
};
struct NetworkRoute {
  std::vector<Hop> hops;
  Duration latency;  // of the longest path
};

// Finds routes in a topology, which must outlive it. Keeps memory between searches: one per thread.
class RouteFinder {
 public:
  explicit RouteFinder(const Topology& topology);

  // The route from one device to another: along the shortest paths, and over network cards only if there is
  // no path without (not over a card that devices of a node share, though that may be as short as the path
  // over their switch). Errors: InvalidInput if every path leads through another device (names both).
  Result<NetworkRoute> Between(int from_device, int to_device);

 private:
  // A link between consecutive levels of a search, in the direction of the traffic.
  struct Step {
    int32_t from = -1, to = -1;  // vertices
    int32_t link = -1;
  };
  // A breadth-first search from one end.
  struct Side {
    // By vertex: its distance if this search has seen it, and the last search that has seen it.
    std::vector<int32_t> distance, seen_in;
    std::vector<int32_t> queue;
    std::vector<Step> steps;     // all links between consecutive levels, level by level
    std::vector<size_t> levels;  // by distance - 1: where the steps to this level begin
    size_t level = 0;            // where the outermost level begins in the queue
    int64_t edges = 0;           // that leave the outermost level
  };

  enum class Cards : uint8_t { kPass, kEnd };  // whether paths may pass network cards

  bool CanPass(int32_t vertex, int32_t end) const;
  void Begin(Side& side, int32_t vertex);
  // Extends the search by one level; `end` is the other side's first vertex. Returns whether it met the other
  // side's search.
  bool Widen(Side& side, const Side& other, int32_t end);
  bool Meet(int32_t from, int32_t to, Cards cards);
  void MarkWays();
  // Fills `steps_` with the steps of shortest paths that lead from `level_`, the vertices at distance `done`
  // from the sender. Sorted by vertex, in the order of `level_`, then by link.
  void FindSteps(int32_t done);
  bool IsIn(const std::vector<int32_t>& level, int32_t vertex) const {
    const auto place = static_cast<size_t>(place_[vertex]);
    return place < level.size() && level[place] == vertex;
  }
  bool IsSeen(const Side& side, int32_t vertex) const { return side.seen_in[vertex] == search_; }

  const Topology& topology_;
  Cards cards_ = Cards::kPass;
  Side from_, to_;
  // By vertex near the sender: the search that last found it on a shortest path.
  std::vector<int32_t> on_way_;
  std::vector<int32_t> level_, next_level_;  // the vertices of shortest paths at two consecutive distances
  std::vector<int32_t> place_;               // by vertex: its index in its level
  std::vector<Step> steps_;                  // from `level_` to `next_level_`
  std::vector<double> share_;
  std::vector<Duration> latency_;  // of the longest way from the sender
  int32_t search_ = 0;
};

}  // namespace windtunnel
