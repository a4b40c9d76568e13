#include "reports/scaling.h"

#include <algorithm>
#include <numeric>

#include "base/ceil_divide.h"
#include "base/format.h"
#include "plan/mesh.h"
#include "reports/outcome.h"
#include "scenarios/derived.h"

namespace windtunnel {
namespace {

constexpr int64_t kMostDevices = 1024;
// A point costs as much as a prediction of the scenario, so one of many operators is predicted at every
// second power of two only, and one of very many at every fourth.
constexpr int64_t kManyOperators = 80'000, kVeryManyOperators = 160'000;
constexpr int64_t kEachPower = 2, kEverySecondPower = 4, kEveryFourthPower = 16;

Scenario WithReplicas(Scenario scenario, int64_t replicas) {
  DataParallelSpec& data = scenario.parallel.data;
  const int64_t per_replica = DeviceMesh(scenario.parallel).world_size() / std::max<int64_t>(data.size, 1);
  const int64_t devices = per_replica * replicas;
  data.size = replicas;
  if (replicas > 1 && data.kind == DataParallelKind::kNone) data.kind = DataParallelKind::kDdp;
  ClusterSpec& cluster = scenario.cluster;
  cluster.devices_per_node = std::min(cluster.devices_per_node, devices);
  cluster.nodes = CeilDivide(devices, cluster.devices_per_node);
  cluster.straggler.reset();
  // Derived keys follow the smaller cluster: shards within a node become shards within a smaller node.
  scenario.parallel = WithDerivedKeys(scenario.derived, cluster, scenario.parallel);
  return scenario;
}

// `replicas`, or as many more as fill the last node: a cluster of several nodes has only whole ones.
int64_t InWholeNodes(int64_t replicas, int64_t per_replica, int64_t per_node) {
  if (replicas * per_replica <= per_node) return replicas;
  const int64_t filling = std::lcm(per_replica, per_node) / per_replica;
  return CeilDivide(replicas, filling) * filling;
}

int64_t OperatorsIn(const Plan& plan) {
  int64_t operators = 0;
  for (const Role& role : plan.roles) operators += static_cast<int64_t>(role.steady.ops.size());
  return operators;
}

}  // namespace

Scaling PredictScaling(const Scenario& scenario, const PredictPlan& predict) {
  Scaling scaling;
  if (scenario.parallel.data.kind == DataParallelKind::kDp) {
    scaling.note = "DataParallel does not leave its process";
    return scaling;
  }
  const int64_t own = std::max<int64_t>(scenario.parallel.data.size, 1);
  const int64_t per_replica = DeviceMesh(scenario.parallel).world_size() / own;
  int64_t factor = kEachPower;
  std::vector<int64_t> too_small;
  auto add = [&](int64_t replicas) {
    const auto plan = CompilePlan(WithReplicas(scenario, replicas), {.predicts = true});
    const auto prediction = plan ? predict(*plan) : Result<Prediction>(tl::unexpected(plan.error()));
    if (!prediction) {
      const bool lacks_network = scenario.cluster.nodes == 1 && scenario.cluster.device != "cpu" &&
                                 scenario.cluster.network.inter_node == LinkSpec{};
      if (scaling.note.empty())
        scaling.note =
            fmt::format("{}: {}", Counted(replicas * per_replica, "device"),
                        lacks_network ? "cluster.network.inter_node, the links between nodes, is not given"
                                      : prediction.error().message);
      return;
    }
    if (!FitsInDevice(*prediction).value_or(true)) {
      too_small.push_back(replicas * per_replica);
      return;
    }
    if (const int64_t operators = OperatorsIn(*plan); operators > kManyOperators)
      factor = operators > kVeryManyOperators ? kEveryFourthPower : kEverySecondPower;
    const Throughput throughput = ThroughputOf(*plan, prediction->p50);
    scaling.points.push_back({replicas * per_replica, prediction->p50, throughput.tokens_per_s});
  };
  bool has_own = false;
  int64_t last = 0;
  for (int64_t power = 1; power == 1 || power * per_replica <= kMostDevices; power *= factor) {
    const int64_t replicas = InWholeNodes(power, per_replica, scenario.cluster.devices_per_node);
    if (replicas == last) continue;
    last = replicas;
    if (replicas >= own && !has_own) add(own);
    has_own = has_own || replicas >= own;
    if (replicas != own) add(replicas);
  }
  if (!has_own) add(own);
  if (scaling.note.empty() && !too_small.empty())
    scaling.note = fmt::format("{}: does not fit in memory", Counted(too_small.back(), "device"));
  if (scaling.note.empty() && scenario.parallel.data.kind == DataParallelKind::kNone)
    scaling.note = "replicas by DDP";
  if (scenario.cluster.straggler)
    scaling.note += scaling.note.empty() ? "without the straggler" : "; without the straggler";
  return scaling;
}

}  // namespace windtunnel
