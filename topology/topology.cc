#include "topology/topology.h"

#include <algorithm>
#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/strong_components.hpp>
#include <optional>

#include "base/check.h"

namespace windtunnel {

// Vertices and edges have the indices of `vertices_` and `links_`.
struct Topology::Graph {
  using Csr = boost::compressed_sparse_row_graph<boost::directedS, boost::no_property, boost::no_property,
                                                 boost::no_property, int32_t, int32_t>;
  Csr csr;
};

namespace {

// Whether the name stands for the vertex: it is the vertex's name, or the name of what it is part of ("node0"
// for "node0.nic3").
bool StandsFor(const std::string& name, const std::string& vertex) {
  return vertex == name ||
         (vertex.starts_with(name) && vertex.size() > name.size() && vertex[name.size()] == '.');
}

Status SlowDown(const SlowLinkSpec& slow, const std::vector<TopologyVertex>& vertices,
                std::vector<DirectedLink>& links) {
  int found = 0;
  for (DirectedLink& link : links) {
    const std::string &from = vertices[link.from].name, &to = vertices[link.to].name;
    const bool is_slow = (StandsFor(slow.from, from) && StandsFor(slow.to, to)) ||
                         (StandsFor(slow.from, to) && StandsFor(slow.to, from));
    if (!is_slow) continue;
    link.bandwidth = link.bandwidth * slow.factor;
    ++found;
  }
  if (found > 0) return Ok();
  return InvalidInput(
      "cluster.slow_link: no link leads from '{}' to '{}', expected names of cluster.topology that are "
      "linked, such as '{}' and "
      "'{}'",
      slow.from, slow.to, vertices[links.back().from].name, vertices[links.back().to].name);
}

}  // namespace

int32_t TopologyParts::Add(std::string name, VertexKind kind) {
  vertices.push_back({std::move(name), kind});
  return static_cast<int32_t>(vertices.size()) - 1;
}

void TopologyParts::Join(int32_t from, int32_t to, Bandwidth bandwidth, Duration latency) {
  links.push_back({from, to, bandwidth, latency});
}

Topology::Topology() = default;
Topology::Topology(Topology&&) noexcept = default;
Topology& Topology::operator=(Topology&&) noexcept = default;
Topology::~Topology() = default;

Result<Topology> Topology::Make(TopologyParts parts, const std::optional<SlowLinkSpec>& slow) {
  Topology topology;
  topology.vertices_ = std::move(parts.vertices);
  for (const DirectedLink& link : parts.links) {
    topology.links_.push_back(link);
    topology.links_.push_back({link.to, link.from, link.bandwidth, link.latency});
  }
  std::stable_sort(topology.links_.begin(), topology.links_.end(),
                   [](const DirectedLink& a, const DirectedLink& b) { return a.from < b.from; });
  for (size_t v = 0; v < topology.vertices_.size(); ++v) {
    if (topology.vertices_[v].kind == VertexKind::kDevice)
      topology.device_vertices_.push_back(static_cast<int32_t>(v));
  }
  if (topology.links_.empty())
    return InvalidInput("cluster.topology has no links, expected some between its nodes");
  if (slow) WT_RETURN_IF_ERROR(SlowDown(*slow, topology.vertices_, topology.links_));

  std::vector<std::pair<int32_t, int32_t>> edges;
  for (const DirectedLink& link : topology.links_) edges.emplace_back(link.from, link.to);
  topology.graph_ = std::make_unique<Graph>();
  topology.graph_->csr = Graph::Csr(boost::edges_are_sorted, edges.begin(), edges.end(),
                                    static_cast<int32_t>(topology.vertices_.size()));
  std::vector<int32_t> component(topology.vertices_.size());
  boost::strong_components(topology.graph_->csr,
                           boost::make_iterator_property_map(
                               component.begin(), boost::get(boost::vertex_index, topology.graph_->csr)));
  for (size_t v = 1; v < component.size(); ++v) {
    if (component[v] != component[0])
      return InvalidInput(
          "cluster.topology is not connected: no links lead from '{}' to '{}', expected a way between any "
          "two nodes",
          topology.vertices_[0].name, topology.vertices_[v].name);
  }
  return topology;
}

bool Topology::IsOfCard(int32_t link) const {
  return vertices_[links_[link].from].kind == VertexKind::kNic ||
         vertices_[links_[link].to].kind == VertexKind::kNic;
}

RouteFinder::RouteFinder(const Topology& topology)
    : topology_(topology), on_way_(topology.vertices().size(), -1), share_(topology.vertices().size(), 0) {
  for (Side* side : {&from_, &to_}) {
    side->distance.assign(topology.vertices().size(), 0);
    side->seen_in.assign(topology.vertices().size(), -1);
  }
}

bool RouteFinder::CanPass(int32_t vertex, int32_t end) const {
  const VertexKind kind = topology_.vertices_[vertex].kind;
  return vertex == end ||
         (kind != VertexKind::kDevice && (kind != VertexKind::kNic || cards_ == Cards::kPass));
}

void RouteFinder::Begin(Side& side, int32_t vertex) {
  side.queue.assign(1, vertex);
  side.seen_in[vertex] = search_;
  side.distance[vertex] = 0;
  side.level = 0;
  side.edges = 1;
}

// Advances this end's search by one level; `end` is the other end. Returns true if it meets the other side.
bool RouteFinder::Widen(Side& side, const Side& other, int32_t end) {
  const auto& graph = topology_.graph_->csr;
  const size_t last = side.queue.size();
  bool meets = false;
  side.edges = 0;
  for (; side.level < last; ++side.level) {
    const int32_t vertex = side.queue[side.level];
    for (auto [edge, stop] = boost::out_edges(vertex, graph); edge != stop; ++edge) {
      const int32_t neighbour = boost::target(*edge, graph);
      if (IsSeen(side, neighbour) || !CanPass(neighbour, end)) continue;
      side.seen_in[neighbour] = search_;
      side.distance[neighbour] = side.distance[vertex] + 1;
      side.queue.push_back(neighbour);
      side.edges += static_cast<int64_t>(boost::out_degree(neighbour, graph));
      meets = meets || IsSeen(other, neighbour);
    }
  }
  return meets;
}

// Breadth-first search from both ends, always from the end with fewer edges; every link leads both ways.
bool RouteFinder::Meet(int32_t from, int32_t to, Cards cards) {
  ++search_;
  cards_ = cards;
  Begin(from_, from);
  Begin(to_, to);
  while (from_.level < from_.queue.size() && to_.level < to_.queue.size()) {
    if (from_.edges <= to_.edges ? Widen(from_, to_, to) : Widen(to_, from_, from)) return true;
  }
  return false;
}

// Marks the vertices seen from the sender that are on a path to where the sides meet, outermost first.
void RouteFinder::MarkWays() {
  const auto& graph = topology_.graph_->csr;
  const int32_t outermost = from_.distance[from_.queue.back()];
  const int32_t innermost = to_.distance[to_.queue.back()];
  for (auto it = from_.queue.rbegin(); it != from_.queue.rend(); ++it) {
    const int32_t vertex = *it;
    if (from_.distance[vertex] == outermost) {
      if (IsSeen(to_, vertex) && to_.distance[vertex] == innermost) on_way_[vertex] = search_;
      continue;
    }
    for (auto [edge, stop] = boost::out_edges(vertex, graph); edge != stop; ++edge) {
      const int32_t next = boost::target(*edge, graph);
      if (IsSeen(from_, next) && from_.distance[next] == from_.distance[vertex] + 1 &&
          on_way_[next] == search_)
        on_way_[vertex] = search_;
    }
  }
}

Result<NetworkRoute> RouteFinder::Between(int from_device, int to_device) {
  const auto& graph = topology_.graph_->csr;
  const int32_t from = topology_.device_vertices_[from_device], to = topology_.device_vertices_[to_device];
  if (from == to) return NetworkRoute{};
  if (!Meet(from, to, Cards::kEnd) && !Meet(from, to, Cards::kPass)) {
    return InvalidInput(
        "cluster.topology: every way from '{}' to '{}' leads through another device, expected links between "
        "switches that join them",
        topology_.vertices_[from].name, topology_.vertices_[to].name);
  }
  MarkWays();
  const int32_t outermost = from_.distance[from_.queue.back()];
  // Forwards along every shortest way, level by level.
  NetworkRoute route;
  std::vector<int32_t> level = {from}, closer;
  share_[from] = 1;
  for (int32_t done = 0; level.front() != to; ++done) {
    auto leads = [&](int32_t vertex, int32_t next) {
      if (done < outermost)
        return on_way_[next] == search_ && IsSeen(from_, next) && from_.distance[next] == done + 1;
      return IsSeen(to_, next) && to_.distance[next] == to_.distance[vertex] - 1;
    };
    closer.clear();
    Duration slowest;
    for (int32_t vertex : level) {
      int ways = 0;
      for (auto [edge, stop] = boost::out_edges(vertex, graph); edge != stop; ++edge)
        ways += leads(vertex, boost::target(*edge, graph)) ? 1 : 0;
      for (auto [edge, stop] = boost::out_edges(vertex, graph); edge != stop; ++edge) {
        const int32_t next = boost::target(*edge, graph);
        if (!leads(vertex, next)) continue;
        const int32_t link = static_cast<int32_t>(boost::get(boost::edge_index, graph, *edge));
        const double share = share_[vertex] / ways;
        route.hops.push_back({link, share});
        slowest = std::max(slowest, topology_.links_[link].latency);
        if (std::find(closer.begin(), closer.end(), next) == closer.end()) {
          closer.push_back(next);
          share_[next] = 0;
        }
        share_[next] += share;
      }
    }
    route.latency += slowest;
    std::swap(level, closer);
  }
  return route;
}

}  // namespace windtunnel
