// A program as a graph: operators are vertices; edges are stream order and dependencies. Graph questions go
// to Boost.Graph over its compressed sparse row form.
#pragma once

#include <memory>
#include <vector>

#include "plan/step_program.h"

namespace windtunnel {

class ProgramGraph {
 public:
  explicit ProgramGraph(const Program& program);
  ~ProgramGraph();
  ProgramGraph(ProgramGraph&&) noexcept;

  // Operators in an order that respects every edge. boost::not_a_dag, here and below, if there is a cycle.
  std::vector<OpIndex> TopologicalOrder() const;

  struct Path {
    Duration length;
    std::vector<OpIndex> ops;  // from first to last
  };
  // The longest path if operator i takes lengths[i]: a lower bound of the step's time with any resources.
  Path CriticalPath(const std::vector<Duration>& lengths) const;

 private:
  struct Graph;
  std::unique_ptr<Graph> graph_;
};

}  // namespace windtunnel
