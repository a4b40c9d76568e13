#include "topology/topology.h"

#include <algorithm>
#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/strong_components.hpp>
#include <numeric>
#include <optional>
#include <utility>

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
  topology.AddLinks(parts.links);
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

void Topology::AddLinks(const std::vector<DirectedLink>& both_ways) {
  std::vector<DirectedLink> links;  // each direction behind the other
  for (const DirectedLink& link : both_ways) {
    links.push_back(link);
    links.push_back({link.to, link.from, link.bandwidth, link.latency});
  }
  std::vector<int32_t> order(links.size()), number(links.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return links[a].from < links[b].from; });
  for (size_t i = 0; i < order.size(); ++i) number[order[i]] = static_cast<int32_t>(i);
  for (const int32_t link : order) {
    links_.push_back(links[link]);
    reverse_.push_back(number[link ^ 1]);
  }
}

bool Topology::IsOfCard(int32_t link) const {
  return vertices_[links_[link].from].kind == VertexKind::kNic ||
         vertices_[links_[link].to].kind == VertexKind::kNic;
}

RouteFinder::RouteFinder(const Topology& topology)
    : topology_(topology),
      on_way_(topology.vertices().size(), -1),
      place_(topology.vertices().size(), 0),
      share_(topology.vertices().size(), 0),
      latency_(topology.vertices().size()) {
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
  side.steps.clear();
  side.levels.clear();
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
  side.levels.push_back(side.steps.size());
  for (; side.level < last; ++side.level) {
    const int32_t vertex = side.queue[side.level];
    for (auto [edge, stop] = boost::out_edges(vertex, graph); edge != stop; ++edge) {
      const int32_t neighbour = boost::target(*edge, graph);
      if (!CanPass(neighbour, end)) continue;
      if (!IsSeen(side, neighbour)) {
        side.seen_in[neighbour] = search_;
        side.distance[neighbour] = side.distance[vertex] + 1;
        side.queue.push_back(neighbour);
        side.edges += static_cast<int64_t>(boost::out_degree(neighbour, graph));
        meets = meets || IsSeen(other, neighbour);
      }
      if (side.distance[neighbour] != side.distance[vertex] + 1) continue;
      const auto link = static_cast<int32_t>(boost::get(boost::edge_index, graph, *edge));
      if (&side == &from_) side.steps.push_back({vertex, neighbour, link});
      else side.steps.push_back({neighbour, vertex, topology_.reverse_[link]});
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
  const int32_t outermost = from_.distance[from_.queue.back()];
  const int32_t innermost = to_.distance[to_.queue.back()];
  for (auto it = from_.queue.rbegin(); it != from_.queue.rend() && from_.distance[*it] == outermost; ++it)
    if (IsSeen(to_, *it) && to_.distance[*it] == innermost) on_way_[*it] = search_;
  for (auto step = from_.steps.rbegin(); step != from_.steps.rend(); ++step)
    if (on_way_[step->to] == search_) on_way_[step->from] = search_;
}

// Takes the steps that the searches recorded, instead of looking through each vertex's links: searches meet at
// spine switches, which have thousands.
void RouteFinder::FindSteps(int32_t done) {
  const int32_t outermost = from_.distance[from_.queue.back()];
  const bool is_from_sender = done < outermost;
  const Side& side = is_from_sender ? from_ : to_;
  const size_t level = static_cast<size_t>(is_from_sender ? done : to_.distance[level_.front()] - 1);
  const size_t begin = side.levels[level];
  const size_t end = level + 1 < side.levels.size() ? side.levels[level + 1] : side.steps.size();
  steps_.clear();
  for (size_t i = begin; i < end; ++i) {
    const Step& step = side.steps[i];
    if (IsIn(level_, step.from) && (!is_from_sender || on_way_[step.to] == search_)) steps_.push_back(step);
  }
  std::sort(steps_.begin(), steps_.end(), [&](const Step& a, const Step& b) {
    return std::pair(place_[a.from], a.link) < std::pair(place_[b.from], b.link);
  });
}

Result<NetworkRoute> RouteFinder::Between(int from_device, int to_device) {
  const int32_t from = topology_.device_vertices_[from_device], to = topology_.device_vertices_[to_device];
  if (from == to) return NetworkRoute{};
  if (!Meet(from, to, Cards::kEnd) && !Meet(from, to, Cards::kPass)) {
    return InvalidInput(
        "cluster.topology: every way from '{}' to '{}' leads through another device, expected links between "
        "switches that join them",
        topology_.vertices_[from].name, topology_.vertices_[to].name);
  }
  MarkWays();
  // Forwards along every shortest way, level by level.
  NetworkRoute route;
  level_.assign(1, from);
  place_[from] = 0;
  share_[from] = 1;
  latency_[from] = Duration();
  for (int32_t done = 0; level_.front() != to; ++done) {
    FindSteps(done);
    next_level_.clear();
    for (size_t begin = 0, end = 0; begin < steps_.size(); begin = end) {
      while (end < steps_.size() && steps_[end].from == steps_[begin].from) ++end;
      const double share = share_[steps_[begin].from] / static_cast<double>(end - begin);
      for (size_t i = begin; i < end; ++i) {
        const auto [_, next, link] = steps_[i];
        route.hops.push_back({link, share});
        if (!IsIn(next_level_, next)) {
          place_[next] = static_cast<int32_t>(next_level_.size());
          next_level_.push_back(next);
          share_[next] = 0;
          latency_[next] = Duration();
        }
        share_[next] += share;
        const Duration latency = latency_[steps_[begin].from] + topology_.links_[link].latency;
        latency_[next] = std::max(latency_[next], latency);
      }
    }
    std::swap(level_, next_level_);
  }
  route.latency = latency_[to];
  return route;
}

}  // namespace windtunnel
