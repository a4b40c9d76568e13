// Small clusters, and what runs on them.
#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "plan/plan.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// The scenario with so many ranks, on nodes of four devices that have a card each.
inline Scenario OnNodesOfFour(Scenario s, const char* device, int tensor, int pipeline, int data) {
  s.model.layers = 2 * pipeline;
  s.batch = {1, 4};
  s.parallel.tensor.size = tensor;
  s.parallel.pipeline.size = pipeline;
  s.parallel.data.kind = data > 1 ? DataParallelKind::kZero1 : DataParallelKind::kNone;
  s.parallel.data.size = data;
  s.cluster = {};
  s.cluster.device = device;
  s.cluster.devices_per_node = 4;
  s.cluster.nodes = (tensor * pipeline * data + 3) / 4;
  s.cluster.network.inter_node = {.kind = "infiniband", .gbits_per_nic = 200, .latency_us = {}};
  s.cluster.network.nics_per_node = 4;
  return s;
}

inline Plan Compile(const Scenario& s) {
  auto plan = CompilePlan(s);
  EXPECT_TRUE(plan) << plan.error().message;
  return *std::move(plan);
}

}  // namespace windtunnel
