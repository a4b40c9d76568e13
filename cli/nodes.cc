#include "cli/nodes.h"

#include "cli/load_plan.h"
#include "runtime/input_files.h"
#include "scenarios/load.h"

namespace windtunnel {
namespace {

// The value of an option, which must agree with the scenario's.
Result<int> Agreed(const std::optional<int>& option, const char* name, int64_t scenario, const char* key) {
  if (option && *option != scenario)
    return InvalidInput("{} is {}, but {} is {}: change one of them (--set {}={})", name, *option, key,
                        scenario, key, *option);
  return static_cast<int>(scenario);
}

// The scenario before its layers are balanced by costs, which may differ between nodes.
Result<std::string> ScenarioText(const Options& options) {
  std::string text;
  for (const std::string& file : options.files) {
    WT_ASSIGN_OR_RETURN(const Scenario scenario, LoadWithOverrides(options, file));
    text += ResolvedYaml(scenario) + DescribeInputFiles(scenario, options.import_weights);
  }
  return text;
}

}  // namespace

bool IsOfThisMachine(const Options& options, const Plan& plan) {
  return plan.scenario.cluster.nodes == 1 || NamesNodes(options);
}

Result<std::unique_ptr<NodeGroup>> MeetNodes(const Options& options, const Plan& plan) {
  const ClusterSpec& cluster = plan.scenario.cluster;
  NodeOptions nodes;
  WT_ASSIGN_OR_RETURN(nodes.nodes, Agreed(options.nnodes, "--nnodes", cluster.nodes, "cluster.nodes"));
  const int64_t local = std::min<int64_t>(cluster.devices_per_node, plan.world_size);
  WT_ASSIGN_OR_RETURN(nodes.ranks_per_node,
                      Agreed(options.nproc_per_node, "--nproc-per-node", local, "cluster.devices_per_node"));
  if (nodes.nodes == 1 && options.node_rank.value_or(0) > 0)
    return InvalidInput("--node-rank is {}, expected 0: {} has one node", *options.node_rank,
                        plan.scenario.name);
  if (options.standalone && nodes.nodes > 1)
    return InvalidInput("--standalone is for one node, but cluster.nodes is {}", nodes.nodes);
  if (nodes.nodes == 1) return nullptr;
  if (plan.world_size != nodes.nodes * nodes.ranks_per_node)
    return InvalidInput("{} nodes of {} devices are not the {} ranks of {}", nodes.nodes,
                        nodes.ranks_per_node, plan.world_size, plan.scenario.name);
  if (!options.node_rank || options.master_addr.empty())
    return InvalidInput(
        "{} has {} nodes: give the command on each of them, with --node-rank 0 to {} and --master-addr HOST "
        "of node 0",
        plan.scenario.name, nodes.nodes, nodes.nodes - 1);
  if (options.master_port == 0)
    return InvalidInput(
        "--rdzv-endpoint: port 0 is any free one, which the other nodes would not know; expected 1 to 65535 "
        "for {} nodes",
        nodes.nodes);
  nodes.node = *options.node_rank;
  if (nodes.node >= nodes.nodes)
    return InvalidInput("--node-rank is {}, expected 0 to {}", nodes.node, nodes.nodes - 1);
  nodes.master_addr = options.master_addr;
  nodes.master_port = options.master_port;
  nodes.token = options.rdzv_id.empty() ? "windtunnel" : options.rdzv_id;
  nodes.deadline = std::chrono::milliseconds(static_cast<int64_t>(options.rendezvous_timeout_s * 1000));
  WT_ASSIGN_OR_RETURN(const std::string scenario, ScenarioText(options));
  return NodeGroup::Meet(nodes, scenario);
}

}  // namespace windtunnel
