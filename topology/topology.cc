#include "topology/topology.h"

#include <algorithm>
#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/strong_components.hpp>
#include <optional>

#include "base/check.h"

namespace windtunnel {

// Vertices and edges by number, which are those of `vertices_` and `links_`.
struct Topology::Graph {
  using Csr = boost::compressed_sparse_row_graph<boost::directedS, boost::no_property, boost::no_property,
                                                 boost::no_property, int32_t, int32_t>;
  Csr csr;
};

namespace {

// Whether the name stands for the vertex: its own, or that of what it is part of ("node0" for "node0.nic3").
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
    : topology_(topology),
      distance_(topology.vertices().size(), 0),
      seen_in_(topology.vertices().size(), -1),
      share_(topology.vertices().size(), 0) {}

bool RouteFinder::IsTransit(int32_t vertex) const {
  return topology_.vertices_[vertex].kind != VertexKind::kDevice;
}

// Breadth first from `to` until `from` is reached; every link leads both ways.
bool RouteFinder::Measure(int32_t from, int32_t to) {
  const auto& graph = topology_.graph_->csr;
  ++search_;
  queue_.assign(1, to);
  seen_in_[to] = search_;
  distance_[to] = 0;
  for (size_t next = 0; next < queue_.size(); ++next) {
    const int32_t vertex = queue_[next];
    if (vertex == from) return true;
    if (vertex != to && !IsTransit(vertex)) continue;
    for (auto [edge, end] = boost::out_edges(vertex, graph); edge != end; ++edge) {
      const int32_t neighbour = boost::target(*edge, graph);
      if (seen_in_[neighbour] == search_) continue;
      seen_in_[neighbour] = search_;
      distance_[neighbour] = distance_[vertex] + 1;
      queue_.push_back(neighbour);
    }
  }
  return false;
}

Result<Route> RouteFinder::Between(int from_device, int to_device) {
  const auto& graph = topology_.graph_->csr;
  const int32_t from = topology_.device_vertices_[from_device], to = topology_.device_vertices_[to_device];
  if (!Measure(from, to)) {
    return InvalidInput(
        "cluster.topology: every way from '{}' to '{}' leads through another device, expected links between "
        "switches that join them",
        topology_.vertices_[from].name, topology_.vertices_[to].name);
  }
  // Forwards along every shortest way, level by level.
  Route route;
  std::vector<int32_t> level = {from}, closer;
  share_[from] = 1;
  while (level.front() != to) {
    closer.clear();
    Duration slowest;
    for (int32_t vertex : level) {
      auto leads = [&](int32_t neighbour) {
        return seen_in_[neighbour] == search_ && distance_[neighbour] == distance_[vertex] - 1 &&
               (neighbour == to || IsTransit(neighbour));
      };
      int ways = 0;
      for (auto [edge, end] = boost::out_edges(vertex, graph); edge != end; ++edge)
        ways += leads(boost::target(*edge, graph)) ? 1 : 0;
      const int32_t first =
          static_cast<int32_t>(boost::get(boost::edge_index, graph, *boost::out_edges(vertex, graph).first));
      int32_t link = first;
      for (auto [edge, end] = boost::out_edges(vertex, graph); edge != end; ++edge, ++link) {
        const int32_t neighbour = boost::target(*edge, graph);
        if (!leads(neighbour)) continue;
        const double share = share_[vertex] / ways;
        route.hops.push_back({link, share});
        slowest = std::max(slowest, topology_.links_[link].latency);
        if (std::find(closer.begin(), closer.end(), neighbour) == closer.end()) {
          closer.push_back(neighbour);
          share_[neighbour] = 0;
        }
        share_[neighbour] += share;
      }
    }
    route.latency += slowest;
    std::swap(level, closer);
  }
  return route;
}

}  // namespace windtunnel
