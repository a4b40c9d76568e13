// The cluster's network as a graph: devices, network cards and switches are vertices, links are edges with bandwidth and latency.
//
//   WT_ASSIGN_OR_RETURN(Topology topology, MakeTopology(cluster, "nvlink4"));
//   RouteFinder finder(topology);
//   WT_ASSIGN_OR_RETURN(NetworkRoute route, finder.Between(0, 8));     // from the first device to the ninth, the next node's first
//   for (const Hop& hop : route.hops) load[hop.link] += hop.share * bytes;
//
// A link that the scenario names carries its bandwidth in each direction: it is two of Topology's links. Device r is rank r's.
// Routes are shortest paths by the number of links, none of which passes through another device: what leaves a node leaves by the
// sender's own card. Where several are equally short, traffic splits evenly at each vertex.
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

// What a topology is made of before it is one. Every link stands for both directions.
struct TopologyParts {
  std::vector<TopologyVertex> vertices;
  std::vector<DirectedLink> links;

  int32_t Add(std::string name, VertexKind kind);
  void Join(int32_t from, int32_t to, Bandwidth bandwidth, Duration latency = {});
};

class Topology {
 public:
  // Errors: InvalidInput when not every vertex can be reached (names one), or `slow` names what is not linked.
  static Result<Topology> Make(TopologyParts parts, const std::optional<SlowLinkSpec>& slow = {});

  Topology(Topology&&) noexcept;
  Topology& operator=(Topology&&) noexcept;
  ~Topology();

  const std::vector<TopologyVertex>& vertices() const { return vertices_; }
  // Links are numbered from 0; those that leave a vertex follow each other.
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
  std::vector<int32_t> reverse_;  // by link: the other direction
  std::vector<int32_t> device_vertices_;
  std::unique_ptr<Graph> graph_;
};

// The cluster's own: cluster.topology, with cluster.slow_link in it. `default_link` is the kind of link between devices of a node where
// the scenario names none. A preset takes what it does not say of itself from cluster.network (topology/README.md).
// Errors: InvalidInput, naming the key: no topology, a mesh that does not fit its devices, a link without a bandwidth, what is not
// connected.
Result<Topology> MakeTopology(const ClusterSpec& cluster, const std::string& default_link);

// cluster.network with what a topology's preset says of it, unless it was completed by a preset's name already (as all that are loaded are).
NetworkSpec NetworkOf(const ClusterSpec& cluster);

struct Hop {
  int32_t link = -1;
  double share = 1;  // of the traffic
};
struct NetworkRoute {
  std::vector<Hop> hops;
  Duration latency;  // of the longest way
};

// Finds routes in a topology, which must outlive it. Keeps memory between searches: one for each thread.
class RouteFinder {
 public:
  explicit RouteFinder(const Topology& topology);

  // From one device to another: along the shortest ways, and over network cards only where there is none without (not over a card that
  // devices of a node share, though that may be as short as their switch). Errors: InvalidInput when each way leads through another
  // device (names both).
  Result<NetworkRoute> Between(int from_device, int to_device);

 private:
  // A link between consecutive levels of a search, as traffic passes it: from one vertex to another.
  struct Step {
    int32_t from = -1, to = -1;
    int32_t link = -1;
  };
  // A breadth-first search from one end of the route.
  struct Side {
    std::vector<int32_t> distance;  // by vertex, in links
    std::vector<int32_t> seen_in;   // by vertex: the last search that saw it
    std::vector<int32_t> queue;     // vertices in the order in which they were seen
    std::vector<Step> steps;        // that the search has come over, level by level
    std::vector<size_t> levels;     // where the steps to each level begin, from that at distance 1 on
    size_t level = 0;               // where the outermost level begins in the queue
    int64_t edges = 0;              // that leave the outermost level
  };

  enum class Cards : uint8_t { kPass, kEnd };  // whether ways may pass network cards

  bool CanPass(int32_t vertex, int32_t end) const;
  void Begin(Side& side, int32_t vertex);
  // Extends the search by one level; `end` is the other side's first vertex. True when it meets the other side's search.
  bool Widen(Side& side, const Side& other, int32_t end);
  bool Meet(int32_t from, int32_t to, Cards cards);
  void MarkWays();
  // From the vertices at distance `done` from the sender that are on shortest ways: by vertex, in the order of `level_`, and by link.
  void FindSteps(int32_t done);
  bool IsIn(const std::vector<int32_t>& level, int32_t vertex) const {
    const auto place = static_cast<size_t>(place_[vertex]);
    return place < level.size() && level[place] == vertex;
  }
  bool IsSeen(const Side& side, int32_t vertex) const { return side.seen_in[vertex] == search_; }

  const Topology& topology_;
  Cards cards_ = Cards::kPass;
  Side from_, to_;
  std::vector<int32_t> on_way_;  // the search in which a vertex near the sender was found on a shortest way
  std::vector<int32_t> level_, next_level_;  // of shortest ways, so many links from the sender
  std::vector<int32_t> place_;               // by vertex: in its level
  std::vector<Step> steps_;                  // that lead from one to the other
  std::vector<double> share_;
  int32_t search_ = 0;
};

}  // namespace windtunnel
