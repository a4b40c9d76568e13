#include "plan/program_graph.h"

#include <algorithm>
#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/topological_sort.hpp>
#include <iterator>
#include <utility>

namespace windtunnel {
namespace {

using Csr = boost::compressed_sparse_row_graph<boost::directedS>;

std::vector<std::pair<OpIndex, OpIndex>> EdgesOf(const Program& program) {
  std::vector<std::pair<OpIndex, OpIndex>> edges;
  std::vector<OpIndex> last_on_stream;
  for (OpIndex index = 0; index < static_cast<OpIndex>(program.ops.size()); ++index) {
    const Op& op = program.ops[index];
    if (op.stream >= static_cast<StreamId>(last_on_stream.size())) last_on_stream.resize(op.stream + 1, -1);
    OpIndex& last = last_on_stream[op.stream];
    if (last >= 0) edges.emplace_back(last, index);
    last = index;
    for (OpIndex dependency : op.dependencies) edges.emplace_back(dependency, index);
  }
  std::sort(edges.begin(), edges.end());
  return edges;
}

}  // namespace

struct ProgramGraph::Graph {
  explicit Graph(const Program& program, const std::vector<std::pair<OpIndex, OpIndex>>& edges)
      : csr(boost::edges_are_sorted, edges.begin(), edges.end(), program.ops.size()) {}
  Csr csr;
};

ProgramGraph::ProgramGraph(const Program& program)
    : graph_(std::make_unique<Graph>(program, EdgesOf(program))) {}
ProgramGraph::~ProgramGraph() = default;
ProgramGraph::ProgramGraph(ProgramGraph&&) noexcept = default;

std::vector<OpIndex> ProgramGraph::TopologicalOrder() const {
  std::vector<OpIndex> reversed;
  reversed.reserve(boost::num_vertices(graph_->csr));
  boost::topological_sort(graph_->csr, std::back_inserter(reversed));
  std::reverse(reversed.begin(), reversed.end());
  return reversed;
}

ProgramGraph::Path ProgramGraph::CriticalPath(const std::vector<Duration>& lengths) const {
  std::vector<Duration> end(lengths);
  std::vector<OpIndex> before(lengths.size(), -1);
  OpIndex latest = -1;
  for (OpIndex op : TopologicalOrder()) {
    if (latest < 0 || end[op] > end[latest]) latest = op;
    auto [edge, last] = boost::out_edges(static_cast<size_t>(op), graph_->csr);
    for (; edge != last; ++edge) {
      const OpIndex next = static_cast<OpIndex>(boost::target(*edge, graph_->csr));
      if (end[op] + lengths[next] <= end[next]) continue;
      end[next] = end[op] + lengths[next];
      before[next] = op;
    }
  }
  Path path;
  if (latest < 0) return path;
  path.length = end[latest];
  for (OpIndex op = latest; op >= 0; op = before[op]) path.ops.push_back(op);
  std::reverse(path.ops.begin(), path.ops.end());
  return path;
}

}  // namespace windtunnel
