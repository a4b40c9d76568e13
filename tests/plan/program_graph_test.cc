#include "plan/program_graph.h"

#include <gtest/gtest.h>

namespace windtunnel {
namespace {

// a (stream 0) -> b (stream 0); a -> c (stream 1) -> d (stream 0).
Program Diamond() {
  auto op = [](StreamId stream, std::vector<OpIndex> dependencies) {
    return Op(Scale{}, stream, {}, {}, std::move(dependencies));
  };
  return Program{"diamond", {op(0, {}), op(0, {}), op(1, {0}), op(0, {2})}};
}

TEST(ProgramGraph, FindsTheLongestPath) {
  const ProgramGraph graph(Diamond());
  // a 1, b 2, c 5, d 1: a-c-d = 7 against a-b-d = 4.
  const auto path = graph.CriticalPath({Seconds(1), Seconds(2), Seconds(5), Seconds(1)});
  EXPECT_EQ(path.length, Seconds(7));
  EXPECT_EQ(path.ops, (std::vector<OpIndex>{0, 2, 3}));
}

TEST(ProgramGraph, TopologicalOrderRespectsEveryEdge) {
  const auto order = ProgramGraph(Diamond()).TopologicalOrder();
  EXPECT_EQ(order.front(), 0);
  EXPECT_EQ(order.back(), 3);
}

TEST(ProgramGraph, OfACycleHasNoOrder) {
  Program program = Diamond();
  program.ops[0].dependencies = {2};
  EXPECT_ANY_THROW(ProgramGraph(program).TopologicalOrder());
}

}  // namespace
}  // namespace windtunnel
